"""`mayfly.torch.Job`: the user writes the training loop. Its two iterators assign microbatches and
handle lost and joining workers and the transfer of states."""

import collections
import copy

import numpy
import torch

from .. import _abi
from .._abi import Refused
from .._core import Microbatch, correct_count, whole
from .._job import BaseJob, BaseStep, microbatch_of, steps_of
from .checkpoint import unpickled
from .facts import facts
from .held import Held
from .loader import Loader, host_generators_kept, seed_host, seed_of
from .mirrors import Gradients, Mirrors
from .states import (hash_of, is_of_parameter, put_types_back, saved, take, tensors_in,
                     without_functions)

TYPES = {torch.float32: _abi.F32, torch.float64: _abi.F64, torch.float16: _abi.F16,
         torch.bfloat16: _abi.BF16, torch.int64: _abi.I64, torch.int32: _abi.I32,
         torch.int16: _abi.I16, torch.int8: _abi.I8, torch.uint8: _abi.U8, torch.bool: _abi.BOOL}
OF_TYPE = {number: kind for kind, number in TYPES.items()}
BLOB_BYTES = 64 << 10  # at least, for what is no tensor
EXTRA_GROWTH_MAX = 64 << 20  # large parts, such as mean weights, have their size from the beginning
# Before the name of each part that is no tensor of the optimizer: members compare the part's hash.
HASH_NAME = "mayfly.hash"


def _describe(name, tensor):
    if tensor.is_sparse or tensor.layout != torch.strided:
        raise Refused(f"{name} is sparse; only dense tensors are trained")
    if tensor.dtype not in TYPES:
        raise Refused(f"{name} is of the type {tensor.dtype}, which is not known")
    return name, TYPES[tensor.dtype], tuple(tensor.shape), tensor.data_ptr()


def _owned(items):
    """Tensors that are registered, those with two names once. One without elements, such as models
    find their device by, has nothing to train."""
    seen = set()
    for name, tensor in items:
        if id(tensor) not in seen and tensor.numel() > 0:
            seen.add(id(tensor))
            yield name, tensor


def _check_data(data):
    if isinstance(data, torch.utils.data.DataLoader):
        raise Refused("data is a DataLoader; give the job its data set: the job decides the order "
                      "of samples, the batches, and which process reads them")
    if isinstance(data, torch.utils.data.IterableDataset) or not (
            hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise Refused("data has no length or no index: the samples of a step are chosen by their "
                      "number; index the records of a stream")


def _check_modules(model):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise Refused("SyncBatchNorm exchanges statistics by itself; use BatchNorm, whose "
                          "statistics the job averages")
        if (isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))
                and module.max_norm is not None and module.weight.requires_grad):
            layer = f"the layer {name}" if name else "the model"
            raise Refused(f"{layer} has a max_norm: it would change its weights while a microbatch "
                          "is computed, and other ones on each worker; limit them after "
                          "optimizer.step()")


class Job(BaseJob):
    """An elastic job that trains `model`.

    model       a torch.nn.Module with equal initial values on all workers (seed it); on the CPU, or
                on the GPU of this worker, to which the loop then has to move x and y
    optimizer   any optimizer with a state_dict, of all parameters that require a gradient
    scheduler   steps once a step; None = none
    data        a data set with len() and [index]; the job determines the order of samples
    batch       samples of a step, over all workers, for any number of them
    microbatch  samples that are computed at once (by default the largest number up to 32 that
                divides the batch into at least four microbatches)
    epochs      passes over the data, rounded to whole steps; or `steps`, of the whole job
    extra       name -> another object with state_dict() and load_state_dict(), such as mean
                weights, that does not change in a microbatch
    collate     makes a batch of samples (default: torch's)
    metrics     names of metrics of each microbatch; their means over a step are recorded
    num_workers processes that read samples ahead; 0 = this process reads them when it needs them

        for step in job.steps():
            for x, y in step:                # this worker's microbatches
                loss = F.cross_entropy(model(x), y)
                step.backward(loss)          # zero_grad, backward, exact sum
            optimizer.step()                 # .grad is the mean over the batch
            scheduler.step()
            if step.speaks:                  # on one worker
                print(step.number, step.loss)

    See also evaluations, total_steps, seed, outcome, evaluation(), check(), leave(), stop(), note()
    and mayfly.torch.job.Step.
    """

    def __init__(self, model, optimizer, scheduler=None, *, data, batch, microbatch=None,
                 epochs=None, steps=None, extra=None, collate=None, num_workers=0, metrics=(),
                 data_name=None):
        _check_data(data)
        _check_modules(model)
        if whole("num_workers", num_workers) < 0:
            raise Refused(f"num_workers is {num_workers}, and must be at least 0")
        self._extra = dict(extra or {})  # before the job is made, which an error would leave open
        super().__init__()
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self._loader = Loader(data, collate, num_workers)
        self._core.when_failed = self._loader.abandon
        self._evaluation = None
        with self._core.closed_on_failure():
            self._microbatch = microbatch_of(batch, microbatch)
            self._register()
            self._core.register_metrics(metrics)
            self._hand_over_state()
            self._options = {
                "data_name": (data_name or type(data).__name__).encode(),
                "train_samples": len(data), "steps": steps_of(len(data), batch, epochs, steps),
                "global_batch": batch, "microbatch": self._microbatch,
                "optimizer_bytes": self._state_bytes_max()}

    def _register(self):
        """Registers the model's tensors, and the properties that must be equal on all workers."""
        model = self.model
        self._parameters = [(name, p) for name, p in _owned(model.named_parameters())
                            if p.requires_grad]
        kept = {name for name in model.state_dict()}
        self._frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
        buffers = [(name, b) for name, b in _owned(list(model.named_buffers()) + self._frozen)
                   if name in kept]
        first_names = {id(tensor): name for name, tensor in self._parameters + buffers}
        self._tied = {name: first_names[id(tensor)]
                      for name, tensor in model.state_dict(keep_vars=True).items()
                      if first_names.get(id(tensor), name) != name}
        self._empty = [(name, tensor) for name, tensor in [*model.named_parameters(),
                                                           *model.named_buffers()]
                       if name in kept and tensor.numel() == 0]
        self._check_ids()
        self._held = Held(model, self._parameters + buffers + self._empty)
        self._parameter_mirrors, self._buffer_mirrors = Mirrors(), Mirrors()
        self._optimizer_mirrors = Mirrors()
        self._gradients = Gradients(self._parameters)
        described = [[_describe(name, tensor) for name, tensor in mirrors.follow(tensors)]
                     for mirrors, tensors in ((self._parameter_mirrors, self._parameters),
                                              (self._buffer_mirrors, buffers))]
        self._buffer_mirrors.read()
        self._parameter_mirrors.read()
        self._core.register(*described)
        devices = {tensor.device for _, tensor in self._parameters + buffers}
        for name, value in facts(self.optimizer, devices).items():
            self._core.require_equal(name, value)

    def evaluation(self, data, chunk=None, collate=None, sums=()):
        """Decorates f(x, y) -> (correct predictions, sum of the losses) over a batch of `data`.
        f is called for this worker's share of `data`, without gradients, with the model and the
        modules of `extra` in eval mode, and with seeds that depend only on the samples. It is tried
        on the first batch when the loop begins. The results are in `evaluations`.

        `sums`: names of further sums, such as ("intersection", "union"). f then returns a third
        value, name -> sum over the batch, and the totals are in `sums` of an evaluation."""
        if len(data) < 1:
            raise Refused("the data set of the evaluation is empty")
        if chunk is not None and whole("chunk", chunk) < 1:
            raise Refused(f"chunk is {chunk}, and must be at least 1")
        if self._evaluation:
            raise Refused("a job has one evaluation, and this is a second one; `sums` has further "
                          "figures of it")

        def take(function):
            self._core.register_sums(sums)
            self._evaluation = (Loader(data, collate), function, tuple(sums))
            self._options["test_samples"] = len(data)
            self._options["test_chunk"] = min(len(data), chunk or 4 * self._microbatch)
            return function
        return take

    def check(self, loss_of, times=2):
        """Computes a microbatch `times` times, with other samples in between, and raises Refused
        with the first parameter whose gradients do not have the same bits. `loss_of(x, y)` returns
        the loss that the loop passes to step.backward(). To be called before the loop; restores the
        model's state and the generators."""
        before = {name: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
                  for name, value in self.model.state_dict().items()}  # may contain extra state

        def put_back():  # a module may keep and change the object that it loads
            self.model.load_state_dict(copy.deepcopy(before))

        count = min(self._microbatch, self._options["train_samples"])
        samples, others = list(range(count)), list(range(count))[::-1]
        found = []
        gpus = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
        try:
            with host_generators_kept(), torch.random.fork_rng(gpus):
                for _ in range(times):
                    for chosen in (others, samples):
                        put_back()
                        batch = self._loader.batch(Microbatch(0, 0, 0, chosen, [0] * count),
                                                   self.seed)
                        seed(self.seed)
                        for _, p in self._parameters:
                            p.grad = None
                        loss_of(*_arguments(batch)).backward()
                    found.append([None if p.grad is None else p.grad.clone()
                                  for _, p in self._parameters])
        finally:
            put_back()
            for _, p in self._parameters:
                p.grad = None
        for other in found[1:]:
            for (name, _), a, b in zip(self._parameters, found[0], other):
                if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
                    raise Refused(f"the gradient of {name} differs each time the same microbatch "
                                  "is computed: something in the model is neither a function of "
                                  "its state nor drawn from torch, numpy or random")

    def _step_of(self, task):
        return Step(self, task)

    def _next(self):
        self._held.put_back()
        task = super()._next()
        self._buffer_mirrors.write()
        return task

    def _prepare(self):
        self._check_ids()
        self._held.put_back()
        self._hand_over_state()  # the program may have made a scheduler or loaded weights since
        self._buffer_mirrors.read()
        if self._evaluation:  # otherwise an error in it would appear after hours of training
            count = self._options["test_chunk"]
            self._sums_of(Microbatch(0, 0, self.seed, list(range(count)), [0] * count))

    def _updated(self):
        self._hand_over_state()

    def _ended(self):
        self._loader.close()

    def _batch(self, microbatch):
        """Requests the samples of the next microbatches, then returns those of this one."""
        if self._loader.workers:
            ahead = self._core.upcoming(2 * self._loader.workers, self._microbatch)
            self._loader.read_ahead(ahead, self.seed)
        return self._loader.batch(microbatch, self.seed)

    def _check_ids(self):
        """Checks that the optimizer's parameters are the model's, and that it has all parameters
        that are trained."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        if held - names.keys():
            raise Refused(f"the optimizer has {len(held - names.keys())} parameters that the model "
                          "has not; make it after the model's last layer was added or replaced")
        missing = [name for name, p in self._parameters if id(p) not in held]
        if missing:
            raise Refused(f"the optimizer lacks {missing[0]}"
                          + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
                          + ", which the model has: make it after the model's last layer was "
                          "added, with all that is trained in its groups (a job has one "
                          "optimizer), or call requires_grad_(False) of parameters that are not "
                          "trained")

    # The optimizer's state: the library reads tensors from their memory, the rest is pickled.

    def _state_tensors(self, optimizer=None):
        state = (optimizer or self.optimizer).state_dict()["state"]
        for index in sorted(index for index in state if is_of_parameter(index, state[index])):
            for key in sorted(tensors_in(state[index])):
                yield f"optimizer.{index}.{key}", state[index][key]

    def _rest(self, optimizer=None):
        held = (optimizer or self.optimizer).state_dict()
        plain = {str(index) if isinstance(index, int) else index:
                 {key: value for key, value in entries.items() if key not in tensors_in(entries)}
                 if is_of_parameter(index, entries) else entries
                 for index, entries in held["state"].items()}
        return {"groups": held["param_groups"], "state": plain, "tied": self._tied,
                "empty": {name: tensor.detach() for name, tensor in self._empty},
                "scheduler": without_functions(self.scheduler.state_dict())
                if self.scheduler else None,
                "extra": {name: thing.state_dict() for name, thing in self._extra.items()}}

    def _hand_over_state(self):
        rest = self._rest()
        parts = {f"{HASH_NAME}.{name}": part for name, part in rest.items() if name != "extra"}
        parts.update({f"{HASH_NAME}.extra.{n}": part for n, part in rest["extra"].items()})
        hashes = [hash_of(part) for part in parts.values()]
        rows = torch.tensor(hashes, dtype=torch.int64)
        used = self._optimizer_mirrors.follow(list(self._state_tensors()))
        self._optimizer_mirrors.read()
        self._parameter_mirrors.read()
        described = [_describe(name, tensor) for name, tensor in used]
        described += [_describe(name, row) for name, row in zip(parts, rows)]
        rate = self.optimizer.param_groups[0].get("lr", 0.0)
        self._core.set_optimizer_state(described, saved(rest), float(rate))
        # The library reads their memory until they are replaced by others. Those of a state_dict()
        # may be copies, to which there is no other reference.
        self._given = used, rows

    def _state_bytes_max(self):
        """The size of the state that the optimizer will have, measured by a step of a copy with
        gradients of zero. The copy also has the state with which some optimizers are made."""
        own = {id(p): torch.nn.Parameter(p.detach().clone(), p.requires_grad)
               for p in self.model.parameters()}
        groups = [{**{k: v for k, v in group.items() if k != "params"},
                   "params": [own[id(p)] for p in group["params"]]}
                  for group in self.optimizer.param_groups]
        probe = copy.copy(self.optimizer)
        kept = {own.get(id(key), key): copy.deepcopy(entries)
                for key, entries in self.optimizer.state.items()}
        probe.__dict__ = {**self.optimizer.__dict__, "param_groups": groups,
                          "state": collections.defaultdict(dict, kept)}
        for group in groups:
            for q in group["params"]:
                q.grad = torch.zeros_like(q, memory_format=torch.contiguous_format)
        try:
            type(self.optimizer).step(probe)
        except TypeError as error:  # it needs a closure, with which it would compute by itself
            raise Refused(f"the optimizer {type(self.optimizer).__name__} cannot step by itself: "
                          f"{error}") from error
        tensors = list(self._state_tensors(probe))
        self._strides = {name: (tensor.shape, tensor.stride()) for name, tensor in tensors
                         if tensor.stride() == torch.empty_like(tensor).stride()
                         and not tensor.is_contiguous()}
        size = sum(t.numel() * t.element_size() + len(n) + 256 for n, t in tensors)
        now, after = self._rest(), self._rest(probe)
        extra = len(saved(now.pop("extra")))
        del after["extra"]
        return size + max(BLOB_BYTES, extra + min(3 * extra, EXTRA_GROWTH_MAX)
                          + max(4 * len(saved(now)), 2 * len(saved(after))))

    def _load(self):
        """Loads a received state of the optimizer, the scheduler and the extra parts. Parts that
        the program did not have in the run that it resumes keep their initial state."""
        tensors, blob = self._core.loaded()
        self._parameter_mirrors.write()
        self._buffer_mirrors.write()
        rest = unpickled(blob)
        state = {int(index) if str(index).isdigit() else index:
                 dict(entries) if isinstance(entries, dict) else entries
                 for index, entries in rest["state"].items()}
        for name, kind, shape, content in tensors:
            if name.startswith(HASH_NAME):
                continue
            _, index, key = name.split(".", 2)
            flat = (torch.frombuffer(bytearray(content), dtype=OF_TYPE[kind]) if content
                    else torch.empty(0, dtype=OF_TYPE[kind]))
            state.setdefault(int(index), {})[key] = self._laid_out(name, flat.reshape(shape))
        own = self.optimizer.state_dict()["param_groups"]  # may have entries of a new scheduler
        groups = [{**mine, **came} for mine, came in zip(own, rest["groups"])]
        groups += rest["groups"][len(own):]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        put_types_back(self.optimizer, state)
        if self.scheduler:
            take("the scheduler", self.scheduler, rest["scheduler"])
        for name, thing in self._extra.items():
            take(f"the extra part {name}", thing, rest["extra"].get(name))
        self._hand_over_state()

    def _laid_out(self, name, tensor):
        """The tensor with the strides that the optimizer uses: with other strides the next step may
        round differently."""
        shape, strides = self._strides.get(name, (None, None))
        return (torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)
                if tensor.shape == shape else tensor)

    def _answer(self, task):
        if task.kind == _abi.LOAD:
            self._load()
        else:
            self._evaluate(Microbatch.of_task(task))

    def _evaluate(self, chunk):
        self._core.evaluated(*self._sums_of(chunk))

    def _sums_of(self, chunk):
        """(correct predictions, sum of the losses, further sums) of a chunk of the test set."""
        loader, function, names = self._evaluation
        modules = [self.model, *(thing for thing in self._extra.values()
                                 if isinstance(thing, torch.nn.Module))]
        # The mode of each layer is restored: a frozen layer may always be in eval mode.
        modes = [(layer, layer.training) for module in modules for layer in module.modules()]
        for module in modules:
            module.eval()
        try:
            with torch.no_grad():
                batch = loader.batch(chunk, self.seed)
                seed(chunk.seed)
                found = function(*_arguments(batch))
        finally:
            for layer, is_training in modes:
                layer.training = is_training
        try:
            correct, loss_sum, *more = found
            own = {name: float(more[0][name]) for name in names}
            if len(more) != (1 if names else 0):
                raise ValueError
            return correct_count(correct), float(loss_sum), own
        except (TypeError, ValueError, KeyError, IndexError) as error:
            wanted = f", and a dictionary of the sums {', '.join(names)}" if names else ""
            raise Refused("the function of the evaluation must return two numbers, the number of "
                          f"correct predictions and the sum of the losses{wanted}; it returned "
                          f"{found!r:.80}") from error


def _arguments(batch):
    """The arguments of a function of a batch, which may be one tensor or a dictionary."""
    return batch if isinstance(batch, (tuple, list)) else (batch,)


class Step(BaseStep):
    """One step. The program iterates it and then calls optimizer.step()."""

    def __iter__(self):
        """The microbatches of this worker as batches of data."""
        for microbatch in self.microbatches():
            yield self._job._batch(microbatch)

    def microbatches(self):
        """The microbatches of this worker as Microbatch: `samples`, `epochs`, `seed`, `number`."""
        for microbatch in super().microbatches():
            seed(microbatch.seed)
            yield microbatch

    def backward(self, loss, correct=0, metrics=None, weight=1):
        """Calls zero_grad and backward, and adds the gradients to the step. `loss` is the mean over
        the microbatch, or over the `weight` items in it, such as valid pixels or tokens; the means
        of the step are then over all items. Recorded are `correct`, the number of correct
        predictions, and `metrics`, values by name."""
        for _, p in self._job._parameters:
            p.grad = None
        loss.backward()
        self.add(loss, correct, metrics, weight)

    def add(self, loss, correct=0, metrics=None, weight=1):
        """Adds the gradients that the parameters have now as those of the present microbatch."""
        for name, p in self._job._frozen:
            if p.requires_grad:
                raise Refused(f"{name} was frozen when the job was made, and requires a gradient "
                              "now; make the job while it requires one, and freeze it afterwards")
        for name, p in self._job._parameters:
            if p.grad is not None and p.grad.is_sparse:
                raise Refused(f"the gradient of {name} is sparse; make its layer dense")
        self._job._held.put_back()
        addresses = self._job._gradients.addresses()
        self._job._buffer_mirrors.read()
        self._add(addresses, loss, correct, metrics, weight)

    def _take_means(self, task):
        """Copies the means, because the library overwrites them in the next step and frees them
        after the loop, but the program may keep gradients for any time."""
        self._job._gradients.release()
        for i, (_, p) in enumerate(self._job._parameters):
            flat = numpy.ctypeslib.as_array(task.gradients[i], (p.numel(),))
            p.grad = torch.from_numpy(flat).view(p.shape).to(p.device, p.dtype, copy=True)
        for _, tensor in self._job._empty:
            tensor.grad = None  # only a worker that has computed would have one
        seed(seed_of(self._job.seed, task.step))  # an update may draw: the same on all workers

    def _left(self):
        for _, p in self._job._parameters:
            p.grad = None


def seed(number):
    """Seeds all generators from which a microbatch may draw."""
    seed_host(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number & (2**63 - 1))
