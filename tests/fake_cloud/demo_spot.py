"""A job on a spot market that follows a real trace, on the fake cloud: the coordinator requests
servers over the interface of EC2 or Compute Engine, the machines start from the bundle that it
serves, and the market takes machines away with and without a notice. The result must have the bits
of an undisturbed run. Prints a summary. Exits with 1 if a bit is wrong, a machine is left over, a
request made two machines, or a budget is exceeded according to the cloud's records. See
scripts/demo-spot.
"""
import argparse
import collections
import json
import os
import sys
import tomllib

import mayfly_run
import spot_audit
from fake_cloud_job import MAKES, FakeCloudJob, expect_undisturbed_bits
from mayfly_run import Failure, expect
from spot_market import SpotMarket, read_moments

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
TRACES = os.path.join(ROOT, "benchmarks", "traces")
OWN = ["--no-evaluate", "--no-tensorboard", "--digest-every", "1", "--silence-max-ms", "2000"]
JOB = ["--model", "resnet20", "--data", "procedural:2000", "--global-batch", "16", "--microbatch",
       "4", "--seed", "7", "--steps", "1000000"] + OWN
# Settings that an undisturbed run must share with the job to have the same bits.
SAME = ["model", "data", "global_batch", "microbatch", "seed", "steps", "lr"]
STEPS_MIN = 20  # a shorter run shows too little
LOOKS = {"gce": "list", "ec2": "DescribeInstances"}
PRICES = {("zone-a", "spot"): 0.80, ("zone-b", "spot"): 0.85, ("zone-c", "spot"): 0.90,
          ("zone-a", "on_demand"): 3.305}  # invented, in dollars per hour


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--provider", choices=["ec2", "gce"], default="ec2")
    parser.add_argument("--workers", type=int, default=4, help="at the trace's best moment")
    parser.add_argument("--speedup", type=float, default=60, help="of the trace; default 60")
    parser.add_argument("--trace", default=os.path.join(TRACES, "bamboo-p3-start.csv"),
                        help="rows: milliseconds,add|remove,node")
    parser.add_argument("--hours", type=float,
                        help="of the trace, which begins again when it is over; default: once")
    parser.add_argument("--day", action="store_true",
                        help="24 hours of the whole Bamboo trace, one worker on demand, workers "
                             "that sleep for most of the time, a cloud that also loses answers")
    parser.add_argument("--slow", type=float, default=1,
                        help="workers take so many times as long, asleep: less load for the host")
    parser.add_argument("--trouble", action="store_true",
                        help="the cloud loses answers, throttles and fails now and then")
    parser.add_argument("--on-demand", type=int, default=0,
                        help="of the workers, so many that nobody takes: they keep the state when "
                             "all others are taken at once")
    parser.add_argument("--budget", type=float, default=100.0, help="for the whole job")
    parser.add_argument("--budget-per-hour", type=float, help="for all servers together")
    parser.add_argument("--job", help="a job file of `mayfly plan --write` for what else this "
                                      "demonstration starts: its settings, servers and length")
    parser.add_argument("--folder", help="for all files; the run directory is run in it")
    parser.add_argument("--timeout", type=int, help="seconds")
    parser.add_argument("--json", help="write what happened to this file, too: JSON lines")
    options = parser.parse_args()
    if options.day:
        options.trace = os.path.join(TRACES, "bamboo-p3.csv")
        options.hours, options.slow, options.trouble = options.hours or 24, 10, True
        # The hourly budget is sufficient for one server on demand, three spot servers and a
        # replacement, but not for two servers on demand. The job would request a second one when
        # no zone has spot servers.
        options.on_demand, options.budget, options.budget_per_hour = 1, 8.0, 6.6
    return options


def trouble_of(provider):
    """The faults of the cloud that the market injects in turn."""
    makes, looks = MAKES[provider], LOOKS[provider]
    return [{"service": provider, "operation": makes, "kind": "lose"},
            {"service": provider, "operation": looks, "kind": "garbage"},
            {"service": provider, "operation": makes, "kind": "throttle", "times": 3},
            {"service": provider, "operation": makes, "kind": "lose", "times": 3},
            {"service": provider, "operation": looks, "kind": "status", "status": 500},
            {"service": provider, "operation": makes, "kind": "truncate"}]


def summarise(job, market, summary, moments, options):
    events = collections.Counter(e["kind"] for e in job.events())
    refused = collections.Counter(e["detail"].split(":")[0] for e in job.events("server_refused"))
    stalled_s = sum(r["step_ms"] for r in summary["recoveries"]) / 1000
    costs = job.events("cost")
    return {
        "provider": options.provider, "workers": options.workers,
        "on_demand": options.on_demand, "speedup": options.speedup,
        "trace": os.path.basename(options.trace), "hours": round(moments[-1][0] / 3600, 2),
        "slow": options.slow, "steps": summary["steps"],
        "seconds": round(summary["train_seconds"], 1),
        "images_per_second": round(summary["images_per_second"], 1),
        "requests": events["server_requested"], "servers": events["server_granted"],
        "stock_outs": refused.get("capacity", 0), "refusals": dict(refused),
        "trouble": dict(market.troubles), "taken": dict(market.taken),
        "recoveries": dict(collections.Counter(r["cause"] for r in summary["recoveries"])),
        "redone_microbatches": sum(r["redone_microbatches"] for r in summary["recoveries"]),
        # The share of the training time, and of the trace's unscaled time, that was not spent
        # between the detection of a change and the next step.
        "goodput": round(1 - stalled_s / max(summary["train_seconds"], 1e-9), 4),
        "natural_goodput": round(1 - stalled_s / max(moments[-1][0], 1e-9), 6),
        "cost": round(costs[-1]["spent"], 4) if costs else 0,
        "budget": options.budget, "budget_per_hour": options.budget_per_hour}


def servers_of(job):
    """A record of the cost of each server that has ended."""
    return [{"kind": "server", "server": e["server"], "cost": round(e["cost"], 4)}
            for e in job.events("server_ended", "server_refused") if e.get("server")
            and "cost" in e]


def show(found, servers):
    print(f"steps {found['steps']} in {found['seconds']} s, {found['images_per_second']} images/s, "
          f"goodput {found['goodput']:.1%}, at the market's own pace "
          f"{found['natural_goodput']:.3%}")
    print(f"requests {found['requests']}, servers {found['servers']}, refusals "
          f"{found['refusals'] or 'none'}, taken {found['taken'] or 'none'}")
    print(f"changes of membership {found['recoveries']}, microbatches computed again "
          f"{found['redone_microbatches']}")
    print(f"cost {found['cost']} (in the offers' currency, at least a minute per server); by the "
          f"cloud's records {found['cost_by_cloud']}, at most {found['per_hour_max']} an hour")
    for server in servers:
        print(f"  {server['server']:30} {server['cost']}")


def complaints(found, options):
    """The violated expectations, as texts."""
    if found["left"]:
        yield f"machines are left: {found['left']}"
    if found["doubled"]:
        yield f"made more than once: {found['doubled']}"
    if found["steps"] < STEPS_MIN or not found["taken"]:
        yield f"{found['steps']} steps, taken {found['taken']}: nothing was shown"
    if max(found["cost"], found["cost_by_cloud"]) > options.budget:
        yield f"the budget of {options.budget} is exceeded"
    if found["cost_by_cloud"] > found["cost"] + 0.001:
        yield "the bill is lower than what the cloud's records come to"
    if options.budget_per_hour and found["per_hour_max"] > options.budget_per_hour + 1e-9:
        yield f"the hourly budget of {options.budget_per_hour} is exceeded"


def settings_of(run):
    with open(run.path("config.toml"), "rb") as text:
        return tomllib.load(text)


def prices_of(run):
    """The prices by zone and market, from the job's offers TYPE@ZONE:MARKET=PRICE*SPEED."""
    prices = {}
    for offer in settings_of(run)["cloud_offers"].split(","):
        where, _, price = offer.partition("=")
        place, _, market = where.rpartition(":")
        zone = place.partition("@")[2]
        for one in [zone] if zone else {zone for zone, _ in PRICES}:
            prices[one, market] = float(price.partition("*")[0])
    return prices


def words_of_run(run):
    """The arguments with which an undisturbed run computes the same steps."""
    settings = settings_of(run)
    return OWN + [word for name in SAME for word in (f"--{name.replace('_', '-')}",
                                                     str(settings[name]))]


def job_of(options, moments, timeout):
    words = (OWN if options.job else list(JOB)) + ["--threads", "1"]
    if options.slow > 1:
        words += ["--inject", f"slow={options.slow:g}x"]
    machine = "p3.2xlarge" if options.provider == "ec2" else "n1-standard-8"
    offers = [f"{machine}@{zone}:{market}={price}" for (zone, market), price in PRICES.items()
              if market == "spot" or options.on_demand]
    extra = ["--cloud-budget", str(options.budget), "--cloud-offers", ",".join(offers),
             "--cloud-max-workers", str(options.workers), "--cloud-on-demand-floor",
             str(options.on_demand)]
    if options.budget_per_hour:
        extra += ["--cloud-budget-per-hour", str(options.budget_per_hour)]
    if options.job:
        job = FakeCloudJob(options.provider, words, None, ["--config", options.job], timeout,
                           options.folder)
    else:
        # A job waits for all its initial workers. This one begins with one worker, and grows.
        job = FakeCloudJob(options.provider, words, 1, extra, timeout, options.folder)
    length = moments[-1][0] / options.speedup
    print(f"{moments[-1][0] / 3600:.2f} hours of {os.path.basename(options.trace)} in "
          f"{length:.0f} s; records are in {job.folder}", flush=True)
    return job


def write(path, facts, servers):
    with open(path, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in facts + servers)


def play(options):
    moments = read_moments(options.trace, options.workers - options.on_demand, options.hours)
    timeout = options.timeout or int(3 * moments[-1][0] / options.speedup + 300)
    machine_facts = spot_audit.machine_facts(mayfly_run.BINARY)
    job = job_of(options, moments, timeout)
    job.cloud.control("set", stock=0)
    job.start()
    market = SpotMarket(job.cloud, moments, options.speedup,
                        trouble=trouble_of(options.provider) if options.trouble else ())
    market.start()
    if options.job:
        code = job.run.wait()
        expect(code == 0, f"the job ended with {code}\n{job.shown()}")
        market.stopped.set()
        market.join()
        summary = job.run.summary()
    else:
        job.wait_for("a worker", lambda: job.run.last_step() > 0)
        job.run.command("scale", str(options.workers))
        job.wait_for("the end of the trace", lambda: not market.is_alive())
        summary = job.end()
    found = {"kind": "summary", "row": "spot-day" if options.day else "spot",
             **summarise(job, market, summary, moments, options),
             **spot_audit.by_the_cloud(job, prices_of(job.run) if options.job else PRICES)}
    servers = servers_of(job)
    show(found, servers)
    same = words_of_run(job.run) if options.job else JOB
    steps, digest = expect_undisturbed_bits(job.run, same + ["--threads", "2"], timeout)
    print(f"all {steps} steps have the bits of an undisturbed run")
    found.update(final_digest=summary["final_digest"], undisturbed_digest=digest)
    wrong = list(complaints(found, options))
    if summary["steps"] == steps and summary["final_digest"] != digest:
        wrong.append(f"the last state is {summary['final_digest']}, undisturbed {digest}")
    job.stop()
    if options.json:
        write(options.json, [machine_facts, found], servers)
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


def main():
    try:
        return play(parse_arguments())
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    mayfly_run.BINARY = os.path.abspath(mayfly_run.BINARY)
    sys.exit(main())
