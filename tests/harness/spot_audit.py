"""The costs of a job's servers according to the records of the fake cloud, which the job cannot
see."""
import os
import sys

BILLED_AT_LEAST_S = 60
BENCHMARKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir,
                          "benchmarks")


def machine_facts(binary):
    """Facts of this machine and build, as in the records of benchmarks."""
    sys.path.insert(0, BENCHMARKS)
    import machine  # pylint: disable=import-outside-toplevel
    return machine.facts(binary)


def per_hour_max(spans):
    """The maximum over time of the price per hour of all servers. Spans are (begin, end, price per
    hour)."""
    changes = sorted([(begin, 1, price) for begin, _, price in spans] +
                     [(end, 0, -price) for _, end, price in spans])  # at one instant, ends first
    now = most = 0.0
    for _, _, price in changes:
        now += price
        most = max(most, now)
    return most


def by_the_cloud(job, prices):
    """The cost, the machines that still exist, and the requests that created more machines than
    they asked for. `prices`: per hour, by zone and market. Call it after the job has ended."""
    made = [m for m in job.machines() if m["reason"] not in ("stock_out", "quota")]
    left = [m["name"] for m in made if m["state"] != "gone"]
    spans = [(m["created"], m["ended"], prices[m["zone"], m["market"]]) for m in made if m["ended"]]
    cost = sum(max(end - begin, BILLED_AT_LEAST_S) * price for begin, end, price in spans) / 3600
    asked = {e["request"]: int(e["detail"].split()[0]) for e in job.events("server_requested")}
    doubled = {request: count for request, count in job.machines_by_request().items()
               if count > asked.get(request, 0)}
    return {"machines": len(made), "left": left, "doubled": doubled,
            "cost_by_cloud": round(cost, 4), "per_hour_max": round(per_hour_max(spans), 4)}
