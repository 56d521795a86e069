"""Goal: 64 worker processes on one machine form a group, survive the loss of three and admit two
more; the weights are those of an undisturbed run of one worker.
Method: real processes on loopback, many more than there are cores, so the limits for silence are
seconds. Two of the three workers are killed at the same moment, the third while the view changes or
soon after. The test prints the times of the recovery.
"""
import time

import mayfly_run
from mayfly_run import Run, expect

WORKERS, LOST, JOINING = 64, 3, 2
STEPS = 24
SAMPLES_PER_STEP = 72  # in microbatches of one sample: each worker has one, some have two
JOB = ["--model", "resnet20", "--data", "procedural:512", "--global-batch", str(SAMPLES_PER_STEP),
       "--microbatch", "1", "--lr", "0.05", "--seed", "7", "--no-evaluate", "--no-tensorboard",
       "--digest-every", "1", "--steps", str(STEPS), "--threads", "1", "--no-rebalance",
       "--silence-max-ms", "10000", "--starved-max-ms", "20000", "--hang-max-ms", "60000"]


def undisturbed():
    _, by_step = mayfly_run.train(JOB + ["--workers", "1"])
    return by_step


def resident_mb(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024


def sixty_four():
    oracle = undisturbed()
    run = Run(JOB + ["--workers", str(WORKERS)], timeout=240)
    run.wait_for_step(1)
    print(f"the first step is done {time.monotonic() - run.started:.1f} s after the start")
    run.wait_for_step(2)
    expect(run.last_members() == WORKERS, f"{run.last_members()} members\n{run.logs(5)}")
    pids = run.worker_pids()
    print(f"{len(pids)} workers hold {resident_mb(pids):.0f} MB")
    for number in (0, 17):
        mayfly_run.kill(pids[number])
    run.wait_for_step(min(run.last_step() + 1, STEPS - 12))
    mayfly_run.kill(pids[40])
    done = run.command("scale", str(WORKERS - LOST + JOINING))
    expect(done.returncode == 0, f"scale: {done.stdout}{done.stderr}")
    summary = run.finish()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps")
    by_step = mayfly_run.digests(run)
    for step, digest in oracle.items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    events = run.lines("events.jsonl")
    lost = [e for e in events if e["kind"] in ("lost", "evicted")]
    expect(len(lost) == LOST, f"three were killed, {len(lost)} went: {lost}")
    joined = [e for e in events if e["kind"] == "join"]
    expect(len(joined) == JOINING, f"{len(joined)} of {JOINING} joined before the end")
    expect(run.last_members() == WORKERS - LOST + JOINING, f"{run.last_members()} at the end")
    for recovery in summary["recoveries"]:
        print(recovery)
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"sixty_four": sixty_four}))
