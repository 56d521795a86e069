"""Goal: a coordinator needs neither the data set nor a device for computing. The first worker
describes its data, and workers that join later must have the same.
Method: coordinator and workers have directories of their own, as on hosts without a shared disk.
The folder of the coordinator's --data does not exist. The oracle is the digest of an undisturbed
run.
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

STEPS = 24
DATA = ["--data", "procedural:256"]
JOB = SMALL_JOB + ["--steps", str(STEPS), "--checkpoint-every", "10"]
NOWHERE = "/nowhere/cifar"


def cluster(workers, extra=()):
    made = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + ["--data", NOWHERE] + list(extra))
    made.start_coordinator(workers)
    made.job = ["--threads", "1"]  # the coordinator sends all other settings to the workers
    return made


def remove(job):
    job.stop_hard()
    shutil.rmtree(job.folder)


def undisturbed(extra=()):
    run = Run(JOB + DATA + ["--workers", "1", "--threads", "1"] + list(extra))
    digest = run.finish()["final_digest"]
    run.remove()
    return digest


def status(job):
    done = subprocess.run([mayfly_run.BINARY, "status", "--json", "--run-dir", job.run_dir(),
                           "--token-file", job.token_file], capture_output=True, text=True,
                          timeout=60, check=False)
    expect(done.returncode == 0, done.stdout + done.stderr)
    return json.loads(done.stdout)


def told_by_the_first():
    job = cluster(2)
    expect(f"no data set '{NOWHERE}'" in job.coordinators[0].output(), "it does not say so")
    expect(status(job)["phase"] == "waiting", status(job))
    for _ in range(2):
        job.start_worker(job.endpoint(), extra=DATA)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    expect(summary["data"] == "procedural" and summary["steps"] == STEPS, summary)
    expect(os.listdir(os.path.join(job.run_dir(), "checkpoints")), "no model")
    (told,) = job.run.events("data")
    expect("procedural, 256 training images" in told["detail"], told)
    remove(job)


def epochs():
    """With --epochs the number of steps depends on the size of the data set, which the coordinator
    learns from the first worker."""
    job = cluster(1, ["--steps", "0", "--epochs", "2"])
    job.start_worker(job.endpoint(), extra=DATA)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(["--steps", "0", "--epochs", "2"]), summary)
    expect(abs(job.run.metrics()[-1]["epoch"] - 2) < 1e-9, job.run.metrics()[-1])
    remove(job)


def others_must_have_the_same():
    job = cluster(1, lingering(8))
    job.start_worker(job.endpoint(), extra=DATA)
    job.run.wait_for_step(8)
    other = job.start_worker(job.endpoint(), extra=["--data", "procedural:512"])
    expect(job.wait_for_end(other, "it is not refused") == 2, other.output())
    expect("data content: the job has" in other.output(), other.output())
    expect(job.run.finish()["final_digest"] == undisturbed(), "other bits")
    remove(job)


def nobody_has_it():
    """A worker without the data set is refused. The job is then stopped before any worker has
    joined."""
    job = cluster(1)
    worker = job.start_worker(job.endpoint(), extra=["--data", NOWHERE])
    expect(job.wait_for_end(worker, "it is not refused") == 2, worker.output())
    expect(f"no data set '{NOWHERE}'" in worker.output(), worker.output())
    expect(status(job)["phase"] == "waiting", status(job))
    job.coordinators[0].signal(signal.SIGTERM)
    code = job.run.wait()
    summary = job.run.summary()
    expect(code == 3 and summary["outcome"] == "stopped" and summary["steps"] == 0,
           f"{code} {summary}")
    remove(job)


def restarted():
    """A restarted coordinator reads the facts about the data from its run directory."""
    job = cluster(2, lingering(6))
    job.coordinators[0].kill()
    job.job = JOB + ["--data", NOWHERE] + lingering(6)
    job.start_coordinator(2)  # before any worker joined
    job.job = ["--threads", "1"]
    for _ in range(2):
        job.start_worker(job.endpoint(), extra=DATA)
    job.run.wait_for_step(6)
    job.coordinators[-1].kill()
    job.start_coordinator(2)
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    expect(summary["samples"] == sum(m["samples"] for m in job.run.metrics()), summary)
    again = subprocess.run([mayfly_run.BINARY, "coordinator", "--run-dir", job.run_dir("more"),
                            "--resume", job.run_dir(), *JOB, "--data", NOWHERE], timeout=60,
                           capture_output=True, text=True, check=False)
    expect(again.returncode == 0 and "nothing is left to do" in again.stdout + again.stderr,
           again.stdout + again.stderr)
    remove(job)


def not_for_local_workers():
    """If the coordinator starts its workers on its own host, which has no data set, the job is
    refused."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    done = subprocess.run([mayfly_run.BINARY, "train", "--run-dir", run_dir, "--data", NOWHERE],
                          capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr)
    expect(not os.path.exists(run_dir), "it has left a directory")
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({test.__name__: test for test in [
        told_by_the_first, epochs, others_must_have_the_same, nobody_has_it, restarted,
        not_for_local_workers]}))
