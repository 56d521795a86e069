#!/usr/bin/env python3
"""One way of training with PyTorch on a GPU, measured on request.

    benchmarks/pytorch_gpu_step.py --model resnet50 --batch 256 --dtype bf16 --mode compile-graph

Forward, loss, backward and SGD with momentum and weight decay on synthetic images that stay on the
GPU: the network and arithmetic of `mayfly bench step`, channels last, cuDNN's own search for its
fastest kernels, the optimizer's fused kernels where this PyTorch has them. In bf16 and fp16 through
autocast, in fp16 with PyTorch's GradScaler.

The mode is how the step is submitted to the GPU: `eager`; `graph`, the whole step in one CUDA
graph; `compile`, forward and loss through torch.compile; `compile-graph`, both. All long
preparations are made once; then the program prints a JSON object of kind "ready". Each line on
standard input, a number of seconds, is answered with an object of kind "window": whole steps for at
least so long. The program ends at the end of its input. `--device cpu` is for rehearsals; PyTorch
has no fp16 there and computes in fp32.

Exits with 77 where PyTorch or a GPU for it is missing, with 1 if a mode is not possible; the last
line on standard error says why.
"""
import argparse
import json
import os
import sys
import time

CHUNK_SECONDS = 0.2  # between two waits for the GPU
WARM_UP_STEPS = 5
MODES = ("eager", "graph", "compile", "compile-graph")
SKIPPED = 77

try:
    import torch
    from torch.nn import functional as F
except ImportError as error:
    print(f"PyTorch is not installed ({error})", file=sys.stderr)
    sys.exit(SKIPPED)

import pytorch_step  # noqa: E402: it wants PyTorch, too


class Impossible(Exception):
    """This mode cannot be measured here; the text says why."""


def make_optimizer(parameters):
    """The fastest optimizer of this PyTorch, and its name."""
    for kind in ("fused", "foreach", "plain"):
        options = {} if kind == "plain" else {kind: True}
        try:
            return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4,
                                   **options), kind
        except (TypeError, RuntimeError):
            continue
    raise Impossible("there is no SGD")


def make_scaler(is_enabled):
    """PyTorch's dynamic loss scale, by the name it has in this version."""
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=is_enabled)
    return torch.cuda.amp.GradScaler(enabled=is_enabled)


def make_step(options):
    """A function that gives the device one training step, and the optimizer's kind."""
    device = torch.device(options.device)
    network, size, classes = pytorch_step.make_network(options.model)
    network = network.to(device, memory_format=torch.channels_last).train()
    images = torch.randn(options.batch, 3, size, size, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (options.batch,), device=device)
    optimizer, kind = make_optimizer(list(network.parameters()))
    in_graph = options.mode.endswith("graph")
    halves = {"bf16": torch.bfloat16, "fp16": torch.float16}
    half = halves.get(options.dtype) if device.type == "cuda" or options.dtype != "fp16" else None
    scaler = make_scaler(half == torch.float16)

    def loss():
        # A captured graph must not depend on casts that were cached outside of it.
        with torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None,
                            cache_enabled=not in_graph):
            return F.cross_entropy(network(images), labels)

    if options.mode.startswith("compile"):
        if not hasattr(torch, "compile"):
            raise Impossible(f"PyTorch {torch.__version__} cannot compile")
        loss = torch.compile(loss)

    def gradients():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss()).backward()

    def update():
        scaler.step(optimizer)
        scaler.update()

    if not in_graph:
        return in_turn(gradients, update), kind
    # Where no kernel knows the scale, the scaler asks the GPU whether to update: not in a graph.
    if scaler.is_enabled() and not getattr(optimizer, "_step_supports_amp_scaling", False):
        return in_turn(capture(gradients, update, optimizer), update), kind
    return capture(in_turn(gradients, update), lambda: None, optimizer), kind


def in_turn(first, second):
    def both():
        first()
        second()
    return both


def capture(step, then, optimizer):
    """The step as one CUDA graph; `then` is what follows it outside."""
    if not torch.cuda.is_available():
        raise Impossible("there is no CUDA graph without a GPU")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            step()
            then()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


class Training:
    """A step, and how to measure it."""

    def __init__(self, options):
        self.is_cuda = options.device.startswith("cuda")
        self.batch = options.batch
        begin = time.perf_counter()
        self.step, self.optimizer = make_step(options)
        for _ in range(WARM_UP_STEPS):
            self.step()
        self.chunk = 1
        while self.run(self.chunk) < CHUNK_SECONDS:
            self.chunk *= 2
        self.prepare_seconds = time.perf_counter() - begin

    def run(self, steps):
        """Seconds from the first of so many steps to the end of the last."""
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        if self.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    def window(self, seconds):
        steps, took = 0, 0.0
        while steps == 0 or took < seconds:
            took += self.run(self.chunk)
            steps += self.chunk
        return {"kind": "window", "steps": steps, "seconds": round(took, 4),
                "images_per_second": round(steps * self.batch / took, 2)}


def facts(options, training):
    is_cuda = options.device.startswith("cuda")
    return {"kind": "ready", "mode": options.mode, "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version() if is_cuda else None,
            "device": torch.cuda.get_device_name(options.device) if is_cuda else "cpu",
            "optimizer": f"{training.optimizer} SGD",
            "prepare_seconds": round(training.prepare_seconds, 1)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=pytorch_step.MODELS)
    parser.add_argument("--batch", type=int, required=True, help="images per update")
    parser.add_argument("--dtype", default="bf16", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--mode", default="eager", choices=MODES)
    parser.add_argument("--device", default="cuda:0")
    return parser.parse_args()


def main():
    options = parse()
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if options.device.startswith("cuda"):
        if not torch.cuda.is_available():
            print(f"PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
            return SKIPPED
        torch.cuda.set_device(options.device)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)

    def answer(values):
        print(json.dumps(values), file=answers, flush=True)

    try:
        training = Training(options)
        answer(facts(options, training))
        for line in sys.stdin:
            answer(training.window(float(line)))
    except (Impossible, RuntimeError) as problem:  # RuntimeError: too little memory, for example
        print(f"{' '.join(str(problem).split())[:300]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
