"""Goal: the weights after step k are the same bits for any number of workers, compute threads,
transport and launcher, and after stop and resume.
Method: the digest of the state after every step, compared with that of one worker with one thread.
"""
import os
import subprocess
import tempfile

import mayfly_run
from mayfly_run import SMALL_JOB, Failure, Run, expect

STEPS = ["--steps", "30"]
reference = {}


def oracle():
    if not reference:
        _, by_step = mayfly_run.train(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"])
        reference.update(by_step)
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
                ["--workers", "3", "--threads", "1", "--checkpoint-every", "10"])
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


def mpirun():
    probe = subprocess.run(["sh", "-c", "command -v mpirun"], capture_output=True)
    if probe.returncode != 0:
        print("skipped: mpirun is not installed")
        raise SystemExit(mayfly_run.SKIP)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-np", "4",
         mayfly_run.BINARY, "train", "--run-dir", folder + "/run"] + SMALL_JOB + STEPS +
        ["--threads", "1"],
        env=environment, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
    run = Run.__new__(Run)
    run.run_dir = folder + "/run"
    by_step = mayfly_run.digests(run)
    if by_step != oracle():
        raise Failure(f"mpirun: other digests ({len(by_step)})\n{done.stdout}\n{done.stderr}")
    members = {m["members"] for m in run.metrics()}
    expect(members == {4}, f"the job had {members} members")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "workers": workers, "gloo": gloo, "threads": threads, "resume": resume, "mpirun": mpirun}))
