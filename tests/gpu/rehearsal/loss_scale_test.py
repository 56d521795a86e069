"""Goal: a job in fp16 has the bits of one worker after any losses and joins, with the same loss
scales and the same steps without an update.
Method: the program runs beside modules of this folder, which imitate GPU and NCCL on the CPU. They
round gradients to fp16 with the scale, and about one microbatch in 24 gets a gradient that is not
finite. The digest of the state after every step is compared with that of one worker over tcp.
usage: loss_scale_test.py FOLDER-WITH-MODULES CASE
"""
import functools
import os
import subprocess
import sys

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle
from train_test import MODULES, beside_modules, digest_of

STEPS = 40
START = 2 ** 16
JOB = SMALL_JOB + ["--steps", str(STEPS), "--device", "cuda:0", "--dtype", "fp16"]
NCCL = ["--backend", "nccl"]
modules = []  # the paths of this folder's modules


def finished(*options, job=None):
    """Runs a job that must succeed; returns its digests and metrics."""
    run = Run((job or JOB) + list(options))
    summary = run.finish()
    by_step, metrics = mayfly_run.digests(run), run.metrics()
    skipped = [m["step"] for m in metrics if m.get("skipped")]
    events = [e for e in run.lines("events.jsonl") if e["kind"] == "update_skipped"]
    run.remove()
    expect(summary["skipped_steps"] == len(skipped), f"{summary['skipped_steps']} of {skipped}")
    expect([e["step"] for e in events] == skipped, f"events {events}, skipped {skipped}")
    return by_step, metrics


@functools.cache
def oracle(*options):
    run = Oracle(JOB + ["--workers", "1", *options], modules=modules)
    by_step, metrics = run.digests(), run.metrics
    expect(len(by_step) == STEPS, f"the oracle has {len(by_step)} of {STEPS} digests")
    skipped = [m["step"] for m in metrics if m.get("skipped")]
    expect(3 <= len(skipped) <= 16 and max(skipped) > 10, f"overflows in steps {skipped}")
    return by_step


def check(found, wanted, what):
    for step, digest in wanted.items():
        expect(found.get(step) == digest, f"{what}: other bits after step {step}")


def workers():
    for options in (["--workers", "2"], ["--workers", "3"], ["--workers", "1"] + NCCL,
                    ["--workers", "3"] + NCCL):
        check(finished(*options)[0], oracle(), options)


def churn():
    chaos = ("kill@step=5:worker=1,join@step=10,kill@step=18:worker=0,kill@step=24:worker=2,"
             "join@step=30")
    for backend in ([], NCCL):
        found, metrics = finished("--workers", "3", "--chaos", chaos, *backend)
        check(found, oracle(), f"losses and joins {backend}")
        expect(len({m["members"] for m in metrics}) > 1, "nobody was lost")


def state():
    """Over NCCL the host's copy of the state is older than the GPU's. Checkpoints must have the
    GPU's state, also after a step without an update."""
    for chaos in (None, "kill@step=13:worker=1,join@step=16,kill@step=25:worker=0"):
        seldom = ["--digest-every", "1000000", "--checkpoint-every", "7", "--keep-checkpoints", "9"]
        run = Run(JOB + NCCL + ["--workers", "3"] + seldom + (["--chaos", chaos] if chaos else []))
        expect(run.finish()["final_digest"] == oracle()[STEPS], f"{chaos}: other bits at the end")
        for step in (7, 14, 21, 28):
            found = digest_of(run.path("checkpoints", f"step-{step}"))
            expect(found == oracle()[step], f"{chaos}: the checkpoint of step {step}")
        kinds = [e["kind"] for e in run.lines("events.jsonl")]
        expect("corrupted" not in kinds, f"{chaos}: states differed")
        run.remove()


def joins_observing():
    for backend in ([], NCCL):
        found, metrics = finished("--workers", "2", "--observe-from-mib", "0", "--chaos",
                                  "join@step=3,join@step=12", *backend)
        check(found, oracle(), f"a join in the background {backend}")
        expect(metrics[-1]["members"] == 4, f"{metrics[-1]['members']} members at the end")


def audit():
    """If another worker computes the same microbatch for an audit, it uses the same loss scale and
    gets the same bits."""
    for backend in ([], NCCL):
        check(finished("--workers", "2", "--audit-every", "1", *backend)[0], oracle(), backend)


def resume():
    """A checkpoint contains the loss scale and the number of steps since it was changed."""
    for backend in ([], NCCL):
        first = Run(JOB + ["--workers", "2", "--checkpoint-every", "10", *backend,
                           *lingering(14)])
        first.wait_for_step(14)
        first.process.send_signal(2)  # Ctrl-C
        expect(first.wait() == 3, f"not stopped\n{first.logs()}")
        found, _ = finished("--workers", "3", "--resume", first.run_dir, *backend)
        first.remove()
        expect(len(found) > 5, f"only {len(found)} steps after the stop")
        for step, digest in found.items():
            expect(digest == oracle()[step], f"step {step} after --resume has other bits")


def other_types():
    """A checkpoint can be resumed in any type. A job in fp16 begins with a new loss scale if the
    checkpoint has none; a job in another type drops it."""
    def stage(dtype, steps, resumed=None):
        run = Run(SMALL_JOB + ["--device", "cuda:0", "--dtype", dtype, "--steps", str(steps),
                               "--workers", "2"] + (["--resume", resumed] if resumed else []))
        summary = run.finish()
        return run, summary, run.metrics()

    first, summary, metrics = stage("fp16", 12)
    expect(summary["skipped_steps"] > 0 and metrics[-1]["loss_scale"] < START, f"{metrics[-1]}")
    for other in ("bf16", "fp32"):
        second, summary, metrics = stage(other, 20, first.run_dir)
        expect("the checkpoint's loss scale of" in second.output(), second.output())
        expect([m["step"] for m in metrics] == list(range(13, 21)), f"{metrics}")
        expect(not any("loss_scale" in m or "skipped" in m for m in metrics), f"{metrics[0]}")
        expect("skipped_steps" not in summary, f"{summary}")
        third, summary, metrics = stage("fp16", 24, second.run_dir)
        expect("has no loss scale" in third.output(), third.output())
        expect(metrics[0]["loss_scale"] == START and "skipped_steps" in summary, f"{metrics[0]}")
        fourth, _, metrics = stage("fp16", 26, third.run_dir)
        expect("the checkpoint" not in fourth.output(), fourth.output())
        for run in (second, third, fourth):
            run.remove()
    first.remove()


def wires():
    """int16 on the wire has separate exponents, which a step without an update does not change."""
    wanted = oracle("--wire", "int16")
    check(finished("--workers", "3", "--wire", "int16", "--chaos",
                   "kill@step=9:worker=1,join@step=15")[0], wanted, "int16")


def plain():
    """The sum of two floats does not depend on the order. With 16 bits on the wire, a skipped step
    must leave nothing in the residuals, or all later steps are skipped as well."""
    options = ["--reduction", "fp32"]
    alone, _ = finished("--workers", "2", *options)
    check(finished("--workers", "2", *options, *NCCL)[0], alone, "fp32 over nccl")
    for wire in ("bf16", "fp16"):
        _, metrics = finished("--workers", "2", *options, "--wire", wire)
        expect(not all(m.get("skipped") for m in metrics[-10:]), f"{wire}: nothing is updated")


def diverges():
    """If every step overflows, the weights do not change while the scale falls to 1. Then the job
    fails as in fp32."""
    os.environ["REHEARSAL_GPU_OVERFLOWS"] = "1"
    for backend in ([], NCCL):
        run = Run(JOB + ["--workers", "2", "--checkpoint-every", "4", "--keep-checkpoints", "9"] +
                  backend)
        expect(run.wait() == 1, f"it ended well\n{run.logs()}")
        expect("became infinite or NaN in step 17" in run.output() + run.logs(tail=10000),
               run.output())
        metrics = run.metrics()
        expect([m.get("loss_scale") for m in metrics] == [START / 2 ** i for i in range(16)],
               f"scales {[m.get('loss_scale') for m in metrics]}")
        expect(all(m["skipped"] for m in metrics), metrics)
        models = set()
        for step in (4, 8, 12):
            with open(run.path("checkpoints", f"step-{step}", "model.safetensors"), "rb") as file:
                models.add(file.read())
        expect(len(models) == 1, "weights or statistics changed without an update")
        run.remove()


def refusals():
    def said(*arguments):
        done = subprocess.run([mayfly_run.BINARY, *arguments], capture_output=True, text=True,
                              timeout=60, check=False)
        expect(done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr)
        return done.stderr

    expect("dtype fp16 is for GPUs, but device is cpu" in said("train", "--dtype", "fp16"), "")
    expect("do not support a loss scale" in said("train", *JOB, "--sync", "bsp"),
           "parameter servers")
    done = subprocess.run([mayfly_run.BINARY, "bench", "step", "--device", "cuda", "--dtype",
                           "fp16", "--batch", "8", "--seconds", "0.1", "--json"], timeout=100,
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and '"dtype": "fp16"' in done.stdout, done.stderr)


def records():
    """A job in fp16 uses the same samples as one in fp32, and records its loss scale and skipped
    steps. Jobs in other types record neither."""
    _, metrics = finished("--workers", "2")
    run = Run(SMALL_JOB + ["--steps", str(STEPS), "--workers", "1", "--device", "cuda:0"])
    summary = run.finish()
    plain_metrics = run.metrics()
    run.remove()
    expect("skipped_steps" not in summary, "skipped_steps of a job in fp32")
    expect(not any("loss_scale" in m or "skipped" in m for m in plain_metrics), plain_metrics[0])
    expect([m["sample_hash"] for m in metrics] == [m["sample_hash"] for m in plain_metrics],
           "other samples")
    scale = START
    for metric in metrics:
        expect(metric["loss_scale"] == scale, f"{metric}, scale {scale}")
        scale /= 2 if metric.get("skipped") else 1


def planned():
    """Executes the plan of a GPU's steps in fp16, with losses and joins."""
    job = SMALL_JOB + ["--steps", "8", "--global-batch", "8", "--microbatch", "2", "--device",
                       "cuda:0", "--dtype", "fp16"]
    chaos = ["--workers", "3", "--chaos", "kill@step=2:worker=1,join@step=4,kill@step=6:worker=0"]
    os.environ["REHEARSAL_GPU_PLAN"] = "1"
    alone, metrics = finished("--workers", "1", job=job)
    expect(len(alone) == 8 and all(
        m.get("skipped") or 0 < m["loss"] < 5 for m in metrics), f"{metrics}")
    for backend in ([], NCCL):
        found, metrics = finished(*chaos, *backend, job=job)
        check(found, alone, f"losses and joins {backend}")
        expect(len({m["members"] for m in metrics}) > 1, "nobody was lost")


TESTS = {"workers": workers, "churn": churn, "state": state,
         "joins_observing": joins_observing, "audit": audit,
         "resume": resume, "other_types": other_types, "wires": wires, "plain": plain,
         "diverges": diverges,
         "refusals": refusals, "records": records, "planned": planned}

if __name__ == "__main__":
    folder = os.path.abspath(sys.argv.pop(1))
    modules += [os.path.join(folder, name) for name in MODULES]
    mayfly_run.BINARY = beside_modules(folder)
    os.environ["REHEARSAL_GPU_OVERFLOWS"] = "24"
    sys.exit(mayfly_run.main(TESTS))
