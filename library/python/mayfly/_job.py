"""The base classes of all jobs: the loop over the steps, and the length of the job."""

import math
import sys

from . import _abi
from ._abi import Refused
from ._core import Core, Microbatch, correct_count, whole


class BaseJob:
    """The loop of a job. Derived classes compute, and set `_options` for Core.start()."""

    def __init__(self):
        self._core = Core(self)
        self._options = {}
        self._has_begun = False
        self.evaluations = []  # mayfly.Evaluation, of those that this worker helped to compute

    @property
    def total_steps(self):
        """The number of steps of the whole job, for a schedule of the learning rate."""
        return self._options["steps"]

    @property
    def seed(self):
        """The job's seed (the setting --seed)."""
        return self._core.seed

    @property
    def outcome(self):
        """Why this process has left the job (mayfly.Outcome); set after the loop."""
        return self._core.outcome

    def leave(self, reason="requested by the program"):
        """Asks the coordinator to release this worker after the present step. Any thread."""
        self._core.leave(reason)

    def stop(self):
        """Stops the whole job on all workers after the present step, with a checkpoint: for early
        stopping. The loop then ends by itself, and `outcome` is STOPPED."""
        self._core.stop()

    def close(self):
        """Ends this worker's part before the end of the job, and a coordinator of its own; others
        go on. For a notebook: a job whose loop has not begun can then be made anew."""
        self._core.close_early("the program has closed its job before its end")

    def note(self, kind, text):
        """Records an event in events.jsonl of the run directory."""
        self._core.note(kind, text)

    def steps(self):
        """The steps of this worker. The program iterates each one and then updates its
        parameters."""
        if self._has_begun:
            raise Refused("a job has only one loop over its steps, and this is a second one")
        self._has_begun = True
        with self._core.closed_on_failure():
            self._prepare()
            self._core.start(**self._options)
        try:
            yield from self._all_steps()
        except BaseException as error:
            if hasattr(sys, "ps1"):  # in a notebook the process goes on, and nobody hears of it
                why = "" if isinstance(error, GeneratorExit) else f": {error!r}"
                self._core.close_early("the loop over job.steps() was left" + why)
            raise

    def _all_steps(self):
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
                if step.is_over and not step.updates:  # the program may break the loop in this case
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
        """The next task. The buffers have been set to the committed values."""
        task = self._core.next()
        found = self._core.take_evaluation()
        if found is not None:
            if self.evaluations and self.evaluations[-1].step == found.step:
                del self.evaluations[-1]  # the evaluation was repeated after a loss
            self.evaluations.append(found)
        return task

    def _prepare(self):
        """Called before the loop begins."""

    def _ended(self):
        """Called when the loop is over."""

    def _answer(self, task):
        """Loads a received state, or evaluates a chunk."""
        raise NotImplementedError

    def _step_of(self, task):
        """The step that begins with this task."""
        raise NotImplementedError

    def _updated(self):
        """Called when the program has updated its parameters."""


class BaseStep:
    """One step: its microbatches, and then the mean gradients.

    number   from 1; it may become a later one during the iteration, if a state is received
    updates  whether all microbatches are done, and the gradients are the means over the batch;
             false if this worker leaves within the step: then the program may break its loop
    loss     if `updates`: the mean loss over the batch, the same on all workers; else None
    speaks   if `updates`: true on exactly one worker of the job, which may print results
    """

    def __init__(self, job, task):
        self._job = job
        self._task = task
        self._current = None  # the present microbatch, until it has a result
        self.number = task.step
        self.updates = False
        self.is_over = False
        self.loss = None
        self.speaks = False

    def microbatches(self):
        """The microbatches of this worker, as Microbatch: `samples`, `epochs`, `seed`, `number`."""
        task = self._task
        while True:
            self.number = task.step
            if task.kind == _abi.UPDATE:
                self._take_means(task)
                self.loss = task.loss
                self.speaks = bool(task.speaks)
                self.updates = self.is_over = True
                return
            if task.kind == _abi.END:  # this worker leaves within the step, without an update
                self.is_over = True
                self._left()
                if task.outcome == _abi.LOST:  # raises here, as `loss` would be None after the step
                    self._job._end(task)
                return
            if task.kind in (_abi.LOAD, _abi.EVALUATE):
                self._job._answer(task)
            else:
                self._current = Microbatch.of_task(task)
                yield self._current
                if self._current is not None:
                    raise Refused(f"microbatch {self._current.number} of step {self.number} has "
                                  "no result: the loop passed none to the step")
            task = self._job._next()

    def _add(self, addresses, loss, correct, metrics=None, weight=1):
        self._job._core.set_metrics(metrics or {})
        self._job._core.add(addresses, float(loss), correct_count(correct), float(weight))
        self._current = None

    def _take_means(self, task):
        raise NotImplementedError

    def _left(self):
        """Called when the step ends without mean gradients."""


def steps_of(samples, batch, epochs, steps):
    """The number of steps of the job: `steps`, or as many as `epochs` passes over the data need."""
    if batch < 1 or samples < 1:
        raise Refused(f"batch {batch} of {samples} samples: both must be at least 1")
    if (steps is None) == (epochs is None):
        raise Refused("give the length of the job: either epochs=10 or steps=1000")
    if not 0 < (steps or epochs or 0) < math.inf:
        raise Refused(f"{'epochs' if steps is None else 'steps'} must be more than 0, and not "
                      f"{epochs if steps is None else steps}")
    return max(1, round(epochs * samples / batch)) if steps is None else steps


def microbatch_of(batch, microbatch):
    """The size of a microbatch: `microbatch`, or the largest size up to 32 that divides the batch
    into at least four microbatches, so that four workers have work."""
    batch = whole("batch", batch)
    if microbatch is None:
        most = min(32, max(1, batch // 4))
        microbatch = next(size for size in range(most, 0, -1) if batch % size == 0)
    microbatch = whole("microbatch", microbatch)
    if microbatch < 1 or batch % microbatch != 0:
        raise Refused(f"batch {batch} is not a multiple of microbatch {microbatch}")
    return microbatch

