"""Goal: the records divide the time of each step correctly into activities, whose times add up to
that of the step, and name the member for which the other members waited.
Method: four workers of one thread. Reading images, preparing images, computing or sending is slowed
down, on one worker or on all; `mayfly profile --json` must name it. Reading is hidden as long as it
takes less time than computing, so it is made many times as long, which suffices on a busy machine,
too.
"""
import json
import re
import subprocess

import mayfly_run
from mayfly_run import Run, SMALL_JOB, expect

STEPS = 24
SLOWED = 2  # the number of the worker that is slowed down if one is
JOB = SMALL_JOB + ["--workers", "4", "--threads", "1", "--steps", str(STEPS), "--no-rebalance",
                   "--no-evaluate"]
KINDS = ("compute_ms", "fetch_ms", "prep_ms", "exchange_ms", "update_ms")


def divided(run):
    """(duration by the reporter's clock, division) of each step whose record has a division."""
    rows = {row["step"]: row for row in run.metrics()}
    return [(1e3 * rows[step - 1]["samples"] / rows[step - 1]["images_per_second"], row["before"])
            for step, row in rows.items() if "before" in row]


def profile_of(run):
    shown = subprocess.run([mayfly_run.BINARY, "profile", run.run_dir, "--json"],
                           capture_output=True, text=True, timeout=60)
    return json.loads(shown.stdout)


def in_memory(run):
    """The factor by which a step would be shorter with all images in memory."""
    shown = subprocess.run([mayfly_run.BINARY, "profile", run.run_dir, "--json", "--what-if",
                            "cached=100%"], capture_output=True, text=True, timeout=60)
    expect(shown.returncode == 0, shown.stderr)
    as_recorded, cached = json.loads(shown.stdout)["answers"]
    return as_recorded["step_ms"] / cached["step_ms"]


def job(inject):
    """Runs a job; returns its profile, after checking it against the records, the member id of the
    worker SLOWED, and the final digest."""
    run = Run(JOB + ["--inject", inject])
    digest = run.finish()["final_digest"]
    steps = divided(run)
    expect(len(steps) > STEPS / 2, f"{len(steps)} of {STEPS} steps are divided")
    for duration, times in steps:
        total = sum(times[kind] for kind in KINDS)
        expect(abs(total - duration) < 0.001 * duration + 0.01, f"{total} of {duration}: {times}")
        expect(all(times[kind] >= 0 for kind in KINDS), f"{times}")
    profile = profile_of(run)
    expect(profile["steps"] == len(steps), f"{profile}")
    for kind in KINDS:
        mean = sum(times[kind] for _, times in steps) / len(steps)
        expect(abs(profile["step"][kind] - mean) < 0.001 * mean + 0.001, f"{profile}")
    profile["in_memory"] = in_memory(run)
    with open(f"{run.run_dir}/logs/worker-{SLOWED}.log") as log:
        slowed = int(re.search(r"as member (\d+)", log.read()).group(1))
    run.remove()
    return profile, slowed, digest


def dominates(profile, kind):
    """Expects that most of a step's time is of this kind."""
    step = profile["step"]
    expect(step[kind] > sum(step.values()) / 2, f"{kind} of {step}")


def before_the_exchange(kind, effect):
    """Runs a job with the effect on one worker, then a job with the effect on all, and expects the
    same bits. Returns the profile of the second job."""
    profile, slowed, one = job(f"{effect},worker={SLOWED}")
    dominates(profile, kind)
    last = max(profile["slowest"], key=lambda member: member["steps"])
    expect(last["member"] == slowed and last["steps"] > 0.8 * profile["steps"], f"{profile}")
    expect(last[kind] > sum(last[other] for other in KINDS if other != kind), f"{last}")
    profile, _, everywhere = job(effect)
    dominates(profile, kind)
    expect(one == everywhere, f"{one} {everywhere}")
    return profile


def slow_worker():
    before_the_exchange("compute_ms", "slow=24x")


def slow_fetch():
    profile = before_the_exchange("fetch_ms", "fetch=500ms")
    expect(profile["in_memory"] > 1.5, f"{profile}")


def slow_storage():
    # A microbatch has 4 images of 3 kB.
    before_the_exchange("fetch_ms", "storage=40kB/s")


def slow_prep():
    before_the_exchange("prep_ms", "prep=100ms")


def late_messages():
    profile, slowed, one = job(f"delay=80ms,worker={SLOWED}")
    dominates(profile, "exchange_ms")
    late = max(profile["held_up"], key=lambda member: member["steps"])
    expect(late["member"] == slowed and late["steps"] > 0.8 * profile["steps"], f"{profile}")
    expect(late["exchange_ms"] > 0.7 * profile["step"]["exchange_ms"], f"{profile}")
    profile, _, everywhere = job("delay=80ms")
    dominates(profile, "exchange_ms")
    # If all members are equally late, none waits for another.
    held = sum(member["steps"] * member["exchange_ms"] for member in profile["held_up"])
    expect(held < 0.5 * profile["steps"] * profile["step"]["exchange_ms"], f"{profile}")
    expect(one == everywhere, f"{one} {everywhere}")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "slow_worker": slow_worker, "slow_fetch": slow_fetch, "slow_storage": slow_storage,
        "slow_prep": slow_prep, "late_messages": late_messages}))
