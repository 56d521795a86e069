"""Goal: a worker that becomes slow gets less work within seconds, and its former share when it
recovers. The result has the same bits.
Method: one of two workers is stopped and continued ten times a second, each time too briefly to be
evicted for silence. `mayfly status` shows each worker's share. The oracle is a run of one worker.
"""
import json
import signal
import threading
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect

MICROBATCHES = 8
JOB = SMALL_JOB + ["--global-batch", "32", "--microbatch", "4", "--lr-schedule", "constant",
                   "--warmup-epochs", "0", "--threads", "1", "--silence-max-ms", "5000"]
PATIENCE = 120  # seconds; against hanging only


class Throttle:
    """Stops a process for most of every tenth of a second."""

    def __init__(self, pid, stopped_ms):
        self.pid, self.stopped = pid, stopped_ms / 1000
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            mayfly_run.kill(self.pid, signal.SIGSTOP)
            time.sleep(self.stopped)
            mayfly_run.kill(self.pid, signal.SIGCONT)
            self.over.wait(0.1 - self.stopped)

    def end(self):
        self.over.set()
        self.thread.join()


def share_of(run, pid):
    answer = run.command("status", "--json")
    if answer.returncode != 0:
        return None
    for member in json.loads(answer.stdout)["members"]:
        if member["pid"] == pid and member["microbatches"] > 0:
            return member["microbatches"]
    return None


def wait_for_share(run, pid, fits, what):
    begin = time.monotonic()
    share = None
    while time.monotonic() - begin < PATIENCE:
        share = share_of(run, pid) or share
        if share is not None and fits(share):
            return time.monotonic() - begin
        time.sleep(0.05)
    raise mayfly_run.Failure(f"{what}: it still has {share} of {MICROBATCHES}\n{run.logs()}")


def work_follows_speed():
    run = Run(JOB + ["--steps", "1000000", "--workers", "2"], timeout=4 * PATIENCE)
    run.wait_for_step(20)
    pid = run.worker_pids()[0]
    throttle = Throttle(pid, 80)
    less = wait_for_share(run, pid, lambda share: share <= 2, "slowed to a fifth")
    throttle.end()
    back = wait_for_share(run, pid, lambda share: share >= 3, "as fast as the other again")
    expect(run.command("stop").returncode == 0, "it can be stopped")
    expect(run.wait() == 3, "stopped by the user")
    changes = [e for e in run.lines("events.jsonl") if e["kind"] == "rebalance"]
    expect(len(changes) >= 2, f"{len(changes)} rebalances on record")
    lost = [e for e in run.lines("events.jsonl") if e["kind"] in ("lost", "evicted")]
    expect(not lost, f"nobody was lost: {lost}")
    by_step = mayfly_run.digests(run)
    steps = max(by_step)
    _, oracle = mayfly_run.train(JOB + ["--steps", str(steps), "--workers", "1"],
                                 timeout=4 * PATIENCE)
    wrong = [step for step in oracle if by_step.get(step) != oracle[step]]
    expect(not wrong, f"step {wrong[:1]} differs from the undisturbed run")
    print(f"less after {less:.1f} s, back after {back:.1f} s, {len(changes)} rebalances, "
          f"{steps} steps with the oracle's bits")
    run.remove()


def a_straggler_is_asked_to_leave():
    run = Run(JOB + ["--steps", "1000000", "--workers", "2", "--evict-stragglers", "3",
                     "--evict-stragglers-after", "3"], timeout=2 * PATIENCE)
    run.wait_for_step(20)
    throttle = Throttle(run.worker_pids()[1], 90)
    begin = time.monotonic()
    while run.last_members() != 1 and time.monotonic() - begin < PATIENCE:
        time.sleep(0.05)
    throttle.end()
    expect(run.last_members() == 1, f"the straggler is still there\n{run.logs()}")
    expect(run.command("stop").returncode == 0, "it can be stopped")
    expect(run.wait() == 3, "stopped by the user")
    kinds = [e["kind"] for e in run.lines("events.jsonl")]
    expect("straggler" in kinds and "left" in kinds, f"on record: {kinds}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"work_follows_speed": work_follows_speed,
                                      "a_straggler_is_asked_to_leave":
                                          a_straggler_is_asked_to_leave}))
