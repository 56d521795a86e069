"""A small PyTorch job. Its program treats models and data in the ways that users' programs do,
correct or wrong: HOW FOLDER [STEPS].

plain       none of the following
replaces    a buffer is assigned anew in each microbatch
moved       parameters have other memory after each step, and in the evaluation
frozen      a layer stays in eval mode
thaws       a layer that was frozen is to be trained
renewed     a parameter is replaced by another one
converted   the parameters get another type
mixed       the collate function draws random numbers
mixed_ahead the same, in processes that read ahead
noisy       the update draws random numbers
dictionary  a sample is a dictionary, and the test set is smaller than a chunk
empty_parts the model has a parameter and a buffer without elements, and its checkpoint is loaded
filled      a buffer without elements gets some
tensor      a sample is one tensor, and the model has a state that is not a tensor
diverges    the loss is NaN in step 5
killed      a worker is killed in the step after an evaluation
copies      the optimizer's state_dict() returns copies of its tensors
adagrad     the optimizer has its state before its first step
stateless   the optimizer has no state
nadam       the optimizer keeps tensors of another type than its parameters
nested      the optimizer keeps tensors in lists and dictionaries, more than 64 KiB, some without
            elements, and one number for all parameters
large       the extra part has 32 MiB
gains       the job has a scheduler and an extra part, which plain lacks
stream, loader, empty, endless, short, fraction, batch, readers: data and lengths that are refused
again       a second evaluation is refused
share       an evaluation that returns a share of correct predictions is refused
renorm      a layer that changes its own weights is refused
surrogate   a note and the program's error contain a file name that is not UTF-8
metric, sum: one name in place of a list
retries     makes jobs that are refused, and then a correct one
"""
import os
import random
import signal
import sys
import time

import mayfly.torch
import numpy
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, default_collate

how, folder = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 24
torch.set_num_threads(1)
torch.manual_seed(5)
inputs = torch.randn(96, 6)
targets = inputs @ torch.randn(6, 2)
if how == "nadam":
    inputs, targets = inputs.double(), targets.double()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return len(inputs)

    def __getitem__(self, index):
        if how == "tensor":
            return torch.cat([inputs[index], targets[index]])
        if how == "dictionary":
            return {"x": inputs[index], "y": targets[index]}
        return inputs[index], targets[index]


class Stream(torch.utils.data.IterableDataset):
    def __len__(self):
        return len(inputs)

    def __iter__(self):
        return iter(zip(inputs, targets))


class Empty(Data):
    def __len__(self):
        return 0


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 2)
        self.register_buffer("center", torch.zeros(8))

    def forward(self, x):
        found = torch.tanh(self.norm(self.first(x)) - self.center)
        if how == "replaces" and self.training:
            self.center = 0.9 * self.center + 0.1 * found.detach().mean(0)
        return self.last(found)


class Counting(Network):
    """A network with a state that is not a tensor. It keeps the object that it loads, uncopied."""

    def __init__(self):
        super().__init__()
        self.counts = {"calls": 0}

    def get_extra_state(self):
        return self.counts

    def set_extra_state(self, state):
        self.counts = state

    def forward(self, x):
        self.counts["calls"] += 1
        return super().forward(x)


class Kept:
    """An extra part of the job."""
    value = torch.zeros(8 << 20) if how == "large" else 7

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Copying(torch.optim.Adam):
    """Its state_dict() contains copies, not the tensors that step() uses."""

    def state_dict(self):
        held = super().state_dict()
        return {**held, "state": {index: {key: value + 0 for key, value in entries.items()}
                                  for index, entries in held["state"].items()}}


class Nested(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        self.state["steps"] = self.state.get("steps", 0) + 1
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                kept["last"] = (kept.get("last", []) + [p.grad.clone()])[-3:]
                kept["largest"] = {"of all": torch.full((4096,), float(p.grad.abs().max()))}
                kept["unused"], kept["none"] = torch.empty(0), torch.empty(0)
                p -= group["lr"] / self.state["steps"] * sum(kept["last"])


def mixed(samples):
    x, y = default_collate(samples)
    share = torch.rand(())
    order = torch.randperm(len(x))
    return share * x + (1 - share) * x[order], share * y + (1 - share) * y[order]


def xy(*batch):
    """The inputs and targets in the arguments of a function that receives a batch."""
    if how == "tensor":
        return batch[0][:, :6], batch[0][:, 6:]
    return (batch[0]["x"], batch[0]["y"]) if how == "dictionary" else batch


def generators():
    return (torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(),
            random.getstate())


def write(name, line):
    with open(os.path.join(folder, name), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


model = Counting() if how == "tensor" else Network()
if how == "nadam":
    model.double()
if how in ("empty_parts", "filled"):
    model.device_of = torch.nn.Parameter(torch.empty(0))
    model.register_buffer("extremes", torch.empty(0, 2))
if how == "renorm":
    model.words = torch.nn.Embedding(10, 6, max_norm=1)
kind = {"copies": Copying, "adagrad": torch.optim.Adagrad, "stateless": torch.optim.SGD,
        "nadam": torch.optim.NAdam, "nested": Nested}.get(how, torch.optim.Adam)
optimizer = kind(model.parameters(), lr=0.01)
scheduler = None
if how == "frozen":
    model.norm.eval()
if how == "thaws":
    model.first.weight.requires_grad_(False)
if how == "gains":
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
if how == "retries":
    try:
        mayfly.torch.Job(model, torch.optim.SGD([model.first.weight], 0.1), data=Data(), batch=16,
                         steps=steps)
    except mayfly.Refused as error:
        write("refused", error)
    try:
        mayfly.torch.Job(model, optimizer, data=Data(), batch=16, steps=steps, extra=[1])
    except TypeError as error:
        write("refused", error)
lengths = {"endless": {"steps": -1}, "short": {"epochs": 0},
           "fraction": {"steps": 1.5}}.get(how, {"steps": steps})
job = mayfly.torch.Job(model, optimizer, scheduler, batch=16.0 if how == "batch" else 16,
                       microbatch=None if how == "batch" else 4, **lengths,
                       data={"stream": Stream(), "loader": DataLoader(Data(), batch_size=16)}.get(
                           how, Data()),
                       extra={"kept": Kept()} if how in ("gains", "large") else None,
                       collate=mixed if how.startswith("mixed") else None,
                       metrics=("norm") if how == "metric" else (),
                       num_workers={"mixed_ahead": 2, "readers": -1}.get(how, 0))
if how in ("dictionary", "tensor"):
    def loss_of(*batch):
        x, y = xy(*batch)
        return functional.mse_loss(model(x), y)

    before = generators()
    job.check(loss_of)
    assert generators() == before, "job.check() has drawn from the program's generators"
    assert how != "tensor" or model.counts["calls"] == 0, "job.check() has changed the model"


@job.evaluation(Empty() if how == "empty" else Data(), chunk=1000 if how == "dictionary" else 16,
                collate=mixed if how.startswith("mixed") else None,
                sums=("size") if how == "sum" else ())
def measure(*batch):
    x, y = xy(*batch)
    own = [p.data for p in model.parameters()]
    if how == "moved":
        for p in model.parameters():
            p.data = 0.5 * p.data
    loss = functional.mse_loss(model(x), y, reduction="sum")
    for p, data in zip(model.parameters(), own):
        p.data = data
    return 0.5 if how == "share" else len(x), loss


if how == "again":
    job.evaluation(Data())(measure)
if how == "large":
    assert 96 << 20 < job._options["optimizer_bytes"] < 97 << 20, job._options
losses = []
for step in job.steps():
    if how == "surrogate":
        job.note("read", "of \udcff")
        raise ValueError("no file \udcff")
    if how == "thaws":
        model.first.weight.requires_grad_(True)
    for batch in step:
        if (how, step.number, os.environ.get("MAYFLY_WORKER_NUMBER")) == ("killed", 7, "1"):
            time.sleep(0.5)  # until the other workers are in this step, too
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = xy(*batch) if isinstance(batch, (list, tuple)) else xy(batch)
        loss = functional.mse_loss(model(x), y)
        if how == "empty_parts":
            loss = loss + model.device_of.sum()
        step.backward(loss * float("nan") if how == "diverges" and step.number == 5 else loss)
    losses.append(float(step.loss))
    if how == "noisy":
        for p in model.parameters():
            p.grad += 0.01 * torch.randn_like(p) * numpy.random.rand() * random.random()
    optimizer.step()
    if scheduler:
        scheduler.step()
    if how == "moved":
        whole = torch.nn.utils.parameters_to_vector(model.parameters())
        torch.nn.utils.vector_to_parameters(whole, model.parameters())
    if how == "renewed":
        model.last.weight = torch.nn.Parameter(model.last.weight.detach().clone())
    if how == "converted":
        model.double()
    if how == "filled":
        model.extremes = torch.zeros(8, 2)
    assert model.norm.training == (how != "frozen"), step.number
if how == "empty_parts":
    found = mayfly.torch.load(os.path.dirname(os.environ["MAYFLY_JOB_FILE"]))["model"]
    model.load_state_dict(found, strict=True)
    assert all(torch.equal(value, found[name]) for name, value in model.state_dict().items())
write("center", model.center.tolist())
write("evaluations", job.evaluations)
write("steps", [one.step for one in job.evaluations])
