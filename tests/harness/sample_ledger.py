"""Determines which samples a job has used: from the ledgers that workers write (--ledger), and from
the hash of the samples in each committed sum, which is computed here again.
"""
import glob
import os

from mayfly_run import expect

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


def sample_hash(metrics):
    """The hash of all samples of a job, independent of their order: the sum of each lane."""
    lanes = [0] * 4
    for metric in metrics:
        for i in range(4):
            lanes[i] = (lanes[i] + int(metric["sample_hash"][8 * i:8 * i + 8], 16)) % 2**32
    return lanes


def files(run_dirs):
    return [name for folder in run_dirs for name in glob.glob(os.path.join(folder, "ledger", "*"))]


def read(run_dirs):
    """Samples by (step, microbatch). Workers that computed the same microbatch must agree on it."""
    computed = {}
    for name in files(run_dirs):
        with open(name) as f:
            for line in f:
                if not line.endswith("\n"):
                    continue  # torn by a kill
                step, microbatch, *samples = (int(word) for word in line.split())
                known = computed.setdefault((step, microbatch), samples)
                expect(known == samples, f"step {step}, microbatch {microbatch} has two contents")
    return computed


def expect_every_sample_once(metrics, run_dirs, samples, batch, microbatch):
    """`metrics`: the records of steps 1, 2, 3, ...; `samples`: their number in the data set."""
    computed = read(run_dirs)
    stream = []
    for metric in metrics:
        used = []
        for part in range(batch // microbatch):
            used += computed[(metric["step"], part)]
        expect(hash_of(used) == metric["sample_hash"],
               f"step {metric['step']}: the sum holds other samples than the ledger")
        stream += used
    for epoch in range(len(stream) // samples):
        used = sorted(stream[epoch * samples:(epoch + 1) * samples])
        expect(used == list(range(samples)), f"epoch {epoch}: not every sample exactly once")
