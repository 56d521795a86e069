"""Goal: with any faults of a cloud, a job has the bits of an undisturbed run, no machine is left
over, no request makes two machines, and other users cannot read the token.
Method: a real coordinator requests machines from the fake Compute Engine or EC2 during stock-outs,
a quota, throttling, lost and slow answers. Machines start from the bundle that the coordinator
serves, and vanish with and without a notice. The coordinator is killed and started again.
"""
import glob
import os
import sys

import mayfly_run
from fake_cloud_job import MAKES, FakeCloudJob, expect_undisturbed_bits
from mayfly_run import SMALL_JOB, expect

JOB = SMALL_JOB + ["--steps", "1000000", "--threads", "1"]  # until the test stops the job
# The test mostly waits for the cloud. A slower job leaves fewer steps for the oracle to repeat.
SLOW = ["--inject", "slow=6x"]
WORKERS = 3


def script_faults(job):
    for rule in ({"kind": "throttle", "times": 3},  # as often as a request is repeated in a row
                 {"kind": "lose", "times": 3},      # the request is carried out, its answer lost
                 {"kind": "quota_now", "after": 1},
                 {"kind": "truncate", "after": 1}):
        job.cloud.control("fault", service=job.provider, operation=MAKES[job.provider], **rule)
    look = "list" if job.provider == "gce" else "DescribeInstances"
    for rule in ({"kind": "status", "status": 500, "after": 2}, {"kind": "garbage", "after": 3}):
        job.cloud.control("fault", service=job.provider, operation=look, **rule)


def running(job):
    return [m["name"] for m in job.machines("running")]


def causes_of(job):
    return [e["recovery"]["cause"] for e in job.events("recovery")]


def who_can_read(token):
    """The command lines of processes on this host that contain the token."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                text = f.read().decode(errors="replace")
        except OSError:
            continue
        if token in text:
            found.append(text.replace("\0", " "))
    return found


def expect_secret(job, token):
    """Expects that other users of a machine and readers of logs cannot see the token."""
    paths = [p for p in glob.glob(job.folder + "/run/**", recursive=True)
             if os.path.isfile(p) and os.path.basename(p) != "token"]
    paths += glob.glob(job.folder + "/cloud/*.log") + [job.folder + "/output.txt"]
    for path in paths:
        with open(path, "rb") as f:
            expect(token.encode() not in f.read(), f"the token is in {path}")
    texts = [r["body"] + r["path"] for r in job.cloud.control("requests")
             if r not in job.requests_sent()]
    expect(not any(token in text for text in texts), "the token is in a request to look")


def storm(provider):
    job = FakeCloudJob(provider, JOB + SLOW, WORKERS)
    script_faults(job)
    job.start()
    job.wait_for("three workers", lambda: job.run.last_members() == WORKERS)
    with open(os.path.join(job.run.run_dir, "token")) as f:
        token = f.read().strip()
    exposed = who_can_read(token)
    expect(not exposed, f"arguments show the token: {exposed}")
    taken = running(job)
    job.cloud.control("notice", machine=taken[0], kind="preempt", deadline_s=5)
    job.wait_for("a leave", lambda: "leave" in causes_of(job))
    job.wait_for("its replacement",
                 lambda: len(set(running(job)) - set(taken)) > 0 and
                 job.run.last_members() == WORKERS)
    before = set(running(job))
    job.cloud.control("fault", service=provider, operation=MAKES[provider], kind="stock_out",
                      zones_available=["zone-c"])
    job.cloud.control("vanish", machine=taken[1])
    job.wait_for("another replacement",
                 lambda: len(set(running(job)) - before) > 0 and job.run.last_members() == WORKERS)
    adopted_before = len(job.events("server_adopted"))
    asked_before = len(job.events("server_requested"))
    here = len(job.machines("running", "starting"))
    job.kill_coordinator()
    job.cloud.control("vanish", machine=running(job)[0])  # while there is no coordinator
    job.start()
    job.wait_for("adoption",
                 lambda: len(job.events("server_adopted")) - adopted_before >= here - 1)
    step = job.run.last_step()
    job.wait_for("more steps", lambda: job.run.last_step() > step + 5)
    summary = job.end()
    steps, _ = expect_undisturbed_bits(job.run, JOB)
    left = job.machines("starting", "running", "stopping")
    expect(not left, f"machines are left: {left}\n{job.shown()}")
    again = job.events("server_requested")[asked_before:]
    expect(not again, f"asked again for what was there: {again}\n{job.shown()}")
    details = " ".join(e["detail"] for e in job.events("server_refused"))
    for kind in ("capacity", "rate", "quota"):
        expect(kind in details, f"no refusal for {kind}: {details}")
    asked = {e["request"]: int(e["detail"].split()[0]) for e in job.events("server_requested")}
    made = job.machines_by_request()
    doubled = {r: count for r, count in made.items() if count > asked.get(r, 0)}
    expect(not doubled, f"made more than asked for: {doubled} of {asked}\n{job.shown()}")
    causes = [r["cause"] for r in summary["recoveries"]]
    expect("lost" in causes and "leave" in causes, f"{causes}")
    expect_secret(job, token)
    job.stop()
    print(f"{provider}: {steps} steps; {len(made)} requests made {sum(made.values())} machines; "
          f"{causes}")


if __name__ == "__main__":
    sys.exit(mayfly_run.main({"gce": lambda: storm("gce"), "ec2": lambda: storm("ec2")}))
