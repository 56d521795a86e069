#!/usr/bin/python3
"""Alternates `mayfly bench step` with the same training step in PyTorch as it is shipped.

    benchmarks/pytorch_step.py [--binary PATH] [--rounds 5] [--depth 20] [--threads 1]

Both sides run forward, loss, backward and SGD with momentum and weight decay on synthetic images:
PyTorch with batch 128 in its default layout and allocator, Mayfly with microbatch 16. Prints one
JSON object per round and one with the medians. Images per CPU-second are compared because they stay
usable on a machine that does other things too; wall-clock rates are printed beside them.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(f"skipped: {error} (apt-get install python3-torch)")
    sys.exit(77)

BATCH = 128
WARMUP_STEPS, STEPS = 2, 8


class Block(nn.Module):
    """Basic block with the parameter-free shortcut of CIFAR ResNets."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - channels_in) // 2

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(y + x)


def make_network(depth):
    blocks = (depth - 2) // 6
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels_in = 16
    for channels in (16, 32, 64):
        for i in range(blocks):
            layers.append(Block(channels_in, channels, 2 if i == 0 and channels > 16 else 1))
            channels_in = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def pytorch_round(depth, threads):
    torch.set_num_threads(threads)
    network = make_network(depth)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(BATCH, 3, 32, 32)
    labels = torch.randint(0, 10, (BATCH,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()

    for _ in range(WARMUP_STEPS):
        step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        step()
    return {"images_per_second": STEPS * BATCH / (time.perf_counter() - wall),
            "images_per_cpu_second": STEPS * BATCH / (time.process_time() - cpu)}


def mayfly_round(binary, depth, threads):
    done = subprocess.run([binary, "bench", "step", "--model", f"resnet{depth}", "--threads",
                           str(threads), "--seconds", "4", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/release/mayfly")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    ratios, ours, theirs = [], [], []
    for number in range(options.rounds):
        mine = mayfly_round(options.binary, options.depth, options.threads)
        peer = pytorch_round(options.depth, options.threads)
        ratios.append(mine["images_per_cpu_second"] / peer["images_per_cpu_second"])
        ours.append(mine["images_per_cpu_second"])
        theirs.append(peer["images_per_cpu_second"])
        print(json.dumps({"round": number, "mayfly": mine, "pytorch": peer,
                          "ratio_per_cpu_second": round(ratios[-1], 3)}), flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print(json.dumps({
        "model": f"resnet{options.depth}", "threads": options.threads, "rounds": options.rounds,
        "ratio_median": round(statistics.median(ratios), 3), "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "mayfly_images_per_cpu_second": round(statistics.median(ours), 1),
        "pytorch_images_per_cpu_second": round(statistics.median(theirs), 1),
        "pytorch": torch.__version__, "processor": processor(), "cores": os.cpu_count(),
        "commit": commit.stdout.strip()}))


def processor():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
