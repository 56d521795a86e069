"""Goal: a worker that survives 100 re-formations in 2,000 steps has no more memory, descriptors or
threads at the end than after the first ones, and stays below 400 MB.
Method: one worker survives while the other is killed and replaced 56 times; its /proc entries are
read after the first changes and at the end.
"""
import os
import time

import mayfly_run
from mayfly_run import Run, expect

STEPS, PAIRS = 2000, 56
LONG_ENOUGH = 1_000_000  # steps: the test stops the job after the last change
STOPPED_BY_USER = 3


def usage(pid):
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return {"rss_mb": int(fields["VmRSS"].split()[0]) / 1024, "threads": int(fields["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def data_arguments():
    folder = os.environ.get("MAYFLY_CIFAR10_DIR")
    return ["--data", folder] if folder else []


def wait_for_members(run, count):
    deadline = time.monotonic() + 60
    while run.last_members() != count:
        expect(time.monotonic() < deadline, f"not {count} members within a minute\n{run.logs()}")
        time.sleep(0.005)


def replace_the_other(run, survivor):
    for pid in run.worker_pids():
        if pid != survivor:
            mayfly_run.kill(pid)
    wait_for_members(run, 1)
    run.command("scale", "2")
    wait_for_members(run, 2)


def no_growth():
    run = Run(mayfly_run.SMALL_JOB + data_arguments() + [
        "--steps", str(LONG_ENOUGH), "--workers", "2", "--threads", "1", "--digest-every", "100"],
        timeout=580)
    wait_for_members(run, 2)
    oldest = run.worker_pids()[0]
    early = None
    for pair in range(PAIRS):
        replace_the_other(run, oldest)
        if pair == PAIRS // 8:
            early = usage(oldest)
    run.wait_for_step(STEPS)
    late = usage(oldest)
    run.command("stop")
    expect(run.wait() == STOPPED_BY_USER, f"the job did not stop as it was told\n{run.logs()}")
    summary = run.summary()
    print(f"early {early}, late {late}, {summary['membership_changes']} changes of view")
    expect(summary["steps"] >= STEPS, f"only {summary['steps']} steps")
    expect(summary["membership_changes"] >= 100, f"only {summary['membership_changes']} changes")
    expect(late["rss_mb"] < 400, f"{late['rss_mb']:.0f} MB resident")
    expect(late["rss_mb"] < early["rss_mb"] + 16, f"memory grew from {early} to {late}")
    expect(late["threads"] <= early["threads"] + 1, f"threads grew from {early} to {late}")
    expect(late["descriptors"] <= early["descriptors"] + 4, f"descriptors grew: {early}, {late}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"no_growth": no_growth}))
