"""Undisturbed runs with which tests compare their results. Each is run once for all tests, because
a binary always computes the same bits from the same settings (see
tests/integration/engine/same_bits_test.py). The results are stored beside the binary, or beside the
modules that the run loads, and are deleted when one of these files changes.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import shutil

import mayfly_run
from mayfly_run import Run


class Oracle:
    """`summary` and `metrics` of a run of the job that `args` describe. `modules`: paths of the
    modules that the program loads for it."""

    def __init__(self, args, timeout=300, modules=()):
        path = _place(args, modules)
        with _locked(path):  # other tests that need the same run wait for it
            self.summary, self.metrics = _read(path) or _make(path, args, timeout)

    def digests(self):
        """The digest of the state by step."""
        return {m["step"]: m["digest"] for m in self.metrics if m.get("digest")}

    @property
    def final_digest(self):
        return self.summary["final_digest"]


@contextlib.contextmanager
def _locked(path):
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _place(args, modules):
    files = [os.path.abspath(name) for name in (mayfly_run.BINARY, *modules)]
    made = [f"{each.st_mtime_ns}-{each.st_size}" for each in map(os.stat, files)]
    ours = os.path.join(os.path.dirname(files[-1]), "test-oracles")
    folder = os.path.join(ours, "-".join([os.path.basename(files[0]), *made]))
    with _locked(ours):
        if not os.path.isdir(folder):
            shutil.rmtree(ours, ignore_errors=True)
            os.makedirs(folder)
    settings = sorted(item for item in os.environ.items()
                      if item[0].startswith(("MAYFLY_", "REHEARSAL_"))
                      and not item[0].startswith("MAYFLY_TEST_"))
    name = hashlib.sha256(json.dumps([_flags(args), settings]).encode()).hexdigest()[:32]
    return os.path.join(folder, name)


def _flags(args):
    """The words of each flag, sorted, so that the order of flags does not matter. If a flag is
    repeated, its last words count."""
    found = {}
    for word in args:
        if word.startswith("--"):
            name = word
            found[name] = []
        else:
            found[name].append(word)
    return sorted(found.items())


def _read(path):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def _make(path, args, timeout):
    run = Run(args, timeout=timeout)
    found = [run.finish(), run.metrics()]
    with open(path + ".new", "w") as f:
        json.dump(found, f)
    os.replace(path + ".new", path)
    run.remove()
    return found
