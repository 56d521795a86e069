"""Trains one of two PyTorch networks by `mayfly.torch.Job`: cnn | transformer | checked | random |
unchecked | channels_last | channels_last_adamw | loaded | mirrored_cnn | mirrored_transformer |
mirrored_loaded STEPS. They use batch norm, dropout, random augmentation, SGD or AdamW, a schedule,
clipping and an evaluation. Variants of the cnn: checked calls job.check(); random, too, and has a
layer whose random numbers no seed determines; unchecked has that layer and does not call
job.check(). channels_last has tensors that are not contiguous, with AdamW also in the optimizer.
loaded has a frozen layer, and loads weights and running statistics after the job was made.
mirrored_: the library uses copies of all tensors, as if they were on a GPU."""
import os
import sys

import mayfly.torch
import torch
from mayfly.torch import mirrors
from torch import nn
from torch.nn import functional

CLASSES, WORDS, LENGTH = 10, 50, 16


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(index)
        return torch.randn(3, 8, 8, generator=drawn) + 0.1 * torch.rand(1), index % CLASSES


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(index)
        words = torch.randint(0, WORDS, (LENGTH + 1,), generator=drawn)
        return words[:-1], words[1:]


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(32, WORDS)
        self.register_buffer("mask", torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1))

    def forward(self, words):
        return self.output(self.layers(self.embedding(words), mask=self.mask)).transpose(1, 2)


torch.set_num_threads(1)
torch.manual_seed(3)
steps = int(sys.argv[2])
how = sys.argv[1].removeprefix("mirrored_")
if sys.argv[1].startswith("mirrored"):
    mirrors.is_elsewhere = lambda tensor: True
if how != "transformer":
    data = Images()
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(288, CLASSES))
    if how.startswith("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    if how == "loaded":
        model[0].requires_grad_(False)
    optimizer = (torch.optim.AdamW(model.parameters(), lr=1e-3) if how.endswith("adamw") else
                 torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4))
else:
    data = Sentences()
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

job = mayfly.torch.Job(model, optimizer, scheduler, data=data, batch=64, microbatch=8, steps=steps,
                       num_workers=2 if sys.argv[1] == "cnn" else 0)

if how == "loaded":
    drawn = torch.Generator().manual_seed(4)
    model.load_state_dict({name: tensor + 0.1 * torch.rand(tensor.shape, generator=drawn)
                           if tensor.is_floating_point() else tensor + 7
                           for name, tensor in model.state_dict().items()})
    given = {name: tensor.clone() for name, tensor in model.state_dict().items()}

if sys.argv[1] in ("random", "unchecked"):
    def drawn(*of):
        return of[-1] * (1 + int.from_bytes(os.urandom(4), "big") / 2**32)

    model[0].register_forward_hook(drawn)
if sys.argv[1] in ("checked", "random"):
    job.check(lambda x, y: functional.cross_entropy(model(x), y))


@job.evaluation(data, chunk=64)
def measure(x, y):
    out = model(x)
    return (out.argmax(1) == y).sum(), functional.cross_entropy(out, y, reduction="sum")


for step in job.steps():
    for x, y in step:
        step.backward(functional.cross_entropy(model(x), y))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
print(job.outcome)
if how == "loaded":
    trained = model.state_dict()
    assert torch.equal(trained["0.weight"], given["0.weight"])
    assert trained["1.num_batches_tracked"] > given["1.num_batches_tracked"]
