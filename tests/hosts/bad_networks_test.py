"""Goal: a bad network only costs time.
Method: `mayfly train --hosts` in the lab. lossy: packets of 1500 bytes, of which 1 % are lost, 20
ms between any two hosts, and 100 Mbit/s for each host; with the detector's default settings no
worker may be evicted. pair_cut: packets between two members are dropped silently, while the
coordinator reaches both. half: the network is divided into two parts; the coordinator's part goes
on, and the other part commits nothing (with --quorum: tests/chaos/partition_test.py). The bits are
those of an undisturbed run on this machine.

  MAYFLY_TEST_MINUTES=10 sets the length of the lossy job, MAYFLY_TEST_REPEATS=10 cuts ten pairs.
"""
import glob
import os
import re
import shutil
import statistics
import time

import lab_of_hosts
import mayfly_run
import network
from mayfly_run import SMALL_JOB, expect
from oracle import Oracle
from ssh_test import LabRun, lab_with_program, nothing_is_left

MINUTES = float(os.environ.get("MAYFLY_TEST_MINUTES", "1"))
REPEATS = int(os.environ.get("MAYFLY_TEST_REPEATS", "1"))
STEPS_PER_MINUTE = 50  # on the lossy network
CABLE_MS = 10  # the delay of each host's link; between two hosts it is twice as much
STANDS_STILL_S = 20  # the longest pause on a busy machine; docs/failure_model.md has usual times


def spread(values):
    values = sorted(values)
    return (f"median {statistics.median(values):.2f}, "
            f"99 of 100 below {values[len(values) * 99 // 100]:.2f}, most {values[-1]:.2f}")


def bring_the_program(lab, names):
    """Copies the program to the hosts while the network is good; on the bad network that would take
    a minute."""
    run = LabRun(lab, names, job=SMALL_JOB + ["--steps", "1"])
    expect(run.wait() == 0, run.logs())
    shutil.rmtree(run.run_dir)


def lossy():
    steps = ["--steps", str(round(MINUTES * STEPS_PER_MINUTE))]
    oracle = Oracle(SMALL_JOB + steps + ["--workers", "1", "--threads", "1"], timeout=1200)
    at = SMALL_JOB.index("--silence-max-ms")
    job = SMALL_JOB[:at] + SMALL_JOB[at + 2:] + steps
    lab = lab_with_program(4)
    bring_the_program(lab, "h1,h2,h3")
    for host in range(4):
        lab.delay(host, CABLE_MS)
        lab.limit(host, 100)
    lab.lose("some", (None, None), percent=1)
    run = LabRun(lab, "h1,h2,h3", job=job, timeout=300 + 240 * MINUTES)
    run.wait_for_step(1)
    begun, times, step, before = time.monotonic(), [], run.last_step(), time.monotonic()
    while run.process.poll() is None and time.monotonic() - run.started < run.timeout:
        if run.last_step() > step:
            now = time.monotonic()
            times.append((now - before) / (run.last_step() - step))
            step, before = run.last_step(), now
        time.sleep(0.01)
    took = time.monotonic() - begun
    run.ends_well(oracle.summary["final_digest"])
    summary = run.summary()
    print(f"{step} steps in {took:.0f} s, s per step: {spread(times)}; "
          f"{summary['membership_changes']} changes of membership", flush=True)
    causes = [recovery["cause"] for recovery in summary["recoveries"]]
    expect(summary["membership_changes"] == 0, f"{causes}\n{run.logs()}")
    nothing_is_left(lab, (1, 2, 3))


class LongRun(LabRun):
    """A job on h1, h2 and h3 that takes some twenty seconds if it is not disturbed."""

    STEPS = ["--steps", "300"]

    def __init__(self, lab):
        super().__init__(lab, "h1,h2,h3", "--inject", "delay=50ms", job=SMALL_JOB + self.STEPS)
        self.wait_for_step(10)

    @classmethod
    def digest(cls):
        job = SMALL_JOB + cls.STEPS + ["--workers", "1", "--threads", "1"]
        return Oracle(job).summary["final_digest"]

    def evicted(self):
        return [event["detail"] for event in self.events("evicted")]


def pair_cut():
    """One of the two members is evicted, once. It joins again when the cut ends, not before."""
    digest = LongRun.digest()
    lab = lab_with_program(4)
    waits = []
    for _ in range(REPEATS):
        run = LongRun(lab)
        view = next(run.last_steps())["view"]
        lab.lose("pair", (1, 2), (2, 1))
        begun = time.monotonic()
        run.wait_for("a step after the cut", lambda: next(run.last_steps())["view"] > view)
        waits.append(time.monotonic() - begun)
        expect(waits[-1] < STANDS_STILL_S, f"no step for {waits[-1]:.1f} s\n{run.logs()}")
        run.wait_for_step(run.last_step() + 30)
        expect(len(run.evicted()) == 1, f"evicted: {run.evicted()}\n{run.logs()}")
        expect(run.last_members() == 2, f"{run.last_members()} members\n{run.logs()}")
        lab.lose_no_more("pair")
        run.wait_for("all three together", lambda: run.last_members() == 3)
        run.ends_well(digest)
        nothing_is_left(lab, (1, 2, 3))
        shutil.rmtree(run.run_dir)
    print(f"s from a cut to the next step: {spread(waits)}", flush=True)


def ended_after(lab, host):
    """The step after which the host's worker has left a view, from its log; None if it has not."""
    (log,) = glob.glob(lab.disk(host, "root/.cache/mayfly/servers/*/log"))
    with open(log, errors="replace") as file:
        found = re.findall(r"view \d+ ended after step (\d+)", file.read())
    return int(found[-1]) if found else None


def half():
    """The coordinator and h1 are on one side. The two members on the other side may commit the step
    in progress if they have all its sums, but no later step."""
    digest = LongRun.digest()
    lab = lab_with_program(4)
    run = LongRun(lab)
    lab.partition([0, 1], [2, 3])
    run.wait_for("steps of one half", lambda: run.last_members() == 1)
    alone = next(m["step"] for m in run.metrics() if m["members"] == 1)
    run.wait_for_step(alone + 30)
    for host in (2, 3):
        run.wait_for(f"h{host} to notice", lambda host=host: ended_after(lab, host) is not None)
        expect(ended_after(lab, host) <= alone, f"h{host} goes on to {ended_after(lab, host)}")
    lab.partition([0, 1, 2, 3])
    run.wait_for("both halves together", lambda: run.last_members() == 3)
    run.ends_well(digest)
    steps = sorted(m["step"] for m in run.metrics())
    expect(steps == list(range(1, 301)), f"not every step is on record once: {steps}")
    nothing_is_left(lab, (1, 2, 3))


def main():
    lack = lab_of_hosts.reason_to_skip() or network.reason_not_to_lose() or \
        network.reason_not_to_limit()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({"lossy": lossy, "pair_cut": pair_cut, "half": half})


if __name__ == "__main__":
    raise SystemExit(main())
