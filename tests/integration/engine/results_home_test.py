"""Goal: the trained weights are in the coordinator's run directory, even if all workers' servers
are lost. If no worker has the state any more, a job goes on from its checkpoint there.
Method: coordinator and workers have directories of their own, as on hosts without a shared disk.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 60
JOB = SMALL_JOB + ["--threads", "1"]


def job_of(steps=STEPS, extra=()):
    return JOB + ["--steps", str(steps)] + list(extra)


def cluster(workers, steps=STEPS, extra=()):
    made = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), job_of(steps, extra))
    made.start_coordinator(workers)
    return made


def start_workers(job, count):
    return [job.start_worker(job.endpoint()) for _ in range(count)]


def undisturbed(steps=STEPS):
    return Oracle(job_of(steps, ["--workers", "1"])).final_digest


def events(job, kind):
    return [e for e in job.run.lines("events.jsonl") if e["kind"] == kind]


def checkpoints(job, name="run"):
    folder = os.path.join(job.run_dir(name), "checkpoints")
    return sorted((n for n in os.listdir(folder) if n.startswith("step-")),
                  key=lambda n: int(n[5:])) if os.path.isdir(folder) else []


def expect_here(job, step, name="run"):
    """Expects that the checkpoint can be used on the user's host, without any worker's disk."""
    for entry in os.listdir(job.folder):
        if entry.startswith("worker-") and os.path.isdir(os.path.join(job.folder, entry)):
            shutil.rmtree(os.path.join(job.folder, entry))
    expect(checkpoints(job, name)[-1:] == [f"step-{step}"], f"here: {checkpoints(job, name)}")
    out = os.path.join(job.folder, "exported.safetensors")
    done = subprocess.run([mayfly_run.BINARY, "export", job.run_dir(name), "--output", out],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0 and os.path.getsize(out) > 0, done.stdout + done.stderr)


def remove(job):
    job.stop_hard()
    shutil.rmtree(job.folder)


def done():
    job = cluster(2, extra=["--checkpoint-every", "20"])
    start_workers(job, 2)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    expect(os.path.normpath(os.path.join(os.getcwd(), summary["last_checkpoint"])) ==
           os.path.join(job.run_dir(), "checkpoints", f"step-{STEPS}"), summary)
    received = events(job, "checkpoint_received")
    expect([e["step"] for e in received] == [20, 40, STEPS], received)
    expect(all(e["bytes"] > 1e6 and e["host"] for e in received), received)
    expect_here(job, STEPS)
    remove(job)


def stopped():
    job = cluster(2, steps=100000)
    start_workers(job, 2)
    job.run.wait_for_step(10)
    job.run.process.terminate()
    code = job.run.wait()
    summary = job.run.summary()
    expect(code == 3 and summary["outcome"] == "stopped", f"{code} {summary}")
    expect_here(job, summary["steps"])
    remove(job)


def by_time():
    """Without --checkpoint-every checkpoints are written at intervals of time."""
    job = cluster(1, steps=100000, extra=["--checkpoint-minutes", "0.005", "--digest-every", "1"])
    start_workers(job, 1)
    job.wait_for(lambda: len(events(job, "checkpoint_received")) >= 3, "three checkpoints")
    remove(job)


def all_workers_lost():
    """All workers are lost. A new worker goes on from the newest checkpoint that the coordinator
    has received."""
    job = cluster(2, extra=["--checkpoint-every", "10"] + lingering(25))
    first = start_workers(job, 2)
    job.wait_for(lambda: 20 in [e["step"] for e in events(job, "checkpoint_received")], "step 20")
    for worker in first:  # at once, so that neither reports its last steps
        os.kill(worker.pid, signal.SIGSTOP)
    for worker in first:
        worker.kill()
    job.wait_for(lambda: len(events(job, "lost")) >= 2, "both are lost")
    start_workers(job, 1)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    # There is no such event if the checkpoint is of the last step that the members had reported.
    restarted = events(job, "restarted")
    expect(len(restarted) <= 1 and all(
        "resuming after" in e["detail"] and int(e["detail"].rsplit(" ", 1)[1]) >= 20
        for e in restarted), restarted)
    views = [e for e in events(job, "view") if len(e.get("members", [])) == 1]
    expect(views and views[-1]["committed"] >= 20, views)
    remove(job)


def rejoined_without_its_state():
    """With rounded sums an evicted worker discards its state before it joins again. If the other
    members are lost meanwhile, it goes on from the newest checkpoint, like a new worker."""
    job = cluster(2, extra=["--reduction", "fp32", "--checkpoint-every", "10",
                            "--min-workers", "1"] + lingering(25))
    stays, goes = start_workers(job, 2)
    job.wait_for(lambda: 20 in [e["step"] for e in events(job, "checkpoint_received")], "step 20")
    stays.signal(signal.SIGSTOP)
    job.wait_for(lambda: events(job, "lost") or events(job, "evicted"), "it is evicted")
    goes.kill()
    stays.signal(signal.SIGCONT)
    job.run.finish()
    views = [e for e in events(job, "view") if len(e.get("members", [])) == 1]
    expect(views[-1]["committed"] >= 20, views)
    remove(job)


def last_notice():
    """Both workers are told to leave at the same time. No other worker has the state, so they write
    checkpoints until they end. A new worker goes on from the last one."""
    steps = STEPS + 20
    job = cluster(2, steps, lingering(25, 41, 57))
    first = start_workers(job, 2)
    job.run.wait_for_step(10)
    for worker in first:
        os.kill(worker.pid, signal.SIGTERM)
    job.wait_for(lambda: events(job, "checkpoint_received"), "a checkpoint")
    saved = events(job, "checkpoint_received")[0]["step"]
    expect(events(job, "leave_deferred") and saved < steps, saved)
    for worker in first:
        worker.kill()
    job.wait_for(lambda: events(job, "lost"), "the last one is lost")
    start_workers(job, 1)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(steps), summary)
    views = [e for e in events(job, "view") if "members" in e]
    expect(views[-1]["committed"] >= saved > 0, f"{saved} {views}")
    remove(job)


def last_of_two():
    """If only one worker has the state after a loss, it writes a checkpoint, so that the state is
    not lost with this worker."""
    steps = STEPS + 20
    job = cluster(2, steps, lingering(25, 41, 57))
    first = start_workers(job, 2)
    job.run.wait_for_step(10)
    first[0].kill()
    job.wait_for(lambda: events(job, "checkpoint_received"), "a checkpoint")
    saved = events(job, "checkpoint_received")[0]["step"]
    expect(10 <= saved < steps, saved)
    first[1].kill()
    job.wait_for(lambda: len(events(job, "lost")) == 2, "the last one is lost")
    start_workers(job, 1)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(steps), summary)
    views = [e for e in events(job, "view") if "members" in e]
    expect(views[-1]["committed"] >= saved, f"{saved} {views}")
    remove(job)


def stopped_after_a_loss():
    """A job that is stopped while it repeats lost steps ends at the step that it has reached."""
    job = cluster(2, steps=100000,
                  extra=["--checkpoint-every", "20", "--digest-every", "1"] + lingering(20))
    first = start_workers(job, 2)
    job.run.wait_for_step(38)
    for worker in first:
        worker.kill()
    job.wait_for(lambda: len(events(job, "lost")) >= 2, "both are lost")
    before = job.run.last_step()
    expect(before < 40, f"the next checkpoint is not written yet: step {before}")
    start_workers(job, 1)
    job.wait_for(lambda: events(job, "joined")[2:], "the next one has joined")
    job.run.process.terminate()
    code = job.run.wait()
    summary = job.run.summary()
    expect(code == 3 and summary["outcome"] == "stopped", f"{code} {summary}")
    steps = summary["steps"]
    expect(20 <= steps < before, f"{before} {summary}")
    metrics = {m["step"]: m for m in job.run.lines("metrics.jsonl")}
    expect(summary["final_digest"] == metrics[steps]["digest"], f"{metrics[steps]} {summary}")
    expect(summary["samples"] == sum(metrics[s]["samples"] for s in range(1, steps + 1)), summary)
    restarted = events(job, "restarted")
    expect([e["step"] for e in restarted] == [20], restarted)
    # The worker killed first may have reported a step that the other had not committed. Then the
    # view between the two kills has already computed it again.
    undone = restarted[0]["undone_steps"]
    expect(undone in (before - 21, before - 20), f"{before} {restarted}")
    expect(summary["undone_samples"] == sum(metrics[s]["samples"]
                                            for s in range(21, 21 + undone)), summary)
    expect_here(job, steps)
    remove(job)


def foreign_checkpoints():
    """A worker with a checkpoint of another job is refused once, and the job is not disturbed."""
    other = Run(job_of(8, ["--workers", "1", "--seed", "5"]))
    other.finish()
    beyond = Run(job_of(STEPS + 40, ["--workers", "1"]))
    beyond.finish()
    job = cluster(1, extra=["--checkpoint-every", "10"] + lingering(12))
    start_workers(job, 1)
    job.run.wait_for_step(12)
    for run, why in ((other, "of a job with other settings"),
                     (beyond, f"is of step {STEPS + 40}, the job's last is {STEPS}")):
        worker = job.start_worker(job.endpoint(), extra=["--resume", run.run_dir])
        expect(job.wait_for_end(worker, "the worker is refused") == 2, worker.output())
        lines = [line for line in worker.output().splitlines() if "error" in line]
        expect(len(lines) == 1 and why in lines[0], worker.output())
        expect(why in job.coordinators[0].output(), job.coordinators[0].output())
        run.remove()
    summary = job.run.finish()
    expect(not events(job, "evicted"), events(job, "evicted"))
    expect(summary["final_digest"] == undisturbed(), summary)
    remove(job)


def later_checkpoint():
    """A worker with a checkpoint of a step that the job has not reached yet is refused once, and
    the job is not disturbed. In one case the sums are exact, in the other rounded."""
    for reduction in ("exact", "fp32"):
        settings = ["--reduction", reduction, "--checkpoint-every", "6"] + lingering(12)
        ahead = Run(job_of(STEPS, ["--workers", "1", "--keep-checkpoints", "20"] + settings))
        digest = ahead.finish()["final_digest"]
        job = cluster(1, extra=settings)
        start_workers(job, 1)
        job.run.wait_for_step(12)
        worker = job.start_worker(
            job.endpoint(), extra=["--resume", ahead.run_dir + f"/checkpoints/step-{STEPS - 6}"])
        expect(job.wait_for_end(worker, "the worker is refused") == 2, worker.output())
        lines = [line for line in worker.output().splitlines() if "error" in line]
        expect(len(lines) == 1 and f"is of step {STEPS - 6}, the job is at step 1" in lines[0],
               worker.output())
        summary = job.run.finish()
        expect(not events(job, "evicted") and summary["final_digest"] == digest, summary)
        remove(job)
        ahead.remove()


def coordinator_restarted():
    """Workers send their last checkpoint to the restarted coordinator."""
    job = cluster(2, extra=["--checkpoint-every", "10"] + lingering(15))
    start_workers(job, 2)
    job.run.wait_for_step(15)
    job.coordinators[0].kill()
    time.sleep(0.3)
    job.start_coordinator(2)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    expect_here(job, STEPS)
    remove(job)


def member_logs(job):
    """The lines of each member's log."""
    folder = os.path.join(job.run_dir(), "logs")
    told = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("member-"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                told.append(f.read().splitlines())
    return told


def logs():
    """The coordinator's run directory has the log lines of all workers, also of a worker whose host
    is lost. It has each line once, although the coordinator is killed and started again."""
    job = cluster(2, extra=lingering(30))
    workers = start_workers(job, 2)
    job.run.wait_for_step(30)
    deadline = time.monotonic() + 30  # lines are sent once a second
    while sum(any("joined " in line for line in lines) for lines in member_logs(job)) < 2:
        expect(time.monotonic() < deadline, f"not here: {member_logs(job)}")
        time.sleep(0.05)
    workers[0].kill()
    job.coordinators[-1].kill()
    job.start_coordinator(2)
    job.run.finish()

    told = sorted(member_logs(job), key=lambda lines: "leaving" in lines[-1])
    expect(len(told) == 2, f"a file for each: {told}")
    lost, other = told
    expect(any("joined " in line for line in lost), f"of the lost one: {lost}")
    expect(not any("leaving" in line for line in lost), lost)
    expect(sum("leaving: the job is over" in line for line in other) == 1, other)
    expect(sum("joined " in line for line in other) == 1, other)
    remove(job)


def not_taken():
    """If the coordinator cannot write the last checkpoint it reports that, and the job fails."""
    job = cluster(1, extra=lingering(10))
    start_workers(job, 1)
    job.run.wait_for_step(10)
    shutil.rmtree(os.path.join(job.run_dir(), "checkpoints"), ignore_errors=True)
    with open(os.path.join(job.run_dir(), "checkpoints"), "w") as f:
        f.write("in the way")
    code = job.run.wait()
    summary = job.run.summary()
    expect(code == 1 and summary["outcome"] == "failed", f"{code} {summary}")
    expect(f"the checkpoint of step {STEPS} did not reach" in summary["detail"], summary)
    expect(checkpoints(job, "worker-0") == [f"step-{STEPS}"], "not even on the worker")
    remove(job)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "done": done, "stopped": stopped, "by_time": by_time,
        "all_workers_lost": all_workers_lost, "last_notice": last_notice,
        "rejoined_without_its_state": rejoined_without_its_state,
        "last_of_two": last_of_two,
        "stopped_after_a_loss": stopped_after_a_loss,
        "foreign_checkpoints": foreign_checkpoints, "later_checkpoint": later_checkpoint,
        "coordinator_restarted": coordinator_restarted, "not_taken": not_taken,
        "logs": logs}))
