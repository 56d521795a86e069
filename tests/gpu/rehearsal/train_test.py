"""Goal: a job with --device cuda --backend nccl has the bits of one worker after any losses and
joins.
Method: the program runs beside modules of this folder, which imitate GPU and NCCL on the CPU. All
code above the engine and the device group is the product's. The digest of the state after every
step is compared with that of one worker on the CPU.
usage: train_test.py FOLDER-WITH-MODULES CASE
"""
import atexit
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 40
JOB = SMALL_JOB + ["--steps", str(STEPS)]
GPU = ["--device", "cuda:0", "--backend", "nccl"]
WITHOUT_MODULES = mayfly_run.BINARY
MODULES = ("libmayfly_cuda.so", "libmayfly_nccl.so")


def beside_modules(modules):
    """Makes a folder with the program, its benchmarks and the modules that both load; returns the
    program's path."""
    folder = tempfile.mkdtemp(prefix="mayfly-rehearsal-", dir=os.path.dirname(modules))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = os.path.join(folder, "mayfly")
    os.link(mayfly_run.BINARY, program)
    if os.path.exists(mayfly_run.BINARY + "-bench"):
        os.link(mayfly_run.BINARY + "-bench", program + "-bench")
    for name in MODULES:
        os.symlink(os.path.join(modules, name), os.path.join(folder, name))
    return program


@contextlib.contextmanager
def pretended(**settings):
    """Programs that are started within the block find a GPU with these settings."""
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]


def oracle(*options):
    # The results are stored beside this binary, where other tests look for them, too.
    beside, mayfly_run.BINARY = mayfly_run.BINARY, WITHOUT_MODULES
    by_step = Oracle(JOB + ["--workers", "1", "--threads", "1", *options]).digests()
    mayfly_run.BINARY = beside
    expect(len(by_step) == STEPS, f"the oracle has {len(by_step)} of {STEPS} digests")
    return by_step


def digest_of(checkpoint):
    done = subprocess.run([mayfly_run.BINARY, "digest", checkpoint], capture_output=True, text=True,
                          timeout=60, check=False)
    expect(done.returncode == 0, f"{checkpoint}: {done.stderr}")
    return done.stdout.split()[0]


def train(*options):
    """Runs a job; returns its digests and the number of members of each step."""
    run = Run(JOB + GPU + list(options))
    summary = run.finish()
    expect(summary["backend"] == "nccl", f"the summary's backend is {summary['backend']}")
    by_step, members = mayfly_run.digests(run), [m["members"] for m in run.metrics()]
    run.remove()
    return by_step, members


def workers():
    wanted = oracle()
    for count in (1, 2, 3):
        found, members = train("--workers", str(count))
        expect(found == wanted, f"{count} workers have other bits")
        expect(set(members) == {count}, f"{count} workers, but steps of {set(members)}")


def churn():
    found, members = train("--workers", "3", "--chaos",
                           "kill@step=5:worker=1,join@step=10,kill@step=18:worker=0,"
                           "kill@step=24:worker=2,join@step=30")
    expect(found == oracle(), "other bits after losses and joins")
    expect(len(set(members)) > 1, "nobody was lost")


def joins_observing():
    found, members = train("--workers", "2", "--observe-from-mib", "0", "--chaos", "join@step=8")
    expect(found == oracle(), "other bits after a join in the background")
    expect(members[-1] == 3, f"{members[-1]} members at the end")


def plain():
    """The sum of two floats does not depend on the order, so both backends have the same bits."""
    options = ["--workers", "2", "--reduction", "fp32"]
    _, over_tcp = mayfly_run.train(JOB + ["--device", "cuda:0"] + options)
    found, _ = train(*options)
    expect(found == over_tcp, "fp32 over nccl and over tcp have other bits")


def audit():
    """The gradient of an audited microbatch is copied to the host; the sums are not."""
    found, _ = train("--workers", "2", "--audit-every", "2")
    expect(found == oracle(), "other bits with audits")


def leaves():
    found, members = train("--workers", "3", "--chaos", "drain@step=10:worker=1")
    expect(found == oracle(), "other bits after a planned leave")
    expect(members[-1] == 2, f"{members[-1]} members at the end")


def resume():
    first = Run(JOB + GPU + ["--workers", "2", "--checkpoint-every", "10"] + lingering(14))
    first.wait_for_step(14)
    first.process.send_signal(2)  # Ctrl-C
    expect(first.wait() == 3, f"not stopped\n{first.logs()}")
    wanted = oracle()
    found, _ = train("--workers", "3", "--resume", first.run_dir)
    first.remove()
    expect(len(found) > 5, f"only {len(found)} steps after the stop")
    for step, digest in found.items():
        expect(digest == wanted[step], f"step {step} after --resume has other bits")


def losses():
    """The test kills workers at arbitrary moments."""
    steps = (4, 11, 19)
    run = Run(JOB + GPU + ["--workers", "4"] + lingering(*steps))
    for step in steps:
        run.wait_for_step(step)
        pids = run.worker_pids()
        expect(len(pids) > 1, f"{len(pids)} workers at step {step}\n{run.logs()}")
        mayfly_run.kill(pids[step % len(pids)])
    run.finish()
    found = mayfly_run.digests(run)
    expect(found == oracle(), f"other bits after losses ({len(found)})\n{run.logs()}")
    run.remove()


def state():
    """The state is updated on the GPU, and copied to the host only when it is read. Checkpoints,
    evaluations and joining workers must get the state of their step. Digests are rare here, because
    a digest of every step would copy the state in every step."""
    seldom = [flag for flag in JOB if flag != "--no-evaluate"] + [
        "--digest-every", "1000000", "--checkpoint-every", "10"]
    wanted = oracle()
    run = Run(seldom + ["--workers", "1", "--threads", "1"])
    evaluated = run.finish()
    run.remove()
    for chaos in (None, "kill@step=17:worker=1,join@step=19,kill@step=27:worker=0"):
        run = Run(seldom + GPU + ["--workers", "3", "--keep-checkpoints", "10"] +
                  (["--chaos", chaos] if chaos else []))
        summary = run.finish()
        expect("weights are updated in the memory of the GPU" in run.logs(tail=10000),
               "they are not")
        expect(summary["final_digest"] == wanted[STEPS], f"{chaos}: other bits at the end")
        for name in ("test_top1", "test_loss"):
            expect(summary[name] == evaluated[name], f"{chaos}: {name} is {summary[name]}")
        for step in (10, 20, 30):
            expect(digest_of(run.path("checkpoints", f"step-{step}")) == wanted[step],
                   f"{chaos}: the checkpoint of step {step} has other bits")
        run.remove()


def flips():
    """A flipped bit in the host's part of a state or in the GPU's memory is detected before another
    step is committed. The state that the worker then receives replaces its wrong one, even if both
    are of the same step."""
    wanted = oracle()
    trigger = os.path.join(os.path.dirname(mayfly_run.BINARY), "flips")
    with open(trigger, "w"):
        pass
    job = JOB + GPU + ["--digest-every", "1000000", "--workers", "3", "--min-workers", "3"]
    for what in ("weights", "momentum", "memory of the GPU"):
        if what == "memory of the GPU":
            with pretended(REHEARSAL_GPU_FLIPS=trigger):
                run = Run(job)
        else:
            run = Run(job + ["--chaos", f"flip_{what}@step=20:worker=0"])
        summary = run.finish()
        expect(summary["final_digest"] == wanted[STEPS], f"{what}: other bits\n{run.logs()}")
        found = [e for e in run.lines("events.jsonl") if e["kind"] == "corrupted"]
        expect(len(found) == 1, f"{what}: one worker is evicted, once: {found}\n{run.logs()}")
        run.remove()
    expect(not os.path.exists(trigger), "no GPU's memory was damaged")


def memory():
    """Sums in the GPU's memory need memory in addition to the engine's, and the error about too
    little memory counts them."""
    def said(backend, mib):
        done = subprocess.run([mayfly_run.BINARY, "bench", "step", "--device", "cuda", "--backend",
                               backend, "--batch", "8", "--seconds", "0.1"], timeout=100,
                              env=dict(os.environ, REHEARSAL_GPU_MIB=str(mib)),
                              capture_output=True, text=True, check=False)
        expect(done.returncode in (0, 2), f"{backend}, {mib} MiB: {done.stderr}")
        expect(len(done.stderr.splitlines()) == (done.returncode == 2), f"said {done.stderr}")
        return done.stderr

    without = int(re.search(r"needs (\d+) MiB of GPU memory", said("tcp", 1)).group(1))
    expect(said("tcp", without) == "", "what is said to be enough is not")
    found = re.search(r"needs (\d+) MiB \((\d+) of them for sums of gradients\)",
                      said("nccl", without))
    expect(found is not None, f"said {said('nccl', without)}")
    both, sums = (int(number) for number in found.groups())
    momentum = 1  # MiB, of resnet20; each of the numbers is rounded up
    expect(abs(both - without - sums - momentum) <= 1,
           f"{both} MiB with {sums} for sums and {momentum} for momentum, {without} without")
    expect(said("nccl", both) == "", "what is said to be enough is not")


def resident():
    """The bits are the same whether the GPU has room for the training set and looks images up
    itself, or has no room and gets them from the loader."""
    job = JOB + GPU + ["--workers", "2"]
    with pretended(REHEARSAL_GPU_MIB="1"):
        run = Run(job)
    expect(run.wait() == 2, run.output())
    needed = re.search(r"needs (\d+) MiB", run.output()).group(1)  # the set takes 1.5 MiB more
    run.remove()
    for options in ([], ["--no-augment"]):
        wanted = oracle(*options)
        for mib, words in (("4000", "the training set is in the memory of the GPU"),
                           (needed, "images come to the GPU from host memory")):
            with pretended(REHEARSAL_GPU_MIB=mib):
                run = Run(job + options)
            run.finish()
            expect(words in run.logs(tail=10000), f"{mib} MiB: '{words}' is not said")
            expect(mayfly_run.digests(run) == wanted, f"{mib} MiB, {options}: other bits")
            run.remove()


def ahead():
    """The images of most microbatches are copied to the GPU while the previous one is computed,
    also from one step to the next. After losses and joins the bits are the same."""
    with pretended(REHEARSAL_GPU_MIB="1"):
        run = Run(JOB + GPU + ["--workers", "1"])
    expect(run.wait() == 2, run.output())
    needed = re.search(r"needs (\d+) MiB", run.output()).group(1)
    run.remove()
    wanted = oracle()
    noted = os.path.join(os.path.dirname(mayfly_run.BINARY), "ahead")
    with pretended(REHEARSAL_GPU_MIB=needed, REHEARSAL_GPU_AHEAD=noted):
        run = Run(JOB + GPU + ["--workers", "1"])
        run.finish()
        expect(mayfly_run.digests(run) == wanted, "other bits")
        run.remove()
        count = os.path.getsize(noted)
        expect(count > STEPS / 2, f"{count} microbatches of {STEPS} steps came ahead")
        found, members = train("--workers", "3", "--chaos",
                               "kill@step=5:worker=1,join@step=10,drain@step=20:worker=0")
        expect(found == wanted, "other bits after losses and joins")
        expect(len(set(members)) > 1, "nobody was lost")
        found, _ = train("--workers", "2", "--audit-every", "2")
        expect(found == wanted, "other bits with audits")


def bench():
    for backend, sums, images, reduction in (("tcp", "host", "host", "exact"),
                                             ("tcp", "host", "gpu", "fp32"),
                                             ("nccl", "gpu", "gpu", "exact"),
                                             ("nccl", "gpu", "gpu", "fp32")):
        done = subprocess.run([mayfly_run.BINARY, "bench", "step", "--device", "cuda", "--backend",
                               backend, "--images", images, "--model", "resnet20", "--batch", "8",
                               "--global-batch", "16", "--seconds", "0.2", "--json",
                               "--reduction", reduction],
                              capture_output=True, text=True, timeout=100, check=False)
        expect(done.returncode == 0, f"bench step, {backend}: {done.stderr}")
        line = json.loads(done.stdout)
        expect((line["sums"], line["images"], line["reduction"]) == (sums, images, reduction),
               f"{backend}: {line}")
        expect(line["images_per_second"] > 0, f"{backend}: {line}")
        expect("rehearsal" in line["device"], f"{backend}: {line}")


TESTS = {"workers": workers, "churn": churn, "joins_observing": joins_observing, "plain": plain,
         "audit": audit, "leaves": leaves, "resume": resume, "losses": losses, "memory": memory,
         "state": state, "flips": flips, "resident": resident, "bench": bench,
         "ahead": ahead}

if __name__ == "__main__":
    mayfly_run.BINARY = beside_modules(os.path.abspath(sys.argv.pop(1)))
    sys.exit(mayfly_run.main(TESTS))
