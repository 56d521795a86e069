"""Goal: with any schedule of kill -9 and joins at random moments, a job ends with the bits of the
undisturbed run.
Method: for each seed, a job of a random shape. Faults occur at random times (not at step
boundaries): kill -9 from outside, SIGSTOP for a while, SIGTERM, and joins through `mayfly scale`.
At least one worker always lives. The digest after every step must be the oracle's.

  MAYFLY_TEST_SEEDS=500 or FIRST:COUNT runs other seeds; the failing seed is printed.
"""
import signal
import sys
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Failure, Run, expect
from oracle import Oracle

STEPS = 40
oracle = {}


def undisturbed():
    if not oracle:
        oracle.update(Oracle(SMALL_JOB + ["--steps", str(STEPS), "--workers", "1", "--threads",
                                          "1"]).digests())
    return oracle


class Schedule:
    """The faults of one run, all drawn from the seed."""

    def __init__(self, seed, backend):
        random = mayfly_run.rng(seed)
        self.random = random
        self.workers = random.choice([2, 3, 3, 4, 4])
        self.threads = random.choice([1, 1, 2])
        self.backend = backend
        self.silence_ms = random.choice([300, 2000])  # with 300 a stopped worker is evicted
        self.faults = sorted(
            (random.uniform(0.0, 0.9),
             random.choice(["kill", "kill", "kill", "join", "drain", "stop"]))
            for _ in range(random.randint(2, 5)))
        self.observe = random.choice(["0", "8"])  # MiB; with 0, joining workers observe first

    def arguments(self):
        return SMALL_JOB + ["--steps", str(STEPS), "--workers", str(self.workers), "--threads",
                            str(self.threads), "--backend", self.backend, "--silence-max-ms",
                            str(self.silence_ms), "--observe-from-mib", self.observe]

    def __str__(self):
        return (f"{self.workers} workers, {self.threads} threads, {self.backend}, observe from "
                f"{self.observe} MiB, " +
                ", ".join(f"{kind}@{when:.2f}" for when, kind in self.faults))


def strike(run, kind, random, leaving):
    """`leaving`: workers that were asked to leave, or that were stopped for a while. The latter may
    have been evicted and end by themselves later. None of them counts as the worker that must
    live."""
    pids = run.worker_pids()
    if kind == "join":
        run.command("scale", str(len(pids) + 1))
        return
    if len(pids) < 2:
        return
    victim = random.choice(pids)
    if not set(pids) - {victim} - leaving:
        return
    if kind != "kill":
        leaving.add(victim)
    if kind == "stop":
        mayfly_run.kill(victim, signal.SIGSTOP)
        time.sleep(random.uniform(0.05, 0.6))
        mayfly_run.kill(victim, signal.SIGCONT)
    else:
        mayfly_run.kill(victim, signal.SIGTERM if kind == "drain" else signal.SIGKILL)


def play(seed, backend):
    schedule = Schedule(seed, backend)
    run = Run(schedule.arguments(), timeout=120)
    leaving = set()
    try:
        run.wait_for_step(1)
        for when, kind in schedule.faults:
            step = max(1, int(when * STEPS))
            run.wait_for_step(step)
            time.sleep(schedule.random.uniform(0, 0.02))  # the fault begins at any point of a step
            if run.process.poll() is None:
                strike(run, kind, schedule.random, leaving)
        summary = run.finish()
        by_step = mayfly_run.digests(run)
        for step, digest in undisturbed().items():
            expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
        expect(summary["steps"] == STEPS, f"{summary['steps']} steps")
    except Failure as failure:
        run.stop_hard()
        raise Failure(f"seed {seed} ({schedule}): {failure}\nkept in {run.folder}")
    run.remove()
    return summary["membership_changes"]


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "tcp"
    return mayfly_run.play_seeds(lambda seed: play(seed, backend), 50 if backend == "tcp" else 10,
                                 backend)


if __name__ == "__main__":
    raise SystemExit(main())
