"""Goal: a coordinator that was killed at any moment, or whose host lost power, is started again and
goes on with its job from the data on the disk.
Method: coordinator and workers are separate processes. The test kills a process at that moment, or
cuts its files to what they would then contain. The weights must be those of an undisturbed run.
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 60
JOB = SMALL_JOB + ["--threads", "1", "--steps", str(STEPS)]
SLOW = lingering(8, 25)


def cluster(extra=(), folder=None):
    return Cluster(folder or tempfile.mkdtemp(prefix="mayfly-test-"), JOB + list(extra))


def start_workers(job, count):
    return [job.start_worker(job.endpoint()) for _ in range(count)]


def undisturbed():
    return Oracle(JOB + ["--workers", "1"]).final_digest


def finish(job, keep=False):
    code = job.wait_for_end(job.coordinators[-1], "the job does not end")
    expect(code == 0, f"the coordinator ended with {code}\n{job.logs()}")
    summary = job.run.summary()
    expect(summary["steps"] == STEPS and summary["final_digest"] == undisturbed(),
           f"{summary}\n{job.logs()}")
    if not keep:
        remove(job)
    return summary


def remove(job):
    job.stop_hard()
    shutil.rmtree(job.folder)


def views_of(job):
    return [event for event in job.run.lines("events.jsonl")
            if event["kind"] == "view" and "committed" in event]


def run_until(step):
    """Returns a job of the same length, which was stopped after this step."""
    run = Run(JOB + SLOW + ["--workers", "1", "--checkpoint-every", "5"])
    run.wait_for_step(step)
    run.command("stop")
    run.wait()
    return run


def before_its_files():
    """The coordinator was killed while it opened the data set of a new job: only the view log
    exists."""
    job = cluster()
    os.makedirs(job.run_dir())
    with open(os.path.join(job.run_dir(), "view.log"), "w", encoding="utf-8"):
        pass
    job.start_coordinator(2)
    start_workers(job, 2)
    finish(job)


def resumed_before_the_first_view():
    """The coordinator is killed before the first view of a job that resumes a checkpoint. Its
    workers do not have the checkpoint."""
    old = run_until(12)
    job = cluster(["--checkpoint-every", "20"])
    job.start_coordinator(2, extra=["--resume", old.run_dir])
    job.coordinators[-1].kill()
    job.start_coordinator(2, extra=["--resume", old.run_dir])
    start_workers(job, 2)
    finish_from(job, old)


def finish_from(job, old):
    job.run.wait_for_step(STEPS)
    first = views_of(job)[0]["committed"]
    expect(first >= 10, f"the job began at step {first}\n{job.logs()}")
    finish(job)
    old.remove()


def resumed_from_what_is_gone():
    """The job resumes a checkpoint of its own run directory. When its coordinator is started again,
    newer checkpoints have replaced that one."""
    old = run_until(12)
    folder = os.path.dirname(old.run_dir)
    job = cluster(["--checkpoint-every", "5", "--keep-checkpoints", "1"] + lingering(40), folder)
    job.start_coordinator(2, extra=["--resume", old.run_dir])
    began = sorted(os.listdir(job.run.path("checkpoints")))
    start_workers(job, 2)
    job.run.wait_for_step(41)
    job.wait_for(lambda: not set(began) & set(os.listdir(job.run.path("checkpoints"))) - {"latest"},
                 f"{began} are not removed")
    job.coordinators[-1].kill()
    job.start_coordinator(2)
    finish(job)


def replaced_in_what_is_resumed():
    """Workers that join after the resumed checkpoint was removed receive the state from members."""
    old = run_until(12)
    run = Run(JOB + ["--resume", old.run_dir, "--workers", "2", "--checkpoint-every", "2",
                     "--keep-checkpoints", "1", "--chaos",
                     "kill@step=30:worker=1,join@step=31"] + lingering(31),
              run_dir=old.run_dir)
    summary = run.finish()
    expect(summary["final_digest"] == undisturbed(), f"{summary}\n{run.logs()}")
    joined = [e for e in run.events("view") if len(e.get("members", [])) == 2]
    expect(len(joined) >= 2, f"{joined}\n{run.logs()}")
    old.remove()


def records_behind_the_checkpoint():
    """All processes are lost. The disk has a checkpoint, but not the records of the last steps."""
    job = cluster(["--checkpoint-every", "10"] + SLOW)
    job.start_coordinator(2)
    start_workers(job, 2)
    job.run.wait_for_step(22)
    job.wait_for(lambda: any(event["step"] == 20 for event in
                             job.run.events("checkpoint_received")), "no checkpoint")
    for process in job.coordinators + job.workers:
        process.kill()
    for name in ("metrics.jsonl", "events.jsonl"):
        path = job.run.path(name)
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines[:15] if name == "metrics.jsonl" else
                            [line for line in lines if '"step":20' not in line])
    job.start_coordinator(2)
    start_workers(job, 2)
    job.run.wait_for_step(STEPS)
    expect(views_of(job)[-1]["committed"] >= 20, f"{views_of(job)}\n{job.logs()}")
    finish(job)


def committed_by(job):
    """The last committed step that the coordinator knows; -1 if it does not answer."""
    done = job.run.command("status", "--json", "--token-file", job.token_file)
    return json.loads(done.stdout)["committed"] if done.returncode == 0 else -1


def lose_all(job, workers, losses):
    """Kills the only workers. At first it stops them, so that none trains on alone and none reports
    a step that was not known before. Returns the last step that was."""
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    before = committed_by(job)
    for worker in workers:
        worker.kill()
    job.wait_for(lambda: len(job.run.events("lost")) == losses, "all are lost")
    return before


def falls_back_twice():
    """All workers are lost, and others continue from the checkpoint of step 10. The coordinator is
    killed while they repeat steps. Then they are lost, too."""
    job = cluster(["--checkpoint-every", "10"] + lingering(11, 27, 43))
    job.start_coordinator(2)
    workers = start_workers(job, 2)
    job.run.wait_for_step(16)
    job.wait_for(lambda: job.run.events("checkpoint_received"), "no checkpoint")
    reached = [lose_all(job, workers, 2)]
    workers = start_workers(job, 2)
    job.wait_for(lambda: 12 <= committed_by(job) < reached[0], "no step is repeated")
    job.coordinators[-1].kill()
    job.start_coordinator(2)
    job.wait_for(lambda: len(job.run.events("returned")) == 2, "the workers do not return")
    job.wait_for(lambda: committed_by(job) >= 13, "no further step is repeated")
    reached.append(lose_all(job, workers, 4))
    start_workers(job, 1)
    summary = finish(job, keep=True)
    restarts = [event for event in job.run.events("restarted") if "undone_steps" in event]
    expect([event["step"] for event in restarts] == [10, 10], f"{restarts}\n{job.logs()}")
    for event, before in zip(restarts, reached):
        # A record of the last step may have been under way when its worker was stopped.
        expect(before - 11 <= event["undone_steps"] <= before - 9, f"{before}: {event}")
    batch = summary["samples"] // STEPS
    expect(summary["samples"] == STEPS * batch and summary["undone_samples"] ==
           batch * sum(event["undone_steps"] for event in restarts), f"{summary}\n{restarts}")
    steps = [(m["step"], m["samples"], m["sample_hash"], m["digest"]) for m in job.run.metrics()]
    expect(steps == [(m["step"], m["samples"], m["sample_hash"], m["digest"])
                     for m in Oracle(JOB + ["--workers", "1"]).metrics], steps)
    remove(job)


def replaced_checkpoint():
    """The coordinator was killed while it replaced the latest checkpoint by another one of the same
    step."""
    old = run_until(12)
    checkpoints = old.path("checkpoints")
    with open(os.path.join(checkpoints, "latest"), encoding="utf-8") as file:
        latest = file.read().strip()
    os.rename(os.path.join(checkpoints, latest), os.path.join(checkpoints, f".{latest}.old"))
    done = subprocess.run([mayfly_run.BINARY, "digest", old.run_dir], capture_output=True,
                          text=True, timeout=60, check=False)
    expect(done.returncode == 0, done.stderr)
    old.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "before_its_files": before_its_files,
        "resumed_before_the_first_view": resumed_before_the_first_view,
        "resumed_from_what_is_gone": resumed_from_what_is_gone,
        "replaced_in_what_is_resumed": replaced_in_what_is_resumed,
        "records_behind_the_checkpoint": records_behind_the_checkpoint,
        "falls_back_twice": falls_back_twice,
        "replaced_checkpoint": replaced_checkpoint}))
