"""Trains a network with a job of one worker and a copy of it with plain PyTorch: STEPS. The copy
computes the same microbatches, adds up their gradients and the changes of batch norm in double
precision, and steps. Prints the largest difference of any parameter or buffer, relative to the
largest element of its tensor."""
import copy
import sys

import mayfly.torch
import torch
from mayfly.torch.job import seed
from torch import nn
from torch.nn import functional

SAMPLES, BATCH, MICROBATCH = 256, 32, 8

torch.set_num_threads(1)
torch.manual_seed(5)
images, labels = torch.randn(SAMPLES, 3, 8, 8), torch.randint(0, 10, (SAMPLES,))
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 16, 3, bias=False), nn.BatchNorm2d(16),
    nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10))
plain = copy.deepcopy(model)


def optimizer_of(network):
    return torch.optim.AdamW(network.parameters(), lr=3e-3)


def state_of(network):
    return [t for t in network.state_dict().values() if t.is_floating_point()]


optimizer, plain_optimizer = optimizer_of(model), optimizer_of(plain)
job = mayfly.torch.Job(model, optimizer, data=torch.utils.data.TensorDataset(images, labels),
                       batch=BATCH, microbatch=MICROBATCH, steps=int(sys.argv[1]))
worst = 0.0
for step in job.steps():
    before = [b.clone() for b in plain.buffers()]
    gradients = [torch.zeros_like(p, dtype=torch.float64) for p in plain.parameters()]
    changes = [torch.zeros_like(b, dtype=torch.float64) for b in before]
    count = 0
    for microbatch in step.microbatches():
        x, y = images[microbatch.samples], labels[microbatch.samples]
        step.backward(functional.cross_entropy(model(x), y))
        seed(microbatch.seed)
        for b, value in zip(plain.buffers(), before):
            b.copy_(value)
        plain.zero_grad()
        functional.cross_entropy(plain(x), y).backward()
        for total, p in zip(gradients, plain.parameters()):
            total += p.grad
        for total, b, value in zip(changes, plain.buffers(), before):
            total += (b - value).double()
        count += 1
    assert count % (BATCH // MICROBATCH) == 0  # step 1 is computed twice
    optimizer.step()
    for p, total in zip(plain.parameters(), gradients):
        p.grad = (total / count).to(p.dtype)
    plain_optimizer.step()
    for b, value, total in zip(plain.buffers(), before, changes):
        b.copy_(value + total / count)
    for ours, theirs in zip(state_of(model), state_of(plain)):
        worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))
print("difference", worst)
