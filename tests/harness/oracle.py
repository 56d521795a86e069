"""Runs that nobody disturbs, each made once for all tests that compare something with it: what a
binary computes with the same settings has the same bits every time (tests/integration/engine/
same_bits_test.py shows that). They are kept beside the binary, and forgotten when it is another.
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
    """`summary` and `metrics` of a run of the job that `args` describe."""

    def __init__(self, args, timeout=300):
        path = _place(args)
        with _locked(path):  # whoever wants the same waits for it
            self.summary, self.metrics = _read(path) or _make(path, args, timeout)

    def digests(self):
        """Of the state, by step."""
        return {m["step"]: m["digest"] for m in self.metrics if m.get("digest")}


@contextlib.contextmanager
def _locked(path):
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _place(args):
    binary = os.path.abspath(mayfly_run.BINARY)
    made = os.stat(binary)
    ours = os.path.join(os.path.dirname(binary), "test-oracles")
    folder = os.path.join(ours, f"{os.path.basename(binary)}-{made.st_mtime_ns}-{made.st_size}")
    with _locked(ours):
        if not os.path.isdir(folder):
            shutil.rmtree(ours, ignore_errors=True)
            os.makedirs(folder)
    settings = sorted(item for item in os.environ.items() if item[0].startswith("MAYFLY_")
                      and not item[0].startswith("MAYFLY_TEST_"))
    name = hashlib.sha256(json.dumps([list(args), settings]).encode()).hexdigest()[:32]
    return os.path.join(folder, name)


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
