"""A small PyTorch job that uses the library in one of these ways: HOW FOLDER [STEPS].

weighted   means over valid samples; some microbatches have none. A job of one worker then trains
           on the same batches without Mayfly, and writes the largest difference
speaks     one worker writes each step's loss; the extra part has an array of objects
stops      the test set is evaluated, and the program stops the job when its loss is small enough
inner      the loop over microbatches is left early
extra      the extra part differs between workers
forgets    the extra part is not loaded from a received state
random     the test set draws random numbers; the evaluation has sums of the program's own
returns    the evaluation returns one number instead of two
lacks      the evaluation does not return one of its sums
classes    the evaluation has sums of 150 classes
tied       two layers share their weights; the checkpoint is loaded into another model
half       some parameters are bfloat16 and float16
normed     a layer's weight is computed from its direction and its length
early      a layer is added after the optimizer was made
twice      a microbatch gets two results
keeps      the program keeps gradients beyond their step and beyond the loop
read       two processes read samples ahead
killed     as read, and one of the two processes is killed
"""
import os
import signal
import sys

import mayfly.torch
import numpy
import torch
from torch.nn import functional

how, folder = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 40
trainer = os.getpid()
torch.set_num_threads(1)
torch.manual_seed(5)
inputs = torch.randn(192, 6)
targets = inputs @ torch.randn(6, 2)
valid = torch.arange(192) % 16 < torch.arange(192) // 16  # of 16 samples from none to eleven


class Data(torch.utils.data.Dataset):
    def __init__(self, is_random=False):
        self.is_random = is_random

    def __len__(self):
        return len(inputs)

    def __getitem__(self, index):
        mark = os.path.join(folder, "killed")
        if how == "killed" and index == 17 and os.getpid() != trainer and not os.path.exists(mark):
            write("killed", f"{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        noise = torch.randn(6) if self.is_random else 0
        return inputs[index] + noise, targets[index], valid[index], index


class Kept:
    """The extra part of the job."""
    value = 0.0

    def state_dict(self):
        objects = {"names": numpy.array(["first", None])} if how == "speaks" else {}
        return {"value": self.value, **objects}

    def load_state_dict(self, state):
        if how != "forgets":
            self.value = state["value"]


def made():
    torch.manual_seed(6)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)


def loss_of_valid(model, x, y, is_valid):
    return functional.mse_loss(model(x)[is_valid], y[is_valid])  # NaN if no sample is valid


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.ones(6, dtype=torch.bool))

    def forward(self, x):
        return self.second(self.first(x) * self.mask)[:, :2]


class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 16).bfloat16()
        self.last = torch.nn.Linear(16, 2)
        self.scale = torch.nn.Parameter(torch.ones(16, dtype=torch.float16))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.bfloat16()).float()) * self.scale.float())


kept = Kept()
model, optimizer, scheduler = made()
if how in ("tied", "half"):
    model = Tied() if how == "tied" else Half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
if how == "normed":
    model[0] = torch.nn.utils.weight_norm(model[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
if how == "early":
    model.append(torch.nn.Linear(2, 2))
job = mayfly.torch.Job(model, optimizer, scheduler, data=Data(), batch=16, microbatch=4,
                       steps=steps, extra={"kept": kept},
                       num_workers=2 if how in ("read", "killed") else 0)

if how in ("stops", "returns"):
    @job.evaluation(Data(), chunk=8)
    def measure(x, y, *_):
        loss = functional.mse_loss(model(x), y, reduction="sum")
        return loss if how == "returns" else (len(x), loss)
classes = [f"intersection of class {i:03}" for i in range(150)]
if how == "classes":
    @job.evaluation(Data(), chunk=8, sums=classes)
    def measure(x, y, *_):
        return len(x), 0.0, {name: i * len(x) for i, name in enumerate(classes)}
if how in ("random", "lacks"):
    @job.evaluation(Data(is_random=True), chunk=8, sums=("above", "size"))
    def measure(x, y, is_valid, index):
        sums = {"above": (model(x) > y).sum(), "size": index.sum() / 4}
        if how == "lacks":
            del sums["size"]
        return len(x), functional.mse_loss(model(x), y, reduction="sum"), sums


def write(name, line):
    with open(os.path.join(folder, name), "a", encoding="utf-8") as file:
        file.write(line + "\n")


batches = []
seen = []  # (gradient, its values in its step)
for step in job.steps():
    batches.append([])
    for x, y, is_valid, index in step:
        batches[-1] += index.tolist()
        if how == "weighted":
            step.backward(loss_of_valid(model, x, y, is_valid), weight=int(is_valid.sum()))
        else:
            step.backward(functional.mse_loss(model(x), y))
        if how == "inner":
            break
        if how == "twice":
            step.add(0.0)
    if how == "keeps":
        seen += [(p.grad, p.grad.tolist()) for p in model.parameters()]
    optimizer.step()
    scheduler.step()
    if how == "extra":
        kept.value = numpy.int64(os.getpid())
    if how in ("tied", "forgets"):
        kept.value += 1
    if how == "speaks" and step.speaks:
        write("losses", f"{step.number} {step.loss.hex()}")
    if how == "stops" and job.evaluations and job.evaluations[-1].loss < 8:
        job.stop()
write("ends", f"{job.outcome} {job.total_steps} {job.evaluations}")
if how == "classes":
    assert list(job.evaluations[-1].sums.values()) == [192.0 * i for i in range(150)]
if how == "keeps":
    assert all(gradient.tolist() == values for gradient, values in seen)
    model.zero_grad(set_to_none=False)
    assert not any(p.grad.any() for p in model.parameters())
    functional.mse_loss(model(inputs), targets).backward()
    once = [p.grad.clone() for p in model.parameters()]
    functional.mse_loss(model(inputs), targets).backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(model.parameters(), once))
    write("kept", f"{len(seen)}")
if how == "tied":
    places = []
    torch_load = torch.load
    torch.load = lambda *given, **named: places.append(named["map_location"]) or torch_load(
        *given, **named)
    found = mayfly.torch.load(os.path.dirname(os.environ["MAYFLY_JOB_FILE"]))
    again = Tied()
    again.load_state_dict(found["model"], strict=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))
    assert places == ["cpu"], places  # a state that was on a GPU can be loaded without one
    assert found["extra"] == {"kept": {"value": float(steps)}}, found["extra"]
    write("loaded", "yes")
if how == "weighted" and all(len(batch) >= 16 for batch in batches):
    reference, optimizer, scheduler = made()
    for batch in batches:
        ids = torch.tensor(batch[-16:])  # step 1 is computed twice: the first finds the exponents
        if valid[ids].any():
            optimizer.zero_grad()
            loss_of_valid(reference, inputs[ids], targets[ids], valid[ids]).backward()
        else:
            for p in reference.parameters():
                p.grad = torch.zeros_like(p)
        optimizer.step()
        scheduler.step()
    write("difference", repr(max(float((a - b).abs().max()) for a, b in
                                 zip(model.parameters(), reference.parameters()))))
