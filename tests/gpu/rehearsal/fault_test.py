"""Goal: with an unusable GPU a job does not start, and one line tells the user what to do. A GPU
that fails later ends its worker, and the job goes on.
Method: the program runs beside modules of this folder, which imitate GPU and NCCL on the CPU and
can simulate faults.
usage: fault_test.py FOLDER-WITH-MODULES CASE
"""
import contextlib
import os
import re
import sys

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect
from train_test import GPU, JOB, beside_modules, oracle, pretended

FAULTS = {"no driver": "no NVIDIA driver on this machine",
          "old driver": "the NVIDIA driver is too old: it supports CUDA 12.8, this build needs 13",
          "broken": "the NVIDIA driver finds no usable GPU: system not yet initialized",
          "no device": "the NVIDIA driver finds no GPU",
          "old device": "GPU 0 is too old: compute capability 7.0, needed is 8.0",
          "old cudnn": "cuDNN is too old: 9.7.0 was found, needed is"}


@contextlib.contextmanager
def module_replaced(name):
    """Removes a module until the end of the block, which must put another file at the path that it
    gets."""
    module = os.path.join(os.path.dirname(mayfly_run.BINARY), name)
    whole = os.readlink(module)
    os.unlink(module)
    try:
        yield module
    finally:
        os.unlink(module)
        os.symlink(whole, module)


def refusals():
    """Faults that the coordinator detects by itself."""
    for fault, words in FAULTS.items():
        with pretended(REHEARSAL_GPU=fault):
            mayfly_run.expect_refused(JOB + GPU + ["--workers", "2"],
                                      [([], "device cuda cannot be used: " + words)])
    with pretended(REHEARSAL_GPU="two kinds"):
        job = JOB + ["--workers", "1"]
        said = "device cuda cannot be used: this machine has several kinds of GPU (the CPU, for a"
        mayfly_run.expect_refused(job + ["--device", "cuda"], [([], said)])
        for options in (["cuda:1"], ["cuda", "--reduction", "fp32"]):
            run = Run(job + ["--steps", "2", "--device"] + options)
            run.finish()
            run.remove()
    with pretended(REHEARSAL_NCCL="old"):
        mayfly_run.expect_refused(JOB + GPU, [([], "NCCL is too old: 2.26.0 was found")])
    mayfly_run.expect_refused(JOB + ["--device", "cuda:9"], [([], "there is no GPU 9")])
    with module_replaced("libmayfly_cuda.so") as module:
        said = "device cuda cannot be used: "
        mayfly_run.expect_refused(JOB + GPU, [([], said + "there is no libmayfly_cuda.so")])
        with open(module, "wb") as f:
            f.write(b"torn")
        mayfly_run.expect_refused(JOB + GPU, [([], said + module)])


def other_build():
    """A module that was built from other sources is not used. In this one every call except the one
    for its build ends the process."""
    for name, said in (("cuda", "device cuda cannot be used: "),
                       ("nccl", "the nccl transport cannot be used: ")):
        with module_replaced(f"libmayfly_{name}.so") as module:
            os.symlink(os.path.join(MODULES, "other_build.so"), module)
            mayfly_run.expect_refused(JOB + GPU, [
                ([], f"{said}{module} is of another build than the program")])
            mayfly_run.expect_refused(JOB + GPU, [([], "build both from the same sources")])


def little_memory():
    """Only a worker detects a lack of memory, when it builds its engine. A job with
    microbatches of the suggested size runs."""
    job = SMALL_JOB[:]
    job[job.index("--microbatch") + 1] = "16"
    job += ["--steps", "2"] + GPU
    fits = set()
    for count in (1, 3):
        with pretended(REHEARSAL_GPU_MIB="10"):
            run = Run(job + ["--workers", str(count)])
        code, lines = run.wait(), run.output().splitlines()
        expect(code == 2, f"{count} workers: exit code {code}\n{run.logs()}")
        expect(len(lines) == 1, f"{count} workers: said {lines}")
        found = re.fullmatch(r"mayfly: device cuda cannot be used: resnet20 with a microbatch of "
                             r"16 needs \d+ MiB \(\d+ of them for sums of gradients\) of GPU "
                             r"memory, 10 MiB are free; a microbatch of (\d+) would fit "
                             r"\(log: .*/logs/worker-\d\.log\)", lines[0])
        expect(found is not None, f"{count} workers: said {lines}")
        fits.add(int(found.group(1)))
        summary = run.summary()
        expect(summary["outcome"] == "failed" and summary["steps"] == 0, f"{summary}")
        run.remove()
    expect(len(fits) == 1 and 1 <= min(fits) < 16, f"microbatches of {fits} would fit")
    job[job.index("--microbatch") + 1] = str(max(n for n in (1, 2, 4, 8) if n <= min(fits)))
    with pretended(REHEARSAL_GPU_MIB="10"):
        run = Run(job + ["--workers", "2"])
    run.finish()
    run.remove()


def failure():
    """The GPU of one of three workers fails in a step, as after an illegal access."""
    wanted = oracle()
    trigger = os.path.join(os.path.dirname(mayfly_run.BINARY), "fails")
    with open(trigger, "w"):
        pass
    with pretended(REHEARSAL_GPU_FAILS=trigger):
        run = Run(JOB + GPU + ["--workers", "3"])
    run.finish()
    expect(not os.path.exists(trigger), "no GPU has failed")
    expect("this worker's GPU has failed: computing: an illegal memory" in run.logs(tail=10000),
           f"nobody says why\n{run.logs()}")
    expect(mayfly_run.digests(run) == wanted, f"other bits\n{run.logs()}")
    expect(run.last_members() == 2, f"{run.last_members()} members at the end")
    run.remove()


if __name__ == "__main__":
    MODULES = os.path.abspath(sys.argv.pop(1))
    mayfly_run.BINARY = beside_modules(MODULES)
    sys.exit(mayfly_run.main({"refusals": refusals, "other_build": other_build,
                              "little_memory": little_memory, "failure": failure}))
