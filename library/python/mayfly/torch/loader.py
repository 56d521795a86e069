"""Reads batches of samples by their ids. The generators are seeded by (job, pass, id) before each
sample is read, and by the microbatch before collate runs, so that augmentation does not depend on
the process that reads a sample, or on the order of reading."""

import contextlib
import ctypes
import os
import random
import signal
import sys
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

import numpy
import torch
from torch import multiprocessing
from torch.utils.data import default_collate

_MIX = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_PR_SET_PDEATHSIG = 1
_COLLATE = 1  # so that collate draws other numbers than the model, which uses the seed itself


def seed_host(number):
    """Seeds the CPU generators of this process."""
    torch.default_generator.manual_seed(number & (2**63 - 1))
    numpy.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


def seed_of(seed, *parts):
    """64 bits that depend on all arguments (splitmix64, Steele et al., OOPSLA 2014)."""
    value = seed
    for part in parts:
        value = (value ^ (part + _MIX)) * 0xBF58476D1CE4E5B9 & _MASK
        value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
        value ^= value >> 31
    return value


@contextlib.contextmanager
def host_generators_kept():
    """Restores the CPU generators of this process afterwards."""
    states = torch.get_rng_state(), numpy.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        numpy.random.set_state(states[1])
        random.setstate(states[2])


def read(data, collate, microbatch, seed):
    """Reads a batch. Restores the generators."""
    found = []
    with host_generators_kept():
        for sample, epoch in zip(microbatch.samples, microbatch.epochs):
            seed_host(seed_of(seed, epoch, sample))
            found.append(data[sample])
        seed_host(seed_of(microbatch.seed, _COLLATE))
        return collate(found)


class Loader:
    """Reads batches; `workers` processes read the samples of the next microbatches ahead."""

    def __init__(self, data, collate, workers=0):
        self._data = data
        self._collate = collate or default_collate
        self.workers = workers
        self._pool = None  # notices when one of its processes is killed, unlike multiprocessing's
        self._ahead = {}  # (step, number) -> the future of the batch that the pool is reading

    def read_ahead(self, microbatches, seed):
        """Requests these microbatches. Cancels older requests that are not among them."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("fork"),
                                             _begin_reader,
                                             (self._data, self._collate, os.getpid()))
        wanted = {(m.step, m.number): m for m in microbatches}
        newest = max((step for step, _ in wanted), default=0)
        for key in [key for key in self._ahead if key not in wanted and key[0] + 1 < newest]:
            self._ahead.pop(key).cancel()
        try:
            for key, m in wanted.items():
                if key not in self._ahead:
                    self._ahead[key] = self._pool.submit(_read_in_pool, m, seed)
        except BrokenProcessPool:
            self._begin_anew()

    def close(self):
        """Ends the processes that read ahead."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._ahead = {}

    def abandon(self):
        """To be called when the program has failed. Other workers wait for the end of its process,
        which must not wait for the reading processes, so these are killed."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()

    def batch(self, microbatch, seed):
        """The samples of a microbatch, in a job with this seed."""
        begun = self._ahead.pop((microbatch.step, microbatch.number), None)
        if begun is not None:
            try:
                return begun.result()
            except BrokenProcessPool:
                self._begin_anew()
        return read(self._data, self._collate, microbatch, seed)

    def _begin_anew(self):
        """To be called when a process was killed, after which the pool has ended the others. The
        next call of read_ahead() makes another pool."""
        print("mayfly: a process that reads samples was ended from outside, perhaps because memory "
              "was short; its batch is read without it", file=sys.stderr, flush=True)
        self.close()


_reader = None  # in a process of the pool: data and collate


def _begin_reader(data, collate, trainer):
    global _reader
    _reader = data, collate
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # if the trainer is killed
    if os.getppid() != trainer:  # the trainer was killed before the line above
        os._exit(1)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer handles Ctrl-C


def _read_in_pool(microbatch, seed):
    return read(*_reader, microbatch, seed)
