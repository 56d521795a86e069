"""Jobs of programs that compute gradients as NumPy arrays."""

import ctypes
import json

from . import _abi
from ._abi import Refused
from ._job import BaseJob, BaseStep, microbatch_of, steps_of

_TYPES = {"float32": _abi.F32, "float64": _abi.F64, "float16": _abi.F16, "int64": _abi.I64,
          "int32": _abi.I32, "int16": _abi.I16, "int8": _abi.I8, "uint8": _abi.U8,
          "bool": _abi.BOOL}


def _described(arrays):
    """In the order of the names, because dictionaries may have another order on other workers."""
    import numpy
    described = []
    for name in sorted(arrays):
        array = arrays[name]
        if not isinstance(array, numpy.ndarray):
            raise Refused(f"{name} is not a NumPy array, but of the type {type(array).__name__}")
        if not (array.flags["C_CONTIGUOUS"] and array.flags["WRITEABLE"] and array.dtype.isnative
                and array.dtype.name in _TYPES):
            raise Refused(f"array {name} (type {array.dtype}) must be contiguous and writable "
                          "(numpy.array(..., order=\"C\") makes one that is), in the byte order of "
                          "this machine, and of one of the types " + ", ".join(_TYPES))
        described.append((name, _TYPES[array.dtype.name], array.shape, array.ctypes.data))
    return described


def _shown(kind, shape):
    """A description for messages: float32[3, 4]."""
    names = {number: name for name, number in _TYPES.items()}
    return f"{names.get(kind, 'of another type')}{list(shape)}"


class ArrayJob(BaseJob):
    """Trains arrays in place: `parameters[name] -= ...`, not `parameters[name] = ...`.

    parameters  name -> array; the arrays that have a gradient
    buffers     name -> array; changed by the computation of a microbatch, such as running means
    state       name -> array; other arrays that the update reads and changes, such as momentum
    samples     number of samples in the training set
    batch, microbatch, steps or epochs
    metrics     names of metrics; their means over a step are recorded

        for step in job.steps():
            for mb in step:                      # mb.samples, mb.epochs, mb.seed
                step.add(gradients, loss)        # name -> array of float32
            for name, gradient in step.gradients.items():
                parameters[name] -= 0.1 * gradient
    """

    def __init__(self, parameters, *, samples, batch, microbatch=None, steps=None, epochs=None,
                 buffers=None, state=None, metrics=(), data_name="arrays"):
        self.parameters = parameters
        self.state = {} if state is None else state
        buffers = {} if buffers is None else buffers
        # References to all arrays, because the library reads and writes their memory. Made before
        # the job, which an exception here would leave open.
        self._kept = [(what, arrays, dict(arrays)) for what, arrays in
                      (("parameters", parameters), ("buffers", buffers), ("state", self.state))]
        super().__init__()
        with self._core.closed_on_failure():
            self._core.register(_described(parameters), _described(buffers))
            self._core.register_metrics(metrics)
            self._set_state()
            state_bytes = sum(array.nbytes for array in self.state.values())
            self._options = {
                "data_name": data_name.encode(), "train_samples": samples,
                "steps": steps_of(samples, batch, epochs, steps), "global_batch": batch,
                "microbatch": microbatch_of(batch, microbatch),
                "optimizer_bytes": state_bytes + 1024 * (len(self.state) + 8)}

    def _check_kept(self):
        for what, arrays, kept in self._kept:
            for name in [*kept, *arrays]:
                if arrays.get(name) is not kept.get(name):
                    raise Refused(f'{what}["{name}"] was replaced by another array after the job '
                                  'was made; change it in place: '
                                  f'{what}["{name}"][...] = new values')

    _prepare = _updated = _check_kept

    def _step_of(self, task):
        return ArrayStep(self, task)

    def _set_state(self):
        self._core.set_optimizer_state(_described(self.state), json.dumps({}).encode(), 0.0)

    def _answer(self, task):
        """Loads a received state completely or, if it does not fit, not at all."""
        came = self._core.loaded()[0]
        theirs = {name: _shown(kind, shape) for name, kind, shape, _ in came}
        ours = {name: _shown(kind, shape) for name, kind, shape, _ in _described(self.state)}
        for name in sorted(theirs.keys() | ours.keys()):
            if ours.get(name) != theirs.get(name):
                raise Refused(f"the array {name} of the state is {ours.get(name, 'absent')} in "
                              f"this program, and {theirs.get(name, 'absent')} in the state that "
                              "was received from a checkpoint or another worker")
        for name, _, _, content in came:
            ctypes.memmove(self.state[name].ctypes.data, content, len(content))


class ArrayStep(BaseStep):
    """One step: its microbatches, and then `gradients`, the means by name, which the program may
    keep."""

    def __init__(self, job, task):
        super().__init__(job, task)
        self.gradients = {}

    def __iter__(self):
        return self.microbatches()

    def _take_means(self, task):
        import numpy
        for i, name in enumerate(sorted(self._job.parameters)):
            parameter = self._job.parameters[name]
            flat = numpy.ctypeslib.as_array(task.gradients[i], (parameter.size,))
            # A copy, because the library overwrites the means in the next step.
            self.gradients[name] = flat.reshape(parameter.shape).copy()

    def add(self, gradients, loss, correct=0, metrics=None, weight=1):
        """Passes the result of the present microbatch. `gradients`: name -> float32 array of the
        gradient of its mean loss, or None = zeros, for each parameter; `metrics`: name -> value, of
        the metrics that the job has; `weight`: of loss and gradients in the means of the step, such
        as the number of tokens."""
        import numpy
        parameters = self._job.parameters
        for name in sorted(parameters.keys() ^ gradients.keys()):
            raise Refused(f"{name} has no gradient; None stands for zeros" if name in parameters
                          else f"a gradient of {name}, which is not a parameter")
        addresses, kept = [], []
        for name in sorted(parameters):
            parameter = parameters[name]
            if gradients[name] is None:
                addresses.append(None)
                continue
            gradient = numpy.asarray(gradients[name])  # without dimensions it may be a number
            kept.append(gradient)
            if gradient.dtype.name != "float32" or not gradient.dtype.isnative or (
                    not gradient.flags["C_CONTIGUOUS"] or gradient.shape != parameter.shape):
                raise Refused(f"the gradient of {name} ({gradient.dtype}{list(gradient.shape)}) is "
                              "not a contiguous array of float32 with the parameter's shape, "
                              f"{list(parameter.shape)}")
            addresses.append(gradient.ctypes.data)
        self._add(addresses, loss, correct, metrics, weight)
        del kept  # their memory was needed until now
