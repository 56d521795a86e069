"""Goal: over three epochs with kills and joins, each sample of each epoch is committed exactly
once.
Method: every worker writes which samples it computed for each (step, microbatch); the reduced
message carries an order-free hash of the samples that are really in the sum. From outside, with
our own arithmetic: the samples of a step's microbatches must give the committed hash, and each
epoch's stretch of the stream must be a permutation of the data set.
"""
import glob

import mayfly_run
from mayfly_run import Run, expect

SAMPLES, BATCH, MICROBATCH, EPOCHS = 512, 16, 4, 3
MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def hash_of(samples):
    lanes = [0, 0, 0, 0]
    for sample in samples:
        low = mix64(sample)
        high = mix64(low ^ sample)
        for lane, part in enumerate((low, low >> 32, high, high >> 32)):
            lanes[lane] = (lanes[lane] + part) & 0xffffffff
    return "".join(f"{lane:08x}" for lane in reversed(lanes))


def read_ledgers(run):
    """Samples by (step, microbatch); workers that computed the same one must agree."""
    computed = {}
    for name in glob.glob(run.path("ledger", "*.txt")):
        with open(name) as f:
            for line in f:
                if not line.endswith("\n"):
                    continue  # torn by a kill
                step, microbatch, *samples = (int(word) for word in line.split())
                known = computed.setdefault((step, microbatch), samples)
                expect(known == samples, f"step {step}, microbatch {microbatch} has two contents")
    return computed


def every_sample_once():
    steps = SAMPLES * EPOCHS // BATCH
    chaos = ",".join(f"kill@step={s}:worker={w},join@step={s + 2}"
                     for w, s in enumerate(range(6, steps - 8, 11)))
    run = Run(mayfly_run.SMALL_JOB + ["--steps", str(steps), "--workers", "3", "--threads", "1",
                                      "--ledger", "--chaos", chaos])
    summary = run.finish()
    metrics = run.metrics()
    expect([m["step"] for m in metrics] == list(range(1, steps + 1)), "steps are not 1, 2, 3, ...")
    expect(summary["membership_changes"] >= 8, f"{summary['membership_changes']} changes only")
    computed = read_ledgers(run)
    stream = []
    for metric in metrics:
        samples = []
        for microbatch in range(BATCH // MICROBATCH):
            samples += computed[(metric["step"], microbatch)]
        expect(hash_of(samples) == metric["sample_hash"],
               f"step {metric['step']}: the sum holds other samples than the ledger")
        stream += samples
    for epoch in range(EPOCHS):
        used = sorted(stream[epoch * SAMPLES:(epoch + 1) * SAMPLES])
        expect(used == list(range(SAMPLES)), f"epoch {epoch}: not every sample exactly once")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"every_sample_once": every_sample_once}))
