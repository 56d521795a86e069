"""Runs a program that was not started as a worker as a job of one worker, with a coordinator of its
own. It has the same loop and the same bits, and other workers may join it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from ._abi import Refused

SAY_AFTER_SECONDS = 30
WAIT_SECONDS = 3600  # a large checkpoint on a slow disk takes minutes


def find_program():
    """The path of the program mayfly: named by MAYFLY_PROGRAM, beside the library, or in PATH."""
    if named := os.environ.get("MAYFLY_PROGRAM"):
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    library_folder = os.path.dirname(os.environ.get("MAYFLY_LIBRARY", ""))
    beside = [os.path.join(library_folder, "mayfly")] if library_folder else []
    beside += [os.path.join(here, "_bundle", "mayfly"),
               os.path.join(here, "..", "..", "..", "..", "bin", "mayfly"),
               os.path.join(here, "..", "..", "..", "build", "release", "mayfly")]
    for path in beside:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    found = shutil.which("mayfly")
    if found is None:
        raise Refused("the program mayfly is not installed; install it, or name it with "
                      "MAYFLY_PROGRAM")
    return found


def _new_run_dir():
    """Makes a new folder. It is made here, so that two programs that start at the same time do not
    use the same one."""
    script = os.path.splitext(os.path.basename(sys.argv[0] or "program"))[0] or "program"
    base = os.path.join("runs", f"{script}-{time.strftime('%Y%m%d-%H%M%S')}")
    path = base
    copy = 2
    while True:
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            if not os.path.isdir(path):  # "runs" is a file
                raise Refused(f"{path} cannot be created: a part of it is not a folder") from None
            path = f"{base}-{copy}"
            copy += 1
        except OSError as error:
            raise Refused(f"{path} cannot be made: {error.strerror}") from error


def _holds(process, run_dir):
    """Whether the run directory is locked by `process`, the coordinator that this program has
    started, or by a process in its session."""
    try:
        with open(os.path.join(run_dir, "view.log.lock"), encoding="utf-8") as file:
            return os.getsid(int(file.read())) == process.pid
    except (OSError, ValueError):
        return False


def _mark(path):
    """Identifies the file at this path; it differs for each file that replaces it. None = no
    file."""
    try:
        found = os.stat(path)
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return None


def _wait_for(process, run_dir, place, before):
    """Waits until the coordinator has written its address to `place`, after it has read the
    checkpoint from which the job is resumed. A file of another job, old or new, does not count,
    because this program would become a worker of that job."""
    begin = time.monotonic()
    is_said = False
    while _mark(place) in (None, before) or not _holds(process, run_dir):
        if process.poll() is not None:
            raise Refused(f"the coordinator has ended with exit code {process.returncode}")
        waited = time.monotonic() - begin
        if waited > WAIT_SECONDS:
            raise Refused(f"the coordinator has not begun within {WAIT_SECONDS} s")
        if waited > SAY_AFTER_SECONDS and not is_said:
            is_said = True
            print(f"mayfly: waiting for the coordinator in {run_dir}; it may be reading a large "
                  "checkpoint", file=sys.stderr, flush=True)
        time.sleep(0.01)


def start_coordinator():
    """Starts a coordinator and sets the variables that name it to the library. Returns its process,
    which ends with the job, and the argument for put_back()."""
    program = find_program()
    wanted = os.environ.get("MAYFLY_RUN_DIR")
    is_theirs = bool(wanted) and os.path.isdir(wanted)
    run_dir = wanted or _new_run_dir()
    command = [program, "coordinator", "--model", "program", "--run-dir", run_dir, "--workers", "1",
               "--bind-host", "127.0.0.1"]
    own = {name: value for name, value in os.environ.items() if name != "MAYFLY_RUN_DIR"}
    own["MAYFLY_OWNER_PID"] = str(os.getpid())  # with which it ends, also if this one is killed
    place = os.path.join(run_dir, "coordinator")
    before = _mark(place)
    process = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, start_new_session=True)
    early_end = EarlyEnd(process)
    try:
        _wait_for(process, run_dir, place, before)
    except BaseException:  # Ctrl-C as well
        process.terminate()
        if not is_theirs:
            with contextlib.suppress(OSError):
                os.rmdir(run_dir)  # it is empty: a coordinator that cannot start removes its files
        raise
    finally:
        early_end.over()  # the caller creates another EarlyEnd
    with open(place, encoding="utf-8") as file:
        named = {"MAYFLY_COORDINATOR": file.read().strip(),
                 "MAYFLY_JOB_FILE": os.path.abspath(os.path.join(run_dir, "config.toml")),
                 "MAYFLY_LAUNCHED": "true"}
    before = {name: os.environ.get(name) for name in named}
    os.environ.update(named)
    return process, before


def put_back(before):
    """Restores the environment, so that the process's next job does not use this coordinator."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class EarlyEnd:
    """Before the loop of a program that has started its own coordinator, SIGTERM also ends the
    coordinator, which would wait for members for ever. Does nothing if the program has a handler of
    its own."""

    def __init__(self, coordinator):
        self._coordinator = coordinator
        if (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL):
            signal.signal(signal.SIGTERM, self._end)

    def over(self):
        """Removes the handler, when the loop begins or another object handles the signal."""
        if (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == self._end):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _end(self, number, frame):
        self._coordinator.terminate()  # no effect in a forked process, of which it is not a child
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class StopSignals:
    """In a program that has started its own coordinator, Ctrl-C and SIGTERM stop the job with a
    checkpoint; a second signal ends the program at once. Does nothing if the program was started as
    a worker (`coordinator` is None), if it has handlers of its own, and outside the main thread, in
    which alone Python handles signals."""

    def __init__(self, coordinator):
        self._coordinator = coordinator
        mine = (coordinator is not None
                and threading.current_thread() is threading.main_thread())
        plain = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        self._taken = {number: handler for number, handler in plain.items()
                       if mine and signal.getsignal(number) == handler}

    def begin(self):
        for number in self._taken:
            signal.signal(number, self._stop)

    def end(self):
        for number, handler in self._taken.items():
            if signal.getsignal(number) == self._stop:
                signal.signal(number, handler)
        self._taken = {}

    def _stop(self, number, frame):
        self.end()
        self._coordinator.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # print() raises an error if it has interrupted another
            os.write(2, b"mayfly: stopping with a checkpoint; interrupt again to end the program "
                        b"at once\n")
