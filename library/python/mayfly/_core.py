"""The library's job in Python: its tasks, its use of signals and exit handlers, and its end."""

import atexit
import contextlib
import ctypes
import enum
import math
import operator
import os
import subprocess
import sys
import threading
import traceback

from . import _abi, _alone
from ._abi import MayflyError, Refused

WAIT_MS = 100  # the longest time in which Python cannot handle signals
ABANDONED_SECONDS = 5  # wait for a coordinator that was asked to end; it takes milliseconds


class Outcome(enum.Enum):
    """Why this process has left the job."""

    DONE = _abi.DONE        # the job has committed its last step
    DRAINED = _abi.DRAINED  # this worker was asked to leave; other workers may continue
    STOPPED = _abi.STOPPED  # the job was stopped; it can be resumed


class Evaluation:
    """The result of an evaluation on the whole test set, over all workers."""

    def __init__(self, step, samples, correct, loss, sums):
        self.step = step        # after which the state was evaluated
        self.samples = samples
        self.correct = correct  # number of correct predictions
        self.loss = loss        # mean over the samples
        self.sums = sums        # name -> total, of the further sums of the evaluation

    def __repr__(self):
        own = f", sums={self.sums}" if self.sums else ""
        return (f"Evaluation(step={self.step}, samples={self.samples}, correct={self.correct}, "
                f"loss={self.loss:.6g}{own})")


class Microbatch:
    """One microbatch: its samples, and a seed that is the same on every worker."""

    def __init__(self, step, number, seed, samples, epochs):
        self.step = step
        self.number = number
        self.seed = seed
        self.samples = samples
        self.epochs = epochs

    @classmethod
    def of_task(cls, task):
        count = task.sample_count
        return cls(task.step, task.number, task.seed, task.samples[:count], task.epochs[:count])


def _said(text):
    """Encodes a text for messages. It may contain a file name that is not UTF-8, in which Python
    has surrogates."""
    return text.encode("utf-8", "replace")


def whole(name, value):
    if not hasattr(value, "__index__"):  # NumPy's integers have it, too
        raise Refused(f"{name} is {value}, and not a whole number")
    return operator.index(value)


def correct_count(correct):
    """Checks a number of correct predictions: a share of them would be rounded to 0."""
    number = int(correct)
    if number != float(correct) or number < 0:
        raise Refused(f"correct is {correct}, and not a number of correct predictions")
    return number


def slot():
    """Which of the workers on its host this one is, from 0: the lowest number that no other one of
    the job had there when it was started. For the choice of a GPU, also before there is a job. 0
    if nobody has said it, as for a program that is started alone."""
    return int(os.environ.get("MAYFLY_SLOT") or 0)


class Core:
    """The library's job. A process can have one."""

    _open = None
    _left = None  # the library uses the memory of a job that has begun until it has ended

    def __init__(self, job=None):
        if Core._open is not None or Core._left is not None:
            raise Refused("a process can have one job: call its close() if its loop has not begun, "
                          "or start another process for the second (in a notebook another kernel)")
        self.job = job  # has references to the memory that the library uses
        self.library = _abi.load()
        self._handle = ctypes.c_void_p()
        self._open_while_used = threading.RLock()  # by leave(), which any thread may call
        self._coordinator = None
        self._environment = {}  # the variables that name the coordinator, as they were before
        self._early_end = None
        self._task = _abi.Task()
        self.outcome = None
        self.when_failed = None  # called once if the program fails
        self._has_failed = False
        self._sums = []
        self._stops = None
        with self.closed_on_failure():
            self._connect()
            Core._open = self

    def _connect(self):
        text = ctypes.create_string_buffer(2000)
        code = self.library.mf_open(ctypes.byref(self._handle), text, len(text))
        if code == _abi.ABSENT:
            self._coordinator, self._environment = _alone.start_coordinator()
            self._early_end = _alone.EarlyEnd(self._coordinator)
            code = self.library.mf_open(ctypes.byref(self._handle), text, len(text))
        if code != _abi.OK:
            self._raise(code, text.value.decode())
        # Kept, because programs also read it after the job, and in processes that read samples.
        self.seed = self.library.mf_seed(self._handle)

    def _raise(self, code, text=None):
        text = text or self.library.mf_error(self._handle).decode()
        raise (Refused if code in (_abi.REFUSED, _abi.ABSENT) else MayflyError)(text)

    def _check(self, code):
        if code != _abi.OK:
            self._raise(code)

    def require_equal(self, name, value):
        self._check(self.library.mf_require_equal(self._handle, name.encode(),
                                                  str(value).encode()))

    def register(self, parameters, buffers):
        for described, function in ((parameters, self.library.mf_register_parameters),
                                    (buffers, self.library.mf_register_buffers)):
            array, kept = _abi.tensors(described)
            self._check(function(self._handle, array, len(described)))
            del kept
        self._gradients = (ctypes.c_void_p * len(parameters))()

    def register_metrics(self, names):
        names = self._register_names(self.library.mf_register_metrics, names)
        self._metrics = {name: place for place, name in enumerate(names)}

    def register_sums(self, names):
        self._sums = self._register_names(self.library.mf_register_sums, names)

    def _register_names(self, function, names):
        if isinstance(names, str):  # each letter would be a name
            raise Refused(f'metrics and sums are lists of names, such as ["{names}"]')
        is_set = isinstance(names, (set, frozenset))  # has another order on each worker
        names = sorted(names) if is_set else list(names)
        encoded = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        self._check(function(self._handle, encoded, len(names)))
        return names

    def set_metrics(self, values):
        for name, value in values.items():
            if name not in self._metrics:
                raise Refused(f"the metric {name} was not named when the job was made")
            self._check(self.library.mf_set_metric(self._handle, self._metrics[name],
                                                   float(value)))

    def set_optimizer_state(self, described, blob, learning_rate):
        array, kept = _abi.tensors(described)
        self._check(self.library.mf_set_optimizer_state(self._handle, array, len(described), blob,
                                                        len(blob), learning_rate))
        del kept

    def start(self, **options):
        given = _abi.Options(size=ctypes.sizeof(_abi.Options))
        for name, value in options.items():
            setattr(given, name, value if isinstance(value, bytes) else whole(name, value))
            if getattr(given, name) != value:  # ctypes silently drops the upper bits
                raise Refused(f"{name} is {value}, which no job can have")
        if self._early_end is not None:
            self._early_end.over()
        stops = _alone.StopSignals(self._coordinator)
        self._check(self.library.mf_start(self._handle, ctypes.byref(given)))
        self._stops = stops
        stops.begin()  # after mf_start(), whose own handler of SIGTERM asks for the worker's leave

    def next(self):
        """Waits for the next task. Python handles its signals meanwhile."""
        task = self._task
        task.size = ctypes.sizeof(_abi.Task)
        while True:
            code = self.library.mf_next(self._handle, ctypes.byref(task), WAIT_MS)
            if code == _abi.OK:
                return task
            if code != _abi.TIMEOUT:
                self._raise(code)

    def upcoming(self, most, size):
        """The next microbatches, of `size` samples each, that this worker will probably compute."""
        found = (_abi.Upcoming * most)()
        count = ctypes.c_size_t()
        self._check(self.library.mf_peek(self._handle, found, most, ctypes.byref(count)))
        numbers = ctypes.c_uint64 * size
        ahead = []
        for one in found[:count.value]:
            samples, epochs = numbers(), numbers()
            self._check(self.library.mf_samples(self._handle, one.step, one.number, samples,
                                                epochs))
            ahead.append(Microbatch(one.step, one.number, one.seed, list(samples), list(epochs)))
        return ahead

    def add(self, addresses, loss, correct, weight):
        """Passes the gradients of the present microbatch by their addresses; None = zeros."""
        self._check(self.library.mf_set_weight(self._handle, weight))
        for i, address in enumerate(addresses):
            self._gradients[i] = address
        self._check(self.library.mf_add(self._handle, self._gradients, loss, correct))

    def evaluated(self, correct, loss_sum, sums):
        for place, name in enumerate(self._sums):
            self._check(self.library.mf_set_sum(self._handle, place, sums[name]))
        self._check(self.library.mf_evaluated(self._handle, correct, loss_sum))

    def loaded(self):
        """(tensors as (name, type, shape, bytes), blob) of the received state."""
        state = _abi.LoadedState(size=ctypes.sizeof(_abi.LoadedState))
        self._check(self.library.mf_loaded(self._handle, ctypes.byref(state)))
        found = []
        for tensor in state.tensors[:state.tensor_count]:
            shape = tuple(tensor.shape[:tensor.dimensions])
            size = math.prod(shape) * _abi.ELEMENT_BYTES[tensor.type]
            found.append((tensor.name.decode(), tensor.type, shape,
                          _abi.bytes_at(tensor.data, size)))
        blob = _abi.bytes_at(state.blob, state.blob_bytes)
        return found, blob

    def take_evaluation(self):
        """The newest evaluation, which is returned once; else None."""
        found = _abi.EvaluationResult(size=ctypes.sizeof(_abi.EvaluationResult))
        code = self.library.mf_take_evaluation(self._handle, ctypes.byref(found))
        if code == _abi.TIMEOUT:
            return None
        self._check(code)
        totals = (ctypes.c_double * len(self._sums))()
        self._check(self.library.mf_total_sums(self._handle, totals, len(self._sums)))
        return Evaluation(found.step, found.samples, found.correct,
                          found.loss_sum / max(1, found.samples),
                          dict(zip(self._sums, totals)))

    def stop(self):
        self._check(self.library.mf_stop(self._handle))

    def leave(self, reason):
        with self._open_while_used:
            self._check(self.library.mf_leave(self._handle, _said(reason)))

    def note(self, kind, text):
        self._check(self.library.mf_note(self._handle, _said(kind), _said(text)))

    def failed(self, why):
        """The program cannot go on, and the others take over. False if that is known already, or
        the job has ended."""
        if not self._handle or self._has_failed:
            return False
        self._has_failed = True
        self.library.mf_fail(self._handle, _said(why[-2000:]))
        if self.when_failed is not None:
            self.when_failed()
        return True

    def ended(self, task):
        """To be called after the last task: raises if the job has failed."""
        detail = task.detail.decode() if task.detail else ""
        outcome = task.outcome
        if outcome == _abi.LOST and self._coordinator is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._coordinator.wait(2)  # the coordinator of a failed job ends by itself
            self.abandon()  # otherwise it would wait for another worker, and close() for it
        self.close()
        if outcome == _abi.LOST:
            raise MayflyError(detail or "the job has failed")
        self.outcome = Outcome(outcome)

    def abandon(self):
        """Ends the coordinator that this process has started, because the process is about to end
        before its job. The coordinator ends at once or after its member has left; without this it
        would never end."""
        if self._coordinator is not None:
            self._coordinator.terminate()

    def close_early(self, why):
        """Before the end of the job: this worker's part is over, and so is a coordinator of ours.
        The process can have another job if the loop has not begun."""
        if self._handle:
            Core._left = self if self._stops is not None else None
            self.failed(why)
            self.abandon()
            self.close(ABANDONED_SECONDS)

    @contextlib.contextmanager
    def closed_on_failure(self):
        """Closes the job if it cannot be created or started, so that a notebook can try again.
        After Ctrl-C the process may already be a member; its coordinator waits until it ends."""
        try:
            yield
        except BaseException:
            self.abandon()
            self.close(ABANDONED_SECONDS)
            raise

    def close(self, patience=None):
        with self._open_while_used:
            handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:  # no other thread and no signal handler can use it any more
            self.library.mf_close(handle)
        if self._stops is not None:
            self._stops.end()
        Core._open = None
        self._end_coordinator(patience)

    def _end_coordinator(self, patience):
        """Waits for it. Before that, everything is as before the job, for Ctrl-C in a notebook."""
        if self._early_end is not None:
            self._early_end.over()
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            _alone.put_back(self._environment)
            with contextlib.suppress(subprocess.TimeoutExpired):
                coordinator.wait(patience)


def _on_uncaught(kind, error, trace):
    """Records an exception that the program does not catch. A refusal is printed as one line."""
    if Core._open is not None:
        Core._open.failed("".join(traceback.format_exception(kind, error, trace)))
    if not issubclass(kind, Refused):
        return _hook_before(kind, error, trace)
    sys.stdout.flush()
    print(f"mayfly: {error}", file=sys.stderr, flush=True)
    if Core._open is not None:
        Core._open.abandon()  # os._exit() calls no handlers of atexit
    os._exit(2)


def _at_exit():
    """Handles the end of a program that has not ended its loop. It asks the program's coordinator
    to stop and does not wait for it: the job ends when its last member, this process, has ended."""
    if Core._open is not None:
        text = ("the program has ended before its loop over job.steps() was over; job.stop() ends "
                "a job early, with a checkpoint")
        if Core._open.failed(text):
            sys.stdout.flush()
            print(f"mayfly: {text}", file=sys.stderr, flush=True)
        Core._open.abandon()


def _forget_in_child():
    """Detaches a forked process from the job: it has no threads of the library, its end is not the
    worker's, and signals to it, such as to a process that reads samples, do not concern the job."""
    if Core._open is not None:
        if Core._open._stops is not None:
            Core._open._stops.end()
        Core._open._handle = ctypes.c_void_p()
        Core._open._open_while_used = threading.RLock()  # a thread of the parent may have locked it
        Core._open = None


os.register_at_fork(after_in_child=_forget_in_child)
_hook_before = sys.excepthook
sys.excepthook = _on_uncaught
atexit.register(_at_exit)
