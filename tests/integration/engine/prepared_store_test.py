"""Goal: jobs of one host that share prepared images (--prepared-store) have the same bits as
without it, even if one of them is stopped, killed, or has another batch size. A job does not read
images again that another job has prepared.
Method: simultaneous jobs on tiny JPEGs with the same samples and different initial weights.
"""
import os
import shutil
import signal
import tempfile

import mayfly_run
from image_folder_test import JOB, image_folder
from mayfly_run import Run, expect, expect_refused, lingering
from store_test import bytes_of_a_microbatch, stored

RUNTIME = tempfile.mkdtemp(prefix="mayfly-test-")
STEPS = 120


def job_of(folder, seed, *words):
    return [*JOB, "--data", folder, "--steps", str(STEPS), "--workers", "1", "--threads", "1",
            "--data-seed", "5", "--seed", str(seed), *words]


def digest_of(folder, seed, *words):
    run = Run(job_of(folder, seed, *words))
    digest = run.finish()["final_digest"]
    run.remove()
    return digest


def shared():
    """A second job uses the images that a first job has prepared, from its first step to its last.
    The first job is slow in its last steps, so it still runs."""
    folder = image_folder()
    store = ["--prepared-store", "64MiB"]
    last = STEPS - 16
    first = Run(job_of(folder, 1, *store, "--inject", f"slow=40x,from=step{last + 1}"))
    first.wait_for_step(last)
    second = Run(job_of(folder, 2, *store))
    digests = second.finish()["final_digest"], first.finish()["final_digest"]
    read, whole = bytes_of_a_microbatch(second), 4 * stored(folder) / 17
    expect(read < 0.5 * whole, f"{read} of {whole} bytes of a microbatch")
    expect("jobs of this host with the same samples share up to" in second.logs(), second.logs())
    expect(digests == (digest_of(folder, 2), digest_of(folder, 1)), digests)
    expect(os.listdir(RUNTIME) == [] or os.listdir(os.path.join(RUNTIME, "mayfly")) == [],
           "something stays behind")
    first.remove()
    second.remove()
    shutil.rmtree(folder)


def undisturbed():
    """One of the other jobs is stopped and another one killed during a step; one has another batch
    size."""
    folder = image_folder()
    store = ["--prepared-store", "200kB"]  # room for a small part of the images
    others = [Run(job_of(folder, seed, *store, *lingering(20))) for seed in (1, 2)]
    for run in others:
        run.wait_for_step(20)
    batches = ["--global-batch", "16", "--microbatch", "8"]
    running = {(3, ""): Run(job_of(folder, 3, *store)),
               (4, "batches"): Run(job_of(folder, 4, *store, *batches))}
    [stopped] = others[0].worker_pids()
    os.kill(stopped, signal.SIGSTOP)
    for pid in others[1].worker_pids():
        os.kill(pid, signal.SIGKILL)
    for (seed, own), run in running.items():
        digest = run.finish()["final_digest"]
        expect(digest == digest_of(folder, seed, *(batches if own else [])), f"{seed} {own}")
        run.remove()
    os.kill(stopped, signal.SIGCONT)
    expect(others[0].finish()["final_digest"] == digest_of(folder, 1), "the one that was stopped")
    expect(others[1].wait() == 1, others[1].output())
    for run in others:
        run.remove()
    shutil.rmtree(folder)


def refused():
    folder = image_folder()
    job = job_of(folder, 1)
    expect_refused(job, [(["--prepared-store", "1GiBs"], "such as 1GiB"),
                         (["--prepared-store", "1TiB"], "such as 1GiB")])
    for size, words in (("511GiB", "memory for prepared samples of 511.0 GiB is more than"),
                        ("1kB", "room for 4 prepared samples of")):
        run = Run(job + ["--prepared-store", size])
        expect(run.wait() == 2 and words in run.output(), run.output())
        run.remove()
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ["XDG_RUNTIME_DIR"] = RUNTIME
    code = mayfly_run.main({"shared": shared, "undisturbed": undisturbed, "refused": refused})
    shutil.rmtree(RUNTIME)
    raise SystemExit(code)
