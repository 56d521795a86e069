"""What every job has, whatever computes: the library's tasks, how long it is, how it ends."""

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

WAIT_MS = 100  # at most, before Python sees its signals
ABANDONED_SECONDS = 5  # for a coordinator that was asked to end; it takes milliseconds


class Outcome(enum.Enum):
    """How this process's part has ended."""

    DONE = _abi.DONE        # the job has made its last step
    DRAINED = _abi.DRAINED  # this worker was asked to leave; others may go on
    STOPPED = _abi.STOPPED  # the job was stopped; it can be resumed


class Evaluation:
    """What an evaluation of the whole test set has found, on all workers together."""

    def __init__(self, step, samples, correct, loss, sums):
        self.step = step        # after which it was made
        self.samples = samples
        self.correct = correct  # right predictions
        self.loss = loss        # mean over the samples
        self.sums = sums        # name -> total, of those that the evaluation was made with

    def __repr__(self):
        own = f", sums={self.sums}" if self.sums else ""
        return (f"Evaluation(step={self.step}, samples={self.samples}, correct={self.correct}, "
                f"loss={self.loss:.6g}{own})")


class Microbatch:
    """One microbatch: which samples, and a seed that is the same whoever computes it."""

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
    """For people: a name of a file that is not UTF-8 has halves of characters in Python."""
    return text.encode("utf-8", "replace")


def whole(name, value):
    if not hasattr(value, "__index__"):  # NumPy's whole numbers have it
        raise Refused(f"{name} is {value}, and not a whole number")
    return operator.index(value)


def right_of(correct):
    """A number of right predictions. A share of them would become 0."""
    number = int(correct)
    if number != float(correct) or number < 0:
        raise Refused(f"correct is {correct}, and not a number of right predictions")
    return number


class Core:
    """The library's job. One in a process."""

    _open = None

    def __init__(self):
        if Core._open is not None:
            raise Refused("a process can have one job; start another process for the second")
        self.library = _abi.load()
        self._handle = ctypes.c_void_p()
        self._open_while_used = threading.RLock()  # by leave(), which any thread may call
        self._coordinator = None
        self._environment = {}  # as it was before that was named in it
        self._early_end = None
        self._task = _abi.Task()
        self.outcome = None
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

    def _raise(self, code, text=None):
        text = text or self.library.mf_error(self._handle).decode()
        raise (Refused if code in (_abi.REFUSED, _abi.ABSENT) else MayflyError)(text)

    def _check(self, code):
        if code != _abi.OK:
            self._raise(code)

    @property
    def seed(self):
        return self.library.mf_seed(self._handle)

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
        self._register_names(self.library.mf_register_metrics, names)
        self._metrics = {name: place for place, name in enumerate(names)}

    def register_sums(self, names):
        self._register_names(self.library.mf_register_sums, names)
        self._sums = list(names)

    def _register_names(self, function, names):
        if isinstance(names, str):  # of which each letter would be a name
            raise Refused(f'metrics and sums are lists of names, such as ["{names}"]')
        encoded = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        self._check(function(self._handle, encoded, len(names)))

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
            if getattr(given, name) != value:  # C keeps the lower bits without a word
                raise Refused(f"{name} is {value}, which no job can have")
        if self._early_end is not None:
            self._early_end.over()
        stops = _alone.StopSignals(self._coordinator)
        self._check(self.library.mf_start(self._handle, ctypes.byref(given)))
        self._stops = stops
        stops.begin()  # now, as the library takes SIGTERM for its worker's leave

    def next(self):
        """The next task. Waits, and lets Python handle its signals meanwhile."""
        task = self._task
        task.size = ctypes.sizeof(_abi.Task)
        while True:
            code = self.library.mf_next(self._handle, ctypes.byref(task), WAIT_MS)
            if code == _abi.OK:
                return task
            if code != _abi.TIMEOUT:
                self._raise(code)

    def upcoming(self, most, size):
        """The next microbatches, of `size` samples each, that will probably be asked for."""
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
        """The gradients of the microbatch at hand by their addresses; None = zeros."""
        self._check(self.library.mf_set_weight(self._handle, weight))
        for i, address in enumerate(addresses):
            self._gradients[i] = address
        self._check(self.library.mf_add(self._handle, self._gradients, loss, correct))

    def evaluated(self, correct, loss_sum, sums):
        for place, name in enumerate(self._sums):
            self._check(self.library.mf_set_sum(self._handle, place, sums[name]))
        self._check(self.library.mf_evaluated(self._handle, correct, loss_sum))

    def loaded(self):
        """(tensors as (name, type, shape, bytes), blob) of the state that has come."""
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
        """The newest one, once; else None."""
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
        """The program cannot go on; the others take over when its process ends. False if that is
        known already, or the job has ended."""
        if not self._handle or self._has_failed:
            return False
        self._has_failed = True
        self.library.mf_fail(self._handle, _said(why[-2000:]))
        return True

    def ended(self, task):
        """After the last task: raises if the job has failed."""
        detail = task.detail.decode() if task.detail else ""
        outcome = task.outcome
        if outcome == _abi.LOST and self._coordinator is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._coordinator.wait(2)  # a job that has failed ends by itself
            self.abandon()  # else it would wait for another worker, and we for it
        self.close()
        if outcome == _abi.LOST:
            raise MayflyError(detail or "the job has failed")
        self.outcome = Outcome(outcome)

    def abandon(self):
        """This process is about to end before its job: so does its own coordinator, at once, or
        when it has seen its member go. Nobody would ever end it otherwise."""
        if self._coordinator is not None:
            self._coordinator.terminate()

    @contextlib.contextmanager
    def closed_on_failure(self):
        """A job that cannot be made or begun leaves nothing: a notebook can try again. Ctrl-C may
        come when this process is a member already, whose coordinator waits for its end."""
        try:
            yield
        except BaseException:
            self.abandon()
            self.close(ABANDONED_SECONDS)
            raise

    def close(self, patience=None):
        with self._open_while_used:
            handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:  # nobody has it any more, neither another thread nor a handler of a signal
            self.library.mf_close(handle)
        if self._stops is not None:
            self._stops.end()
        self._end_coordinator(patience)
        Core._open = None

    def _end_coordinator(self, patience):
        if self._early_end is not None:
            self._early_end.over()
        if self._coordinator is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._coordinator.wait(patience)
            self._coordinator = None
            _alone.put_back(self._environment)


class BaseJob:
    """The loop of a job, whatever computes. A derived class sets `_options` for Core.start()."""

    def __init__(self):
        self._core = Core()
        self._options = {}
        self._has_begun = False
        self.evaluations = []  # mayfly.Evaluation of those in which this worker took part, in order

    @property
    def total_steps(self):
        """Of the whole job: for a schedule of the learning rate."""
        return self._options["steps"]

    @property
    def seed(self):
        """The job's (the setting --seed)."""
        return self._core.seed

    @property
    def outcome(self):
        """How this process's part has ended (mayfly.Outcome), after the loop."""
        return self._core.outcome

    def leave(self, reason="asked by the program"):
        """Asks the job to let this worker go at the next step. Any thread."""
        self._core.leave(reason)

    def stop(self):
        """Stops the whole job after the step at hand, with a checkpoint, on all workers: for early
        stopping. The loop then ends by itself, and `outcome` is STOPPED."""
        self._core.stop()

    def note(self, kind, text):
        """An event for events.jsonl of the run directory."""
        self._core.note(kind, text)

    def steps(self):
        """The steps in which this worker takes part: each is iterated, and then the program
        updates its parameters."""
        if self._has_begun:
            raise Refused("the loop over a job's steps is one loop, and this is a second one")
        self._has_begun = True
        with self._core.closed_on_failure():
            self._prepare()
            self._core.start(**self._options)
        while True:
            task = self._next()
            if task.kind == _abi.END:
                break
            if task.kind in (_abi.LOAD, _abi.EVALUATE):
                self._answer(task)
                continue
            step = self._step_of(task)
            try:
                yield step
            except GeneratorExit:
                if step.is_over and not step.updates:  # the loop may break then
                    self._end(self._core.next())
                raise
            if not step.is_over:
                raise Refused(f"the loop has left step {step.number} before all of its "
                              "microbatches were done; each step is iterated to its end")
            if step.updates:
                self._updated()
        self._end(task)

    def _end(self, task):
        self._ended()
        self._core.ended(task)

    def _next(self):
        """The next task, for which the committed values of the buffers are in place."""
        task = self._core.next()
        found = self._core.take_evaluation()
        if found is not None:
            if self.evaluations and self.evaluations[-1].step == found.step:
                del self.evaluations[-1]  # it was made again, after a loss
            self.evaluations.append(found)
        return task

    def _prepare(self):
        """The loop is about to begin."""

    def _ended(self):
        """The loop is over."""

    def _answer(self, task):
        """Takes a state that has come, or evaluates a chunk."""
        raise NotImplementedError

    def _step_of(self, task):
        """The step that begins with this task."""
        raise NotImplementedError

    def _updated(self):
        """The program has updated its parameters."""


class BaseStep:
    """One step: its microbatches, and then the mean gradients.

    number   from 1; while the step is iterated it may become a later one, if a state comes
    updates  whether all microbatches are done, and the gradients are the means over the batch; not
             so in the last step of a worker that leaves in it, which may break then
    loss     the mean loss over the batch, then: the same on all workers; else None
    speaks   true on one worker of the job, then: for what is to be printed once
    """

    def __init__(self, job, task):
        self._job = job
        self._task = task
        self._at_hand = None  # the microbatch that has no result yet
        self.number = task.step
        self.updates = False
        self.is_over = False
        self.loss = None
        self.speaks = False

    def microbatches(self):
        """This member's, as Microbatch: `samples`, `epochs`, `seed`, `number`."""
        task = self._task
        while True:
            self.number = task.step
            if task.kind == _abi.UPDATE:
                self._take_means(task)
                self.loss = task.loss
                self.speaks = bool(task.speaks)
                self.updates = self.is_over = True
                return
            if task.kind == _abi.END:  # in mid-step: this worker leaves, and nothing is updated
                self.is_over = True
                self._left()
                if task.outcome == _abi.LOST:  # now: the loop would go on without a loss
                    self._job._end(task)
                return
            if task.kind in (_abi.LOAD, _abi.EVALUATE):
                self._job._answer(task)
            else:
                self._at_hand = Microbatch.of_task(task)
                yield self._at_hand
                if self._at_hand is not None:
                    raise Refused(f"microbatch {self._at_hand.number} of step {self.number} has "
                                  "no result: the loop gave none to the step")
            task = self._job._next()

    def _add(self, addresses, loss, correct, metrics=None, weight=1):
        self._job._core.set_metrics(metrics or {})
        self._job._core.add(addresses, float(loss), right_of(correct), float(weight))
        self._at_hand = None

    def _take_means(self, task):
        raise NotImplementedError

    def _left(self):
        """There is nothing to update with."""


def _on_uncaught(kind, error, trace):
    """What no handler of the program takes: on record, and a refusal is one line."""
    if Core._open is not None:
        Core._open.failed("".join(traceback.format_exception(kind, error, trace)))
    if not issubclass(kind, Refused):
        return _hook_before(kind, error, trace)
    sys.stdout.flush()
    print(f"mayfly: {error}", file=sys.stderr, flush=True)
    if Core._open is not None:
        Core._open.abandon()  # no handler of atexit is called
    os._exit(2)


def _at_exit():
    """Of a program that ends without having ended its loop. Its coordinator is asked to stop, and
    not waited for: the job ends when this process has, as its last member is lost then."""
    if Core._open is not None:
        text = ("the program has ended before its loop over job.steps() was over; job.stop() ends "
                "a job early, with a checkpoint")
        if Core._open.failed(text):
            sys.stdout.flush()
            print(f"mayfly: {text}", file=sys.stderr, flush=True)
        Core._open.abandon()


def _forget_in_child():
    """A forked process has no threads of the library, and its end is not the worker's; a signal to
    it, such as to a process that reads samples, is not one to the job."""
    if Core._open is not None:
        if Core._open._stops is not None:
            Core._open._stops.end()
        Core._open._handle = ctypes.c_void_p()
        Core._open._open_while_used = threading.RLock()  # a thread that is not here may have it
        Core._open = None


os.register_at_fork(after_in_child=_forget_in_child)
_hook_before = sys.excepthook
sys.excepthook = _on_uncaught
atexit.register(_at_exit)


def steps_of(samples, batch, epochs, steps):
    """How many steps the job has: given, or as many as so many passes over the data need."""
    if batch < 1 or samples < 1:
        raise Refused(f"batch {batch} of {samples} samples: both must be at least 1")
    if (steps is None) == (epochs is None):
        raise Refused("say how long the job is: epochs=10 or steps=1000, one of them")
    if not 0 < (steps or epochs or 0) < math.inf:
        raise Refused(f"{'epochs' if steps is None else 'steps'} must be more than 0, and not "
                      f"{epochs if steps is None else steps}")
    return max(1, round(epochs * samples / batch)) if steps is None else steps


def microbatch_of(batch, microbatch):
    """The microbatch: given, or the largest of at most 32 samples that divides the batch into four
    microbatches at least, so that as many workers have work."""
    batch = whole("batch", batch)
    if microbatch is None:
        most = min(32, max(1, batch // 4))
        microbatch = next(size for size in range(most, 0, -1) if batch % size == 0)
    microbatch = whole("microbatch", microbatch)
    if microbatch < 1 or batch % microbatch != 0:
        raise Refused(f"batch {batch} is not a multiple of microbatch {microbatch}")
    return microbatch

