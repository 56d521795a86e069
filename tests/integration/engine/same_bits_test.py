"""Goal: the weights after step k are the same bits for any number of workers, compute threads,
transport and launcher, and after stop and resume.
Method: the digest of the state after every step, compared with that of one worker with one thread.
"""
import os
import os
import subprocess

import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = ["--steps", "30"]
reference = {}


def oracle():
    if not reference:
        alone = Oracle(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"])
        reference.update(alone.digests())
        expect(len(reference) == 30, f"the oracle has {len(reference)} of 30 digests")
    return reference


def compare(name, args):
    _, by_step = mayfly_run.train(SMALL_JOB + STEPS + args)
    for step, digest in oracle().items():
        expect(by_step.get(step) == digest, f"{name}: step {step} has {by_step.get(step)}, "
                                            f"one worker has {digest}")


def workers():
    for count in (2, 3, 4, 8):
        compare(f"{count} workers", ["--workers", str(count), "--threads", "1"])


def gloo():
    for count in (1, 2, 3):
        compare(f"gloo, {count} workers",
                ["--workers", str(count), "--threads", "1", "--backend", "gloo"])


def threads():
    compare("1 worker, 2 threads", ["--workers", "1", "--threads", "2"])
    compare("2 workers, 2 threads", ["--workers", "2", "--threads", "2"])
    compare("gloo, 2 workers, 2 threads",
            ["--workers", "2", "--threads", "2", "--backend", "gloo"])


def resume():
    first = Run(SMALL_JOB + STEPS +
                ["--workers", "3", "--threads", "1", "--checkpoint-every", "10"] + lingering(14))
    first.wait_for_step(14)
    first.process.send_signal(2)  # Ctrl-C
    code = first.wait()
    expect(code == 3, f"stopping returned {code}, not 3\n{first.logs()}")
    stopped_at = first.summary()["steps"]
    expect(14 <= stopped_at < 30, f"stopped at step {stopped_at}")
    _, by_step = mayfly_run.train(SMALL_JOB + STEPS + [
        "--workers", "2", "--threads", "2", "--resume", first.run_dir])
    expect(set(by_step) == set(range(stopped_at + 1, 31)), f"resumed steps are {sorted(by_step)}")
    for step, digest in by_step.items():
        expect(digest == oracle()[step], f"step {step} after --resume has other bits")
    from_ten = os.path.join(first.run_dir, "checkpoints", "step-10")
    _, by_step = mayfly_run.train(SMALL_JOB + STEPS + ["--workers", "1", "--resume", from_ten])
    expect(by_step[30] == oracle()[30], "resumed from step 10: other bits")
    first.remove()


def init_from():
    """--init-from starts all workers, also workers that join later, with the same weights."""
    first = Run(SMALL_JOB + ["--steps", "4", "--workers", "1", "--threads", "1"])
    first.finish()
    weights = first.folder + "/weights.safetensors"
    done = subprocess.run([mayfly_run.BINARY, "export", first.run_dir, "--output", weights],
                          capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, f"export: {done.stderr}")
    # A copy, because the run directory changes while other jobs start from it.
    job = SMALL_JOB + STEPS + ["--threads", "1", "--init-from"]
    _, alone = mayfly_run.train(job + [weights, "--workers", "1"])
    expect(len(alone) == 30 and alone[1] != oracle()[1], "the weights had no effect")
    _, four = mayfly_run.train(job + [weights, "--workers", "4"])
    expect(four == alone, "4 workers have other bits than one")
    _, churn = mayfly_run.train(job + [first.run_dir, "--workers", "2", "--chaos",
                                       "kill@step=5:worker=1,join@step=8"])
    expect(churn == alone, "a lost and a new worker changed the bits")
    first.remove()


def mpirun_job(ranks, killed_rank=None):
    """Runs under mpirun, kills a rank on the way, and compares every digest."""
    mpi_launch.skip_without_mpirun()
    run = mpi_launch.start(ranks, SMALL_JOB + STEPS + ["--threads", "1"] + lingering(3))
    if killed_rank is not None:
        run.wait_for_step(3)
        mpi_launch.kill_rank(run, killed_rank)
    run.wait()
    by_step = mayfly_run.digests(run)
    expect(by_step == oracle(), f"other digests ({len(by_step)})\n{run.logs()}")
    members = {m["members"] for m in run.metrics()}
    run.remove()
    return members


def mpirun():
    members = mpirun_job(4)
    expect(members == {4}, f"the job had {members} members")


def mpirun_loses_rank_0():
    """The job survives the loss of rank 0, although it started the coordinator."""
    members = mpirun_job(3, killed_rank=0)
    expect(members == {3, 2}, f"the job had {members} members")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "workers": workers, "gloo": gloo, "threads": threads, "resume": resume,
        "init_from": init_from, "mpirun": mpirun,
        "mpirun_loses_rank_0": mpirun_loses_rank_0}))
