"""Starts jobs under mpirun, with the command lines that docs/mpi.md gives."""
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import Failure, Run


# A script that mpirun starts as a rank, and that runs the rank's program without `exec`.
SCRIPT = ["sh", "-c", '"$0" "$@"; exit $?']


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


def start(ranks, args, options=("--enable-recovery",), timeout=120, program=(), script=()):
    """Starts `mpirun OPTIONS -np RANKS mayfly train ARGS` (with `program`: `mayfly run ARGS --
    PROGRAM`; with `script`: that starts mayfly); returns a Run."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    with open(folder + "/output.txt", "wb") as output:
        process = subprocess.Popen(
            [*command(ranks, options), *script, mayfly_run.BINARY, "run" if program else "train",
             "--run-dir", folder + "/run", *args, *(["--", *program] if program else [])],
            env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    return Run.attach(folder, process, timeout=timeout)


def read(path):
    """The content of a file under /proc; empty if the process has ended."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def state_and_parent(pid):
    """The letter of a process's state, and its parent; (None, None) if it does not exist."""
    stat = read(f"/proc/{pid}/stat").decode(errors="replace")
    if not stat:
        return None, None
    state, parent = stat.rsplit(")", 1)[1].split()[:2]
    return state, int(parent)


def has_ended(pid):
    return state_and_parent(pid)[0] in (None, "Z")


def children(pid):
    """The pids of the children of this process."""
    return [int(entry) for entry in filter(str.isdigit, os.listdir("/proc"))
            if state_and_parent(entry)[1] == pid]


def child_named(name, pid):
    """The pid of the child of this process with that name."""
    for child in children(pid):
        if read(f"/proc/{child}/comm").strip() == name.encode():
            return child
    raise Failure(f"process {pid} has no child {name}")


def child_of_rank(pid, rank):
    """The pid of the child of this process with that rank in its environment."""
    for child in children(pid):
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in read(f"/proc/{child}/environ").split(b"\0"):
            return child
    raise Failure(f"process {pid} has started no rank {rank}")


def pid_of_rank(launcher, rank):
    """The pid of the rank's worker: a child of mpirun, or of the script that is one."""
    pid = child_of_rank(launcher.pid, rank)
    program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return pid if program == os.path.basename(mayfly_run.BINARY) else child_of_rank(pid, rank)


def kill_rank(run, rank):
    mayfly_run.kill(pid_of_rank(run.process, rank))
