"""Batches of samples by their ids. Each sample is read after the generators were seeded by (job,
pass, id), and what makes a batch of them runs after they were seeded by its microbatch, so that
augmentation does not depend on who reads a sample, or in which order."""

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
_COLLATE = 1  # so that it draws other numbers than the model, which has the seed itself


def seed_host(number):
    """Sets the generators of this process's CPU."""
    torch.default_generator.manual_seed(number & (2**63 - 1))
    numpy.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


def seed_of(seed, *parts):
    """64 bits that depend on all of them (splitmix64, Steele et al., OOPSLA 2014)."""
    value = seed
    for part in parts:
        value = (value ^ (part + _MIX)) * 0xBF58476D1CE4E5B9 & _MASK
        value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
        value ^= value >> 31
    return value


@contextlib.contextmanager
def host_generators_kept():
    """The generators of this process's CPU are afterwards as before."""
    states = torch.get_rng_state(), numpy.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        numpy.random.set_state(states[1])
        random.setstate(states[2])


def read(data, collate, microbatch, seed):
    """A batch. The generators are afterwards as before."""
    found = []
    with host_generators_kept():
        for sample, epoch in zip(microbatch.samples, microbatch.epochs):
            seed_host(seed_of(seed, epoch, sample))
            found.append(data[sample])
        seed_host(seed_of(microbatch.seed, _COLLATE))
        return collate(found)


class Loader:
    """Reads what is asked for, and with `workers` processes what will be asked for next."""

    def __init__(self, data, collate, workers=0):
        self._data = data
        self._collate = collate or default_collate
        self.workers = workers
        self._pool = None  # notices when one of its processes is killed, unlike multiprocessing's
        self._ahead = {}  # (step, number) -> what a process of the pool is reading

    def read_ahead(self, microbatches, seed):
        """Those that were to be read and are not among these any more are dropped."""
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
        """The program has failed: the others wait for the end of its process, which must not wait
        for all that is being read."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()

    def batch(self, microbatch, seed):
        """The samples of a microbatch, in a job of this seed."""
        begun = self._ahead.pop((microbatch.step, microbatch.number), None)
        if begun is not None:
            try:
                return begun.result()
            except BrokenProcessPool:
                self._begin_anew()
        return read(self._data, self._collate, microbatch, seed)

    def _begin_anew(self):
        """One of the processes was killed, and the pool has ended the others; the next call of
        read_ahead() makes another pool."""
        print("mayfly: a process that reads samples was ended from outside, perhaps because memory "
              "was short; its batch is read without it", file=sys.stderr, flush=True)
        self.close()


_reader = None  # of a process of the pool: what it reads


def _begin_reader(data, collate, trainer):
    global _reader
    _reader = data, collate
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # whoever is killed leaves none
    if os.getppid() != trainer:  # it was killed before that
        os._exit(1)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's


def _read_in_pool(microbatch, seed):
    return read(*_reader, microbatch, seed)
