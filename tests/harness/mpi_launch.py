"""Starts jobs under mpirun, with the command lines that docs/mpi.md gives."""
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import Failure, Run


def skip_without_mpirun():
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not installed")
        raise SystemExit(mayfly_run.SKIP)


def skip_without_module():
    skip_without_mpirun()
    if not os.path.exists(os.path.join(os.path.dirname(mayfly_run.BINARY), "libmayfly_mpi.so")):
        print("skipped: built without Open MPI (Debian: libopenmpi-dev)")
        raise SystemExit(mayfly_run.SKIP)


def environment():
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def command(ranks, options=()):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", *options, "-np", str(ranks)]


def start(ranks, args, options=("--enable-recovery",), timeout=120, program=()):
    """Starts `mpirun OPTIONS -np RANKS mayfly train ARGS` (with `program`: `mayfly run ARGS --
    PROGRAM`); returns a Run."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    with open(folder + "/output.txt", "wb") as output:
        process = subprocess.Popen(
            [*command(ranks, options), mayfly_run.BINARY, "run" if program else "train",
             "--run-dir", folder + "/run", *args, *(["--", *program] if program else [])],
            env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    return Run.attach(folder, process, timeout=timeout)


def pid_of_rank(launcher, rank):
    """The pid of the rank's worker: the child of mpirun with that rank in its environment."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/environ", "rb") as f:
                variables = f.read().split(b"\0")
        except OSError:
            continue
        if parent == launcher.pid and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
            return int(entry)
    raise Failure(f"mpirun has no rank {rank}")


def kill_rank(run, rank):
    mayfly_run.kill(pid_of_rank(run.process, rank))
