"""Goal: a running job can be watched, scaled, drained, paused and stopped. With too few workers it
ends with exit code 4.
Method: the operator's commands against a running local job.
"""
import json
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect

LONG = ["--steps", "100000", "--threads", "1", "--inject", "slow=12x"]  # workers mostly sleep


def status_of(run):
    done = run.command("status", "--json")
    expect(done.returncode == 0, f"status failed: {done.stderr}")
    return json.loads(done.stdout)


def wait_for_members(run, count):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        began = time.monotonic()
        active = [m for m in status_of(run)["members"] if m["phase"] == "active"]
        if len(active) == count:
            return active
        mayfly_run.look_again(began, 0.05)
    raise mayfly_run.Failure(f"never {count} members\n{run.logs()}")


def scale_drain_stop():
    run = Run(SMALL_JOB + LONG + ["--workers", "2"])
    run.wait_for_step(2)
    wait_for_members(run, 2)
    expect(run.command("scale", "4").returncode == 0, "scale up failed")
    members = wait_for_members(run, 4)
    drained = members[0]["id"]
    expect(run.command("drain", str(drained)).returncode == 0, "drain failed")
    members = wait_for_members(run, 3)
    expect(drained not in [m["id"] for m in members], "the drained worker is still there")
    expect(run.command("scale", "1").returncode == 0, "scale down failed")
    wait_for_members(run, 1)
    expect(run.command("stop").returncode == 0, "stop failed")
    code = run.wait()
    expect(code == 3, f"exit code {code}\n{run.logs()}")
    summary = run.summary()
    expect(summary["last_checkpoint"], "no checkpoint was written on stop")
    planned = [r for r in summary["recoveries"] if r["cause"] in ("join", "leave")]
    expect(all(r["redone_microbatches"] == 0 for r in planned), "a planned change redid work")
    run.remove()


def pause_and_resume():
    run = Run(SMALL_JOB + LONG + ["--workers", "2"])
    run.wait_for_step(2)
    expect(run.command("pause").returncode == 0, "pause failed")
    deadline = time.monotonic() + 30
    while status_of(run)["phase"] != "paused" and time.monotonic() < deadline:
        time.sleep(0.05)
    step = status_of(run)["committed"]
    time.sleep(0.3)
    expect(status_of(run)["committed"] == step, "steps were committed while paused")
    expect(run.command("resume").returncode == 0, "resume failed")
    run.wait_for_step(step + 2)
    run.command("stop")
    expect(run.wait() == 3, "stop after pause failed")
    run.remove()


def dead_workers_are_replaced():
    """Up to --max-restarts dead workers are replaced, but no workers that were drained or that
    --chaos killed."""
    run = Run(SMALL_JOB + LONG + ["--workers", "2", "--max-restarts", "2", "--chaos",
                                  "kill@step=8:worker=1"])
    run.wait_for_step(8)
    wait_for_members(run, 1)
    expect(run.command("scale", "2").returncode == 0, "scale failed")
    for _ in range(2):
        members = wait_for_members(run, 2)
        mayfly_run.kill(members[0]["pid"])
        others = {members[0]["id"], members[1]["id"]}
        deadline = time.monotonic() + 60
        while {m["id"] for m in wait_for_members(run, 2)} <= others:
            expect(time.monotonic() < deadline, "the dead one is not replaced")
    restarts = [e["detail"] for e in run.lines("events.jsonl") if e["kind"] == "restart"]
    expect(len(restarts) == 2 and restarts[1].endswith("restart 2 of 2"), f"{restarts}")
    mayfly_run.kill(wait_for_members(run, 2)[0]["pid"])
    wait_for_members(run, 1)
    run.command("stop")
    expect(run.wait() == 3, "stop failed")
    restarts = [e for e in run.lines("events.jsonl") if e["kind"] == "restart"]
    expect(len(restarts) == 2, f"{restarts}")
    run.remove()


def scale_right_after_a_loss():
    """`scale` does not count a killed worker, even while the kernel still frees its memory."""
    run = Run(SMALL_JOB + LONG + ["--workers", "2", "--resident-mib", "512"])
    run.wait_for_step(2)
    for _ in range(3):
        mayfly_run.kill(run.worker_pids()[0])
        wait_for_members(run, 1)
        expect(run.command("scale", "2").returncode == 0, "scale failed")
        wait_for_members(run, 2)
        while run.last_members() != 2:  # both must have the state before the next kill
            time.sleep(0.05)
    run.command("stop")
    code = run.wait()
    expect(code == 3, f"exit code {code} after stop\n{run.logs()}")
    run.remove()


def too_few_workers():
    run = Run(SMALL_JOB + LONG + ["--workers", "2", "--min-workers", "2",
                                  "--min-workers-timeout", "1"])
    run.wait_for_step(2)
    mayfly_run.kill(run.worker_pids()[0])
    code = run.wait()
    expect(code == 4, f"exit code {code}, not 4\n{run.logs()}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "scale_drain_stop": scale_drain_stop, "pause_and_resume": pause_and_resume,
        "dead_workers_are_replaced": dead_workers_are_replaced,
        "scale_right_after_a_loss": scale_right_after_a_loss,
        "too_few_workers": too_few_workers}))
