"""Goal: a worker needs only the coordinator's address and the job's token; it receives the settings
of the job, and the checkpoint from which the job is resumed, from the coordinator.
Method: coordinator and workers in directories of their own, as on hosts without a shared disk. The
oracle is the digest of an undisturbed run.
"""
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect

STEPS = 24
JOB = SMALL_JOB + ["--steps", str(STEPS), "--momentum", "0.8", "--label-smoothing", "0.1",
                   "--checkpoint-every", "10"]


def cluster(workers, extra=()):
    """A cluster whose workers are started without settings of the job."""
    made = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + list(extra))
    made.start_coordinator(workers)
    made.job = ["--threads", "1"]
    return made


def remove(job):
    job.stop_hard()
    shutil.rmtree(job.folder)


def undisturbed(extra=(), workers=1):
    run = Run(JOB + ["--workers", str(workers), "--threads", "1"] + list(extra))
    digest = run.finish()["final_digest"]
    run.remove()
    return digest


def told_by_the_coordinator():
    job = cluster(2)
    workers = [job.start_worker(job.endpoint()) for _ in range(2)]
    summary = job.run.finish()
    expect(summary["final_digest"] == undisturbed(), summary)
    for worker in workers:
        expect(job.wait_for_end(worker, "a worker stays") == 0, worker.output())
    remove(job)


def own_words_win():
    """A worker's own flags have priority over the job's settings. If a flag differs from a setting
    that must be equal on all workers, the worker is refused, and the error names the setting."""
    job = cluster(1)
    other = job.start_worker(job.endpoint(), extra=["--momentum", "0.5"])
    expect(job.wait_for_end(other, "it is not refused") == 2, other.output())
    expect("momentum: the job has 0.8, this worker has 0.5" in other.output(), other.output())
    job.start_worker(job.endpoint(), extra=["--data", "procedural:512"])
    expect(job.run.finish()["final_digest"] == undisturbed(), "other bits")
    remove(job)


def flags_beat_the_environment():
    """Flags have priority also in the processes that a command starts with its environment."""
    wanted = undisturbed()
    os.environ.update(MAYFLY_LR="0.2", MAYFLY_THREADS="2", MAYFLY_RUN_DIR="/nonexistent/run")
    run = Run(JOB + ["--workers", "2", "--threads", "1"])
    expect(run.finish()["final_digest"] == wanted, "other bits")
    run.remove()
    servers = cluster(2, ["--threads", "1", "--cloud-provider", "local"])
    expect(servers.run.finish()["final_digest"] == wanted, "other bits on servers")
    remove(servers)


def servers_are_told():
    """A parameter server and its workers get the number of slices per step from the coordinator."""
    servers = ["--sync", "bsp", "--ps", "1", "--shards", "2"]
    job = cluster(2, servers)
    job.start_server(job.endpoint(), 0)
    for _ in range(2):
        job.start_worker(job.endpoint())
    expect(job.run.finish()["final_digest"] == undisturbed(servers, workers=2), "other bits")
    remove(job)


def resumed_by_the_coordinator():
    """A job resumes a checkpoint that only the coordinator has: one of an earlier job, and one of
    step 0 made from an imported weight file."""
    first = Run(JOB + ["--workers", "1", "--threads", "1", "--steps", "10"])
    first.finish()
    whole = Run(JOB + ["--workers", "1", "--threads", "1", "--resume", first.run_dir])
    wanted = whole.finish()["final_digest"]
    job = cluster(2, ["--resume", first.run_dir])
    for _ in range(2):
        job.start_worker(job.endpoint())
    summary = job.run.finish()
    expect(summary["final_digest"] == wanted, f"{summary}, wanted {wanted}")
    expect([m["step"] for m in job.run.metrics()] == list(range(11, STEPS + 1)), "other steps")
    remove(job)

    weights = os.path.join(first.folder, "weights.safetensors")
    imported = os.path.join(first.folder, "imported")
    for words in (["export", first.run_dir, "--output", weights],
                  ["import", weights, "--model", "resnet20", "--output", imported]):
        subprocess.run([mayfly_run.BINARY, *words], check=True, stdout=subprocess.DEVNULL)
    started = ["--resume", imported]
    job = cluster(1, started)
    job.start_worker(job.endpoint())
    expect(job.run.finish()["final_digest"] == undisturbed(started), "other bits from step 0")
    remove(job)
    first.remove()
    whole.remove()


def wrong_ones_are_told():
    """A worker without a token, or with the token of another job, ends with one line, and the job
    is not disturbed."""
    job = cluster(1)
    done = subprocess.run([mayfly_run.BINARY, "worker", "--coordinator", job.endpoint()],
                          capture_output=True, text=True, timeout=60, check=False, cwd=job.folder)
    expect(done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr)
    expect("needs the job's token: --token-file" in done.stderr, done.stderr)
    wrong = os.path.join(job.folder, "wrong")
    subprocess.run([mayfly_run.BINARY, "token", wrong], check=True)
    done = subprocess.run([mayfly_run.BINARY, "worker", "--coordinator", job.endpoint(),
                           "--token-file", wrong], capture_output=True, text=True, timeout=60,
                          check=False, cwd=job.folder)
    expect(done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr)
    expect(f"the coordinator at {job.endpoint()} refuses this worker: wrong token" in done.stderr,
           done.stderr)
    expect(not os.path.exists(os.path.join(job.folder, "runs")), "it has left a directory")
    job.start_worker(job.endpoint())
    expect(job.run.finish()["steps"] == STEPS, "the job was disturbed")
    remove(job)


def patience_ends():
    """A worker that finds no coordinator tries for no longer than --coordinator-timeout."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    token = os.path.join(folder, "token")
    subprocess.run([mayfly_run.BINARY, "token", token], check=True)
    done = subprocess.run([mayfly_run.BINARY, "worker", "--coordinator", "127.0.0.1:1",
                           "--token-file", token, "--coordinator-timeout", "0.5"],
                          capture_output=True, text=True, timeout=40, check=False, cwd=folder)
    expect(done.returncode == 1 and "127.0.0.1:1" in done.stderr, f"{done.returncode}: {done}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({test.__name__: test for test in [
        told_by_the_coordinator, own_words_win, flags_beat_the_environment, servers_are_told,
        resumed_by_the_coordinator, wrong_ones_are_told, patience_ends]}))
