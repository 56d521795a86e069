"""Goal: any process may die at any moment around a job's end. When the job reports that it is done,
the last weights are in the coordinator's run directory, with the bits of the undisturbed run.
Method: the coordinator and the workers have directories of their own. Around the last step, workers
and the coordinator are killed at random moments and replaced. Then the directories of the workers
are deleted, and the weights in the coordinator's directory are exported.
"""
import os
import shutil
import subprocess
import tempfile
import time

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Failure, expect, lingering
from oracle import Oracle

STEPS = 30
JOB = SMALL_JOB + ["--threads", "1", "--steps", str(STEPS), "--checkpoint-every", "10"]
SLOW = lingering(STEPS - 8)  # so that the test has time to act around the end


def undisturbed():
    return Oracle(JOB + ["--workers", "1"]).final_digest


def wait_while_saving(job):
    """Waits until the checkpoint of the last step exists, perhaps not as the latest one yet, or
    until the job has ended."""
    folder = job.run.path("checkpoints", f"step-{STEPS}")
    while job.coordinators[-1].alive() and not os.path.exists(folder):
        time.sleep(0.0005)


def kill_some(job, random):
    """Kills processes up to three times, or until the job has ended."""
    for _ in range(random.randint(1, 3)):
        time.sleep(random.uniform(0, 0.12))
        is_saving = random.random() < 0.25
        if is_saving:
            wait_while_saving(job)
        if not job.coordinators[-1].alive():
            return
        if is_saving or random.random() < 0.25:
            job.coordinators[-1].kill()
            if os.path.exists(job.run.path("summary.json")):
                return  # the coordinator had completed the job
            time.sleep(random.uniform(0, 0.3))
            job.start_coordinator(2)
        else:
            living = [w for w in job.workers if w.alive()]
            if living:
                random.choice(living).kill()
                job.start_worker(job.endpoint())


def play(seed):
    random = mayfly_run.rng(seed)
    job = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + SLOW, timeout=100)
    job.start_coordinator(2)
    for _ in range(2):
        job.start_worker(job.endpoint())
    job.run.wait_for_step(random.choice([STEPS - 6, STEPS - 2, STEPS - 1, STEPS]))
    try:
        kill_some(job, random)
    except Failure:
        # Allowed only if the job had ended.
        expect(not job.coordinators[-1].alive(), f"seed {seed}: {job.logs()}")
    job.wait_for(lambda: not job.coordinators[-1].alive(), f"seed {seed}: the job does not end")
    expect(os.path.exists(job.run.path("summary.json")), f"seed {seed}: {job.logs()}")
    summary = job.run.summary()
    expect(summary["outcome"] == "done", f"seed {seed}: {summary}")
    changes = len(summary["recoveries"])
    expect(summary["final_digest"] == undisturbed(), f"seed {seed}: {summary}")
    job.stop_hard()
    for entry in os.listdir(job.folder):
        if entry.startswith("worker-") and not entry.endswith(".txt"):
            shutil.rmtree(os.path.join(job.folder, entry))
    done = subprocess.run([mayfly_run.BINARY, "digest", job.run_dir()], capture_output=True,
                          text=True, timeout=60, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0 and undisturbed() in done.stdout,
           f"seed {seed}: {done.stdout}{done.stderr}")
    shutil.rmtree(job.folder)
    return changes


if __name__ == "__main__":
    raise SystemExit(mayfly_run.play_seeds(play, 12, "kills around the end"))
