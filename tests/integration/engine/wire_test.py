"""Goal: 16-bit formats on the wire halve the bytes of gradients. int16 keeps the promise of the
exact sum (the same bits for any number of workers and any joins and losses); bf16 and fp16 train as
well as fp32.
Method: digests against one undisturbed worker; losses against the 32-bit wire.
"""
import subprocess
import tempfile

import mayfly_run
from mayfly_run import SMALL_JOB, Run, digests, expect

STEPS = ["--steps", "30"]
INT16 = SMALL_JOB + STEPS + ["--wire", "int16", "--threads", "1"]
CHURN = "kill@step=6:worker=1,join@step=9,kill@step=14:worker=0,join@step=18,drain@step=22"
reference = {}


def oracle():
    if not reference:
        _, by_step = mayfly_run.train(INT16 + ["--workers", "1"])
        reference.update(by_step)
        expect(len(reference) == 30, f"the oracle has {len(reference)} of 30 digests")
    return reference


def compare(name, args):
    _, by_step = mayfly_run.train(INT16 + args)
    for step, digest in oracle().items():
        expect(by_step.get(step) == digest, f"{name}: step {step} has {by_step.get(step)}, "
                                            f"one worker has {digest}")


def int16_same_bits():
    _, plain = mayfly_run.train(SMALL_JOB + STEPS + ["--workers", "1"])
    expect(plain != oracle(), "int16 has the bits of int32: it is not in use")
    for count in (2, 4):
        compare(f"{count} workers", ["--workers", str(count)])
    compare("2 workers, 2 threads, small buckets",
            ["--workers", "2", "--threads", "2", "--bucket-kib", "16"])
    compare("gloo, 3 workers", ["--workers", "3", "--backend", "gloo"])


def int16_churn():
    for count in (2, 4):
        compare(f"{count} workers with losses", ["--workers", str(count), "--chaos", CHURN])


def int16_resume():
    first = Run(INT16 + ["--workers", "2", "--checkpoint-every", "10"])
    first.finish()
    _, by_step = mayfly_run.train(INT16 + ["--workers", "3", "--resume",
                                           first.path("checkpoints", "step-10")])
    expect(set(by_step) == set(range(11, 31)), f"resumed steps are {sorted(by_step)}")
    for step, digest in by_step.items():
        expect(digest == oracle()[step], f"step {step} after --resume has other bits")
    first.remove()


def final_loss(args):
    run = Run(SMALL_JOB + ["--steps", "40", "--threads", "1"] + args)
    run.finish()
    metrics = run.metrics()
    expect(len(metrics) == 40 and len(digests(run)) == 40, f"{args}: not every step was committed")
    run.remove()
    return sum(m["loss"] for m in metrics[-10:]) / 10


def half_wires():
    """bf16 and fp16 train as well as fp32, also with a loss and a join, which discard the
    residuals."""
    plain = final_loss(["--workers", "2", "--reduction", "fp32"])
    for wire in ("bf16", "fp16"):
        for churn in ([], ["--chaos", "kill@step=10:worker=1,join@step=15"]):
            loss = final_loss(["--workers", "2", "--reduction", "fp32", "--wire", wire] + churn)
            expect(abs(loss - plain) < 0.25, f"{wire} {churn}: loss {loss}, fp32 has {plain}")


def bucket_auto():
    """All members, also joining ones, try the same bucket sizes in the first steps."""
    steps = ["--steps", "60", "--threads", "1"]
    churn = ["--workers", "2", "--chaos", "kill@step=9:worker=1,join@step=14,join@step=20"]
    _, alone = mayfly_run.train(SMALL_JOB + steps + ["--workers", "1"])
    for reduction in ("exact", "fp32"):
        run = Run(SMALL_JOB + steps + churn + ["--reduction", reduction, "--bucket-kib", "auto"])
        run.finish()
        expect(len(digests(run)) == 60, f"{reduction}: not every step was committed")
        expect(reduction == "fp32" or digests(run) == alone, "tried sizes changed exact sums")
        decisions = set()
        for name in ("worker-0.log", "worker-2.log"):
            with open(run.path("logs", name)) as f:
                decisions.update(line.split("buckets of ")[1].split(":")[0] for line in f
                                 if "buckets of " in line)
        expect(len(decisions) == 1, f"{reduction}: the members decided {decisions}")
        run.remove()
    # After a bucket size was chosen, an evicted worker joins again with the only copy of the state.
    run = Run(SMALL_JOB + steps + ["--workers", "2", "--min-workers", "2", "--bucket-kib", "auto",
                                   "--chaos", "stop@step=50:worker=1:for=3000"])
    run.finish()
    expect(digests(run) == alone and run.events("evicted") + run.events("lost"),
           f"{run.logs()}")
    expect(len(run.events("view")) <= 8, f"views fail: {run.events('view')}")
    run.remove()


def refused():
    for args in (["--wire", "bf16"], ["--wire", "int16", "--reduction", "fp32"],
                 ["--wire", "int4"], ["--bucket-kib", "0"], ["--bucket-kib", "many"]):
        done = subprocess.run([mayfly_run.BINARY, "train"] + args, capture_output=True, text=True,
                              timeout=30, cwd=tempfile.gettempdir())
        name = args[0][2:].replace("-", "_")
        lines = done.stderr.strip().splitlines()
        expect(done.returncode == 2 and len(lines) == 1 and name in lines[0],
               f"{args}: {done.returncode} {done.stderr}")


def other_wire_refused():
    """All members must have the same wire format: a worker with another one is refused."""
    run = Run(INT16 + ["--workers", "2", "--steps", "400"])
    run.wait_for_step(2)
    with open(run.path("coordinator")) as f:
        endpoint = f.read().strip()
    done = subprocess.run(
        [mayfly_run.BINARY, "worker", "--coordinator", endpoint, "--run-dir", run.run_dir,
         "--steps", "400", "--wire", "fp32"] + SMALL_JOB,
        capture_output=True, text=True, timeout=60)
    expect(done.returncode == 2 and "wire" in done.stderr, f"{done.returncode} {done.stderr}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "int16_same_bits": int16_same_bits, "int16_churn": int16_churn,
        "int16_resume": int16_resume, "half_wires": half_wires, "bucket_auto": bucket_auto,
        "refused": refused,
        "other_wire_refused": other_wire_refused}))
