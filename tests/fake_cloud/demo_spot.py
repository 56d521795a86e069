"""A job on a spot market that follows a real trace, on the fake cloud: `mayfly coordinator` asks
EC2's or Compute Engine's interface for servers, they start from the bundle that it serves, machines
are taken with and without notice, and the result must have the bits of an undisturbed run. Prints
what happened; exits with 1 if a bit is wrong, a machine is left or one was made twice. See
scripts/demo-spot.
"""
import argparse
import collections
import json
import os
import sys

import mayfly_run
from fake_cloud_job import FakeCloudJob, expect_undisturbed_bits
from mayfly_run import Failure
from spot_market import SpotMarket, read_moments

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
TRACE = os.path.join(ROOT, "benchmarks", "traces", "bamboo-p3-start.csv")
JOB = ["--model", "resnet20", "--data", "procedural:2000", "--global-batch", "16", "--microbatch",
       "4", "--threads", "1", "--seed", "7", "--no-evaluate", "--no-tensorboard", "--digest-every",
       "1", "--steps", "1000000", "--silence-max-ms", "2000"]
STEPS_MIN = 50  # of a run that shows something


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--provider", choices=["ec2", "gce"], default="ec2")
    parser.add_argument("--workers", type=int, default=4, help="at the trace's best moment")
    parser.add_argument("--speedup", type=float, default=60, help="of the trace; default 60")
    parser.add_argument("--trace", default=TRACE, help="rows: milliseconds,add|remove,node")
    parser.add_argument("--hours", type=float, help="of the trace that are played; default all")
    parser.add_argument("--budget", type=float, default=100.0, help="for the whole job")
    parser.add_argument("--timeout", type=int, help="seconds")
    parser.add_argument("--json", help="write the summary to this file, too")
    return parser.parse_args()


def doubled(job):
    """Requests that made more machines than they asked for."""
    asked = {e["request"]: int(e["detail"].split()[0]) for e in job.events("server_requested")}
    made = job.machines_by_request()
    return {request: count for request, count in made.items() if count > asked.get(request, 0)}


def summarise(job, market, summary, options):
    events = collections.Counter(e["kind"] for e in job.events())
    refused = collections.Counter(e["detail"].split(":")[0] for e in job.events("server_refused"))
    stalled_ms = sum(r["step_ms"] for r in summary["recoveries"])
    costs = job.events("cost")
    return {
        "provider": options.provider, "workers": options.workers, "speedup": options.speedup,
        "steps": summary["steps"], "seconds": round(summary["train_seconds"], 1),
        "images_per_second": round(summary["images_per_second"], 1),
        "requests": events["server_requested"], "servers": events["server_granted"],
        "refusals": dict(refused), "taken": dict(market.taken),
        "recoveries": dict(collections.Counter(r["cause"] for r in summary["recoveries"])),
        "redone_microbatches": sum(r["redone_microbatches"] for r in summary["recoveries"]),
        # Of the training time, what was not between the detection of a change and the next step.
        "goodput": round(1 - stalled_ms / 1000 / max(summary["train_seconds"], 1e-9), 4),
        "cost": round(costs[-1]["spent"], 4) if costs else 0,
        "cost_by_server": {e["server"]: round(e["cost"], 4) for e in job.events("server_ended")}}


def show(found):
    print(f"steps {found['steps']} in {found['seconds']} s, {found['images_per_second']} images/s, "
          f"goodput {found['goodput']:.1%}")
    print(f"requests {found['requests']}, servers {found['servers']}, refusals "
          f"{found['refusals'] or 'none'}, taken {found['taken'] or 'none'}")
    print(f"changes of membership {found['recoveries']}, microbatches computed again "
          f"{found['redone_microbatches']}")
    print(f"cost {found['cost']} (in the offers' currency, at least a minute per server)")
    for server, cost in found["cost_by_server"].items():
        print(f"  {server:30} {cost}")


def complaints(job, found, options):
    """What must not have happened."""
    alive = [m["name"] for m in job.machines("starting", "running", "stopping")]
    if alive:
        yield f"machines are left: {alive}"
    if doubled(job):
        yield f"made more than once: {doubled(job)}"
    if found["steps"] < STEPS_MIN or not found["taken"]:
        yield f"{found['steps']} steps, taken {found['taken']}: nothing was shown"
    if found["cost"] > options.budget:
        yield f"the budget of {options.budget} is exceeded"


def play(options):
    moments = read_moments(options.trace, options.workers, options.hours)
    length = moments[-1][0] / options.speedup
    timeout = options.timeout or int(3 * length + 300)
    # A job begins when all its workers are there: this one begins with one, and grows.
    job = FakeCloudJob(options.provider, JOB, 1,
                       ["--cloud-budget", str(options.budget), "--cloud-offers", offers(options),
                        "--cloud-max-workers", str(options.workers)], timeout)
    print(f"{moments[-1][0] / 3600:.2f} hours of {os.path.basename(options.trace)} in "
          f"{length:.0f} s; records are in {job.folder}", flush=True)
    job.cloud.control("set", stock=0)
    job.start()
    market = SpotMarket(job.cloud, moments, options.speedup)
    market.start()
    job.wait_for("a worker", lambda: job.run.last_step() > 0)
    job.run.command("scale", str(options.workers))
    job.wait_for("the end of the trace", lambda: not market.is_alive())
    summary = job.end()
    found = summarise(job, market, summary, options)
    show(found)
    wrong = list(complaints(job, found, options))
    steps = expect_undisturbed_bits(job.run, JOB, timeout)
    print(f"all {steps} steps have the bits of an undisturbed run")
    job.stop()
    if options.json:
        with open(options.json, "w") as f:
            json.dump(found, f, indent=1)
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


def offers(options):
    machine = "p3.2xlarge" if options.provider == "ec2" else "n1-standard-8"
    return f"{machine}@zone-a:spot=0.90,{machine}@zone-b:spot=0.95,{machine}@zone-c:spot=1.00"


def main():
    try:
        return play(parse_arguments())
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    mayfly_run.BINARY = os.path.abspath(mayfly_run.BINARY)
    sys.exit(main())
