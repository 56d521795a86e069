#!/usr/bin/python3
"""One measurement of PyTorch's training step on this machine's CPU.

    benchmarks/pytorch_step.py --model resnet20 [--batch 128] [--threads 1] [--seconds 4]
                               [--channels-last] [--bf16] [--compile]

Forward, loss, backward and SGD with momentum and weight decay on synthetic images: the same network
and arithmetic as `mayfly bench step`. Prints one JSON object. What must be set before the process
starts (the allocator, OpenMP, instruction sets) is taken from the environment; compare_pytorch sets
it. Exits with 77 where PyTorch is missing.
"""
import argparse
import json
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(f"skipped: {error} (apt-get install python3-torch)", file=sys.stderr)
    sys.exit(77)

IMAGENET_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
CIFAR_DEPTHS = (20, 32, 44, 56, 110)
MODELS = [f"resnet{depth}" for depth in CIFAR_DEPTHS + tuple(IMAGENET_BLOCKS)]
WARMUP_STEPS = 2
WARMUP_STEPS_COMPILED = 5  # the first one compiles, and the next ones are slower than the others


def conv_norm(channels_in, channels, size, stride=1):
    return nn.Sequential(nn.Conv2d(channels_in, channels, size, stride, size // 2, bias=False),
                         nn.BatchNorm2d(channels))


class PaddedShortcut(nn.Module):
    """The parameter-free shortcut of the CIFAR networks: every second pixel, zero channels."""

    def __init__(self, channels_in, channels):
        super().__init__()
        self.padding = (channels - channels_in) // 2

    def forward(self, x):
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))


class Block(nn.Module):
    """Convolutions with norms, a ReLU between them, the shortcut added before the last ReLU."""

    def __init__(self, convs, shortcut):
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.shortcut = shortcut

    def forward(self, x):
        y = x
        for conv in self.convs[:-1]:
            y = F.relu(conv(y), inplace=True)
        return F.relu(self.convs[-1](y) + self.shortcut(x), inplace=True)


def basic_convs(channels_in, channels, stride):
    return [conv_norm(channels_in, channels, 3, stride), conv_norm(channels, channels, 3)]


def make_cifar(depth):
    layers = [conv_norm(3, 16, 3), nn.ReLU(inplace=True)]
    channels_in = 16
    for channels in (16, 32, 64):
        for i in range((depth - 2) // 6):
            shrinks = i == 0 and channels > 16
            shortcut = PaddedShortcut(channels_in, channels) if shrinks else nn.Identity()
            layers.append(Block(basic_convs(channels_in, channels, 2 if shrinks else 1), shortcut))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_imagenet(depth):
    layers = [conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels_in = 64
    for stage, count in enumerate(IMAGENET_BLOCKS[depth]):
        width = 64 << stage
        out = width * 4 if depth == 50 else width
        for i in range(count):
            stride = 2 if i == 0 and stage > 0 else 1
            convs = basic_convs(channels_in, width, stride)
            if depth == 50:
                convs = [conv_norm(channels_in, width, 1), conv_norm(width, width, 3, stride),
                         conv_norm(width, out, 1)]
            changes = stride != 1 or channels_in != out
            shortcut = conv_norm(channels_in, out, 1, stride) if changes else nn.Identity()
            layers.append(Block(convs, shortcut))
            channels_in = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels_in, 1000))


def make_network(model):
    """A network by its name, the usual side of its images, and its number of classes."""
    depth = int(model.replace("resnet", ""))
    if depth in CIFAR_DEPTHS:
        return make_cifar(depth), 32, 10
    return make_imagenet(depth), 224, 1000


def make_step(options):
    """The network on synthetic images, as a function that does one training step."""
    network, size, classes = make_network(options.model)
    size = options.image_size or size
    images = torch.randn(options.batch, 3, size, size)
    labels = torch.randint(0, classes, (options.batch,))
    if options.channels_last:
        network = network.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def loss_of(batch, classes_of_batch):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            return F.cross_entropy(network(batch), classes_of_batch)

    loss_function = torch.compile(loss_of) if options.compile else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_function(images, labels).backward()
        optimizer.step()

    return step


def measure(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    step = make_step(options)
    for _ in range(WARMUP_STEPS_COMPILED if options.compile else WARMUP_STEPS):
        step()
    steps = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while steps == 0 or time.perf_counter() - wall < options.seconds:
        step()
        steps += 1
    images = steps * options.batch
    return {"images": images, "images_per_second": images / (time.perf_counter() - wall),
            "images_per_cpu_second": images / (time.process_time() - cpu)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=0, help="0 = 32 or 224, by the model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--compile", action="store_true",
                        help="forward, loss and backward through torch.compile (PyTorch 2)")
    options = parser.parse_args()
    print(json.dumps({**measure(options), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
