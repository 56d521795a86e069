#!/usr/bin/python3
"""A worker of PyTorch's DistributedDataParallel on CIFAR-10, with the job of benchmarks/comparison.

    torchrun --standalone --nproc_per_node 4 --max_restarts 9 benchmarks/pytorch_ddp.py \
        --data cifar-10-batches-bin --steps 3910 --folder FOLDER [--kill 390:0,780:1]

The same network, samples of a step, learning rates and augmentation as Mayfly's. Gradients travel
over Gloo. Tuned as benchmarks/compare_pytorch does: channels last, one thread a worker, gradients
as views of the buckets; the caller sets the allocator. Every --checkpoint-every steps rank 0 writes
FOLDER/checkpoint.pt, from which all workers continue after one was lost, because torchrun starts
all of them again. --kill STEP:RANK,...: in the i-th start this rank kills itself at that step.

Rank 0 writes FOLDER/result.json at the end: seconds from the first start's first step to the end of
the last step, those of all workers together, test accuracies, samples that were computed more than
once, and for each restart the milliseconds from the kill to the end of the next step. Exits with 77
where PyTorch is missing.
"""
import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

try:
    import numpy
    import torch
    from torch import distributed
    from torch.nn import functional as F
except ImportError as error:
    print(f"skipped: {error} (apt-get install python3-torch)", file=sys.stderr)
    sys.exit(77)

from pytorch_step import make_network

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PADDING = 4  # pixels on each side, before a crop
IMAGE_BYTES = 1 + 3 * 32 * 32


def read(folder, names):
    """(pixels, labels) of CIFAR-10's binary files."""
    raw = numpy.concatenate([numpy.fromfile(folder / name, dtype=numpy.uint8) for name in names])
    raw = torch.from_numpy(raw.reshape(-1, IMAGE_BYTES))
    return raw[:, 1:].reshape(-1, 3, 32, 32), raw[:, 0].long()


class Images:
    def __init__(self, folder):
        self.train, self.labels = read(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
        self.test, self.test_labels = read(folder, ["test_batch.bin"])
        self.mean = 255 * torch.tensor(MEAN).view(1, 3, 1, 1)
        self.deviation = 255 * torch.tensor(DEVIATION).view(1, 3, 1, 1)

    def normalised(self, pixels):
        return (pixels - self.mean) / self.deviation

    def augmented(self, chosen):
        """These training images, each cropped from its padded self and mirrored or not."""
        images = F.pad(self.normalised(self.train[chosen]), [PADDING] * 4)
        left, top = torch.randint(0, 2 * PADDING + 1, (2, len(chosen)))
        mirrored = torch.rand(len(chosen)) < 0.5
        at = torch.arange(32)
        columns = torch.where(mirrored[:, None], left[:, None] + at.flip(0), left[:, None] + at)
        rows = top[:, None] + at
        return images[torch.arange(len(chosen))[:, None, None, None],
                      torch.arange(3)[None, :, None, None], rows[:, None, :, None],
                      columns[:, None, None, :]]


def correct_predictions(network, images, rank, world):
    """Correct predictions on the test set; each worker computes a part of it."""
    network.eval()
    right = 0
    with torch.no_grad():
        for first in range(500 * rank, len(images.test), 500 * world):
            pixels = images.normalised(images.test[first:first + 500])
            logits = network(pixels.contiguous(memory_format=torch.channels_last))
            right += int((logits.argmax(1) == images.test_labels[first:first + 500]).sum())
    network.train()
    total = torch.tensor([right])
    distributed.all_reduce(total)
    return int(total) / len(images.test)


def learning_rate(step, steps, steps_per_epoch, rate=0.1):
    """Linear over the first epoch, then half a cosine."""
    if step < steps_per_epoch:
        return rate * (step + 1) / steps_per_epoch
    done = (step - steps_per_epoch) / (steps - steps_per_epoch)
    return rate / 2 * (1 + math.cos(math.pi * done))


class Training:
    def __init__(self, options):
        self.options = options
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.images = Images(Path(options.data))
        self.steps_per_epoch = -(-len(self.images.train) // options.batch)
        torch.manual_seed(options.seed)
        network = make_network("resnet20")[0].to(memory_format=torch.channels_last)
        self.network = torch.nn.parallel.DistributedDataParallel(network,
                                                                 gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9,
                                         weight_decay=1e-4)
        self.checkpoint = Path(options.folder, "checkpoint.pt")
        self.state = {"step": 0, "accuracy": [], "recoveries_ms": [], "redone_samples": 0,
                      "begun": time.time()}
        if self.checkpoint.exists():
            held = torch.load(self.checkpoint)
            network.load_state_dict(held["network"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.state = held["state"]
        died = [tuple(map(int, one.split(":"))) for one in options.kill.split(",") if one]
        self.killed = died[self.start - 1] if 0 < self.start <= len(died) else None
        self.to_kill = died[self.start] if self.start < len(died) else None
        self.epoch, self.order = None, None

    def note_restart(self):
        """The cost of the restart that has just computed its first step."""
        if self.killed is None:
            return
        step, rank = self.killed
        at = json.loads(Path(self.options.folder, f"killed-{rank}.json").read_text())["at"]
        self.state["recoveries_ms"].append(round(1000 * (time.time() - at), 1))
        self.state["redone_samples"] += (step - self.state["step"]) * self.options.batch
        self.killed = None

    def save(self):
        if self.rank == 0:
            partly = self.checkpoint.with_suffix(".partly")
            torch.save({"network": self.network.module.state_dict(),
                        "optimizer": self.optimizer.state_dict(), "state": self.state}, partly)
            os.replace(partly, self.checkpoint)

    def die_if_told(self, step):
        if self.to_kill == (step, self.rank):
            Path(self.options.folder, f"killed-{self.rank}.json").write_text(
                json.dumps({"at": time.time()}))
            os.kill(os.getpid(), signal.SIGKILL)

    def chosen(self, step):
        """This worker's training images of a step: its share of the epoch's order."""
        epoch, first = divmod(step, self.steps_per_epoch)
        if self.epoch != epoch:
            self.epoch = epoch
            self.order = torch.randperm(len(self.images.train), generator=torch.Generator(
                ).manual_seed(1000 * self.options.seed + epoch))
        batch = self.options.batch
        return self.order[first * batch:(first + 1) * batch][self.rank::self.world]

    def compute(self, step):
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.options.steps, self.steps_per_epoch)
        chosen = self.chosen(step)
        pixels = self.images.augmented(chosen).contiguous(memory_format=torch.channels_last)
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.network(pixels), self.images.labels[chosen]).backward()
        self.optimizer.step()

    def run(self):
        torch.manual_seed(100 * self.options.seed + 10 * self.start + self.rank)  # of augmentation
        for step in range(self.state["step"], self.options.steps):
            self.die_if_told(step)
            self.compute(step)
            self.note_restart()
            done = step + 1
            self.state["step"] = done
            # Mayfly's train_seconds do not contain the evaluation after the last step, either.
            self.state["trained_s"] = time.time() - self.state["begun"]
            evaluated = self.options.eval_every * self.steps_per_epoch
            if done % evaluated == 0 or done == self.options.steps:
                self.evaluate()
            if done % self.options.checkpoint_every == 0:
                self.save()
        if self.rank == 0:
            state = self.state
            result = {"torch": torch.__version__, "steps": self.options.steps,
                      "train_seconds": round(state["trained_s"], 3),
                      "samples": self.options.steps * self.options.batch,
                      "test_top1": state["accuracy"][-1][1], "accuracy": state["accuracy"],
                      "worker_seconds": round(self.world * state["trained_s"], 3),
                      "recoveries_ms": state["recoveries_ms"],
                      "redone_samples": state["redone_samples"]}
            Path(self.options.folder, "result.json").write_text(json.dumps(result))

    def evaluate(self):
        accuracy = correct_predictions(self.network.module, self.images, self.rank, self.world)
        self.state["accuracy"].append((round(time.time() - self.state["begun"], 2), accuracy))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eval-every", type=int, default=2, help="epochs")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    parser.add_argument("--kill", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    Training(options).run()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
