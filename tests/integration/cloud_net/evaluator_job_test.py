"""Goal: a cloud's machine evaluates the checkpoints of a job. When the machine vanishes another one
replaces it, and training is not disturbed. At the job's end the machine is released after it has
evaluated the last checkpoint.
Method: a real coordinator asks the fake Compute Engine for two workers and one evaluator, which has
an offer of its own; machines start from the bundle that the coordinator serves.
"""
import json
import sys

import mayfly_run
from fake_cloud_job import FakeCloudJob, expect_undisturbed_bits
from mayfly_run import LISTS_ARE_EXACT, SMALL_JOB, expect

JOB = SMALL_JOB + ["--steps", "1000000", "--threads", "1", "--checkpoint-every", "20",
                   "--keep-checkpoints", "1000"]
SLOW = ["--inject", "slow=6x"]
EXTRA = ["--evaluators", "1", "--evaluator-offers", "small@zone-b:spot=0.10"]


def evaluated(job):
    return [line["step"] for line in job.run.lines("evaluations.jsonl")]


def vanishing_machine():
    job = FakeCloudJob("gce", JOB + SLOW, 2, extra=EXTRA, environment=LISTS_ARE_EXACT).start()
    job.wait_for("an evaluation", lambda: job.events("evaluated"))
    first = job.events("evaluator_joined")[0]["server"]
    kinds = {m["name"]: m["type"] for m in job.machines("running")}
    expect(sorted(kinds.values()) == ["n1-standard-8", "n1-standard-8", "small"],
           f"{kinds}\n{job.shown()}")
    name = first.split("/")[-1]
    expect(kinds[name] == "small", f"{first} is the evaluator of {kinds}\n{job.shown()}")
    status = json.loads(job.run.command("status", "--json").stdout)
    expect([e["server"] for e in status["evaluators"]] == [first], f"{status}")
    expect(len(status["members"]) == 2, f"{status}")
    job.cloud.control("vanish", machine=name)
    job.wait_for("another evaluator", lambda: len(job.events("evaluator_joined")) == 2)
    count = len(evaluated(job))
    job.wait_for("its evaluations", lambda: len(evaluated(job)) > count)
    summary = job.end()
    second = job.events("evaluator_joined")[1]["server"]
    expect(second != first, "another machine")
    expect(not summary["recoveries"] or all(r["cause"] == "join" for r in summary["recoveries"]),
           f"training was disturbed: {summary['recoveries']}")
    steps = evaluated(job)
    wanted = [*range(20, summary["steps"] + 1, 20)]
    wanted += [summary["steps"]] if summary["steps"] % 20 else []
    expect(sorted(steps) == wanted, f"measured {steps}, wanted {wanted}\n{job.shown()}")
    found = summary["evaluations"]
    expect(found["count"] == len(steps) and set(found["evaluators"]) == {first, second} and
           found["step"] == summary["steps"], f"{found}")
    expect(f"by {first}, {second}" in job.run.output(), job.run.output())
    left = job.machines("starting", "running", "stopping")
    expect(not left, f"machines are left: {left}\n{job.shown()}")
    expect(job.events("cost")[-1]["billing"] == 0, job.shown())
    expect_undisturbed_bits(job.run, JOB)
    job.stop()
    print(f"{len(steps)} checkpoints measured by two machines")


if __name__ == "__main__":
    sys.exit(mayfly_run.main({"vanishing_machine": vanishing_machine}))
