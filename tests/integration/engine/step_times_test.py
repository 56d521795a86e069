"""Goal: the records tell what the time of each step was spent on, charged to the member that the
others waited for; the kinds add up to the step.
Method: three workers of one thread. One is slowed down, or what all of them send leaves later.
"""
import json
import re
import subprocess
import statistics

import mayfly_run
from mayfly_run import Run, SMALL_JOB, expect

STEPS = 60
JOB = SMALL_JOB + ["--workers", "3", "--threads", "1", "--steps", str(STEPS), "--no-rebalance",
                   "--no-evaluate"]
KINDS = ("compute_ms", "data_ms", "exchange_ms", "update_ms")


def divided(run):
    """(duration by the reporter's clock, division) of each step that is divided."""
    rows = {row["step"]: row for row in run.metrics()}
    return [(1e3 * rows[step - 1]["samples"] / rows[step - 1]["images_per_second"], row["before"])
            for step, row in rows.items() if "before" in row]


def job(*inject):
    run = Run(JOB + (["--inject", ";".join(inject)] if inject else []))
    summary = run.finish()
    steps = divided(run)
    expect(len(steps) > STEPS / 2, f"{len(steps)} of {STEPS} steps are divided")
    for duration, times in steps:
        total = sum(times[kind] for kind in KINDS)
        expect(abs(total - duration) < 0.001 * duration + 0.01, f"{total} of {duration}: {times}")
        expect(all(times[kind] >= 0 for kind in KINDS), f"{times}")
    return run, summary, steps


def median(steps, kind):
    return statistics.median(times[kind] for _, times in steps)


def slow_worker():
    run, summary, steps = job("slow=6x,worker=1")
    with open(run.run_dir + "/logs/worker-1.log") as log:
        slow = int(re.search(r"as member (\d+)", log.read()).group(1))
    blamed = [times for _, times in steps if times["slowest"] == slow]
    expect(len(blamed) > 0.8 * len(steps), f"{len(blamed)} of {len(steps)} steps name it")
    expect(median(steps, "compute_ms") > 5 * median(steps, "exchange_ms"), f"{steps[-5:]}")
    shown = subprocess.run([mayfly_run.BINARY, "profile", run.run_dir, "--json"],
                           capture_output=True, text=True, timeout=60)
    profile = json.loads(shown.stdout)
    expect(profile["steps"] == len(steps), shown.stdout)
    most = max(profile["slowest"], key=lambda one: one["steps"])
    expect(most["member"] == slow and most["steps"] == len(blamed), shown.stdout)
    mean = statistics.mean(times["compute_ms"] for _, times in steps)
    expect(abs(profile["step"]["compute_ms"] - mean) < 0.001 * mean, shown.stdout)
    run.remove()


def late_messages():
    run, _, steps = job("delay=30ms")
    expect(median(steps, "exchange_ms") > 30, f"{steps[-5:]}")
    expect(median(steps, "exchange_ms") > 2 * median(steps, "compute_ms"), f"{steps[-5:]}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"slow_worker": slow_worker, "late_messages": late_messages}))
