"""Goal: workers that run parameter servers may be lost at random moments, in any way, as long as no
two neighbours are lost; the job has the result of an undisturbed one.
Method: for each seed, a job in bsp, asp or both with four workers, each of which runs a server, and
with followers. One or two workers that are not neighbours are killed, stopped until they are
evicted, or told to leave, and other workers join. Every sample must have been used exactly once,
and bsp must end with the bits of an undisturbed run whose servers are separate processes.

  MAYFLY_TEST_SEEDS=200 or FIRST:COUNT runs other seeds; the failing seed is printed.
"""
import signal
import sys
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Failure, Run, expect, kill, lingering
from oracle import Oracle
from sample_ledger import sample_hash

STEPS = 60
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--quiet", "--workers", "4", "--slices",
                   "4"]
KINDS = ["kill", "kill", "kill", "stop", "leave"]


def undisturbed():
    """The final digest of bsp with separate servers, and the hash of the samples, which is the same
    for every policy."""
    run = Oracle(JOB + ["--sync", "bsp", "--ps", "2"])
    return run.summary["final_digest"], sample_hash(run.metrics)


class Schedule:
    """The faults of one run, all drawn from the seed."""

    def __init__(self, seed):
        random = mayfly_run.rng(seed)
        self.phases = random.choice(["bsp", "bsp", "asp", "bsp:50%,asp"])
        self.shards = random.choice(["1", "1", "2"])
        first = random.randrange(4)
        victims = random.choice([[first], [first, (first + 2) % 4]])
        self.faults = sorted((random.uniform(0.05, 0.7), random.choice(KINDS), victim)
                             for victim in victims)
        self.joins = random.choice([[], [random.randint(10, 40)]])
        self.pauses = [random.uniform(0, 0.05) for _ in self.faults]

    def __str__(self):
        return f"{self.phases}, {self.shards} shards, joins {self.joins}, " + ", ".join(
            f"{kind}@{when:.2f}:worker={victim}" for when, kind, victim in self.faults)


def strike(kind, pid):
    if kind == "kill":
        kill(pid)
    elif kind == "leave":
        kill(pid, signal.SIGTERM)
    else:
        kill(pid, signal.SIGSTOP)


def check(run, schedule):
    bits, samples = undisturbed()
    summary = run.finish()
    done = [e["detail"] for e in run.lines("events.jsonl") if e["kind"] == "shard_done"]
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps")
    expect(sample_hash(run.metrics()) == samples, f"samples lost or repeated; {done}")
    if schedule.phases == "bsp" and done and all(" 0 mixed" in text for text in done):
        expect(summary["final_digest"] == bits, "other bits")
    return summary["membership_changes"]


def play(seed):
    schedule = Schedule(seed)
    undisturbed()
    run = Run(JOB + ["--phases", schedule.phases, "--ps", "colocated", "--ps-replicas", "1",
                     "--shards", schedule.shards, "--chaos",
                     ",".join(f"join@step={step}" for step in schedule.joins)] + lingering(1))
    stopped = []
    try:
        run.wait_for_step(1)
        workers = run.worker_pids()[:4]  # in the order of their numbers
        is_over = run.last_step() == STEPS
        expect(len(workers) == 4 or is_over, f"{len(workers)} workers")
        for (when, kind, victim), pause in zip([] if is_over else schedule.faults, schedule.pauses):
            run.wait_for_step(max(1, int(when * STEPS)))
            time.sleep(pause)  # the fault begins at any point of the step
            strike(kind, workers[victim])
            stopped += [workers[victim]] if kind == "stop" else []
        changes = check(run, schedule)
    except Failure as failure:
        raise Failure(f"seed {seed} ({schedule}): {failure}\n{run.logs()}") from failure
    finally:
        for pid in stopped:
            kill(pid, signal.SIGCONT)
    run.remove()
    return changes


if __name__ == "__main__":
    sys.exit(mayfly_run.play_seeds(play, 8, "workers that carry servers"))
