"""Goal: a worker that lives through 100 re-formations in 2,000 steps holds no more memory,
descriptors or threads at the end than early on, and stays below 400 MB.
Method: local worker 0 survives while others are killed and started 56 times; its /proc entries
are read after the first changes and before the last step.
"""
import os

import mayfly_run
from mayfly_run import Run, expect

STEPS, PAIRS = 2000, 56


def usage(pid):
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return {"rss_mb": int(fields["VmRSS"].split()[0]) / 1024, "threads": int(fields["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def data_arguments():
    folder = os.environ.get("MAYFLY_CIFAR10_DIR")
    return ["--data", folder] if folder else []


def no_growth():
    spacing = (STEPS - 100) // PAIRS
    chaos = ",".join(f"kill@step={50 + i * spacing}:worker={i + 1},"
                     f"join@step={50 + i * spacing + spacing // 2}" for i in range(PAIRS))
    run = Run(mayfly_run.SMALL_JOB + data_arguments() + [
        "--steps", str(STEPS), "--workers", "2", "--threads", "1", "--digest-every", "100",
        "--chaos", chaos], timeout=580)
    run.wait_for_step(300)
    oldest = run.worker_pids()[0]
    early = usage(oldest)
    run.wait_for_step(STEPS - 20)
    late = usage(oldest)
    summary = run.finish()
    print(f"early {early}, late {late}, {summary['membership_changes']} changes of view")
    expect(summary["membership_changes"] >= 100, f"only {summary['membership_changes']} changes")
    expect(late["rss_mb"] < 400, f"{late['rss_mb']:.0f} MB resident")
    expect(late["rss_mb"] < early["rss_mb"] + 16, f"memory grew from {early} to {late}")
    expect(late["threads"] <= early["threads"] + 1, f"threads grew from {early} to {late}")
    expect(late["descriptors"] <= early["descriptors"] + 4, f"descriptors grew: {early}, {late}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"no_growth": no_growth}))
