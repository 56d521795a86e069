#!/usr/bin/python3
"""Repeats a training step of the CPU engine in PyTorch and compares every number.

    torch_agreement.py PATH/nn_interop_dump MODEL

Exit status: 0 agreement, 1 disagreement, 77 skipped (no PyTorch).

Limits, all relative L2 errors: forward 1e-5 (training loss, and each sample's loss in inference),
gradient and momentum 1e-4 per tensor, running statistics and updated parameters 1e-5, except the
norms' shifts, which begin at zero and so consist only of gradient: 1e-4.

The gradient of a ReLU jumps where its input crosses zero. Two correct implementations round
differently. So among millions of inputs a few are so near to zero that only one implementation
treats them as positive, and the gradients of all earlier layers then differ by far more than
rounding errors. Therefore PyTorch's training pass uses the engine's decisions. It checks that the
decisions that differ from its own are few, and that their inputs are within 1e-4 of zero (inputs
have a spread of about 1; a layer's rounding errors are a few 1e-6 and grow from layer to layer).
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: {error} (apt-get install python3-torch)")
    sys.exit(77)

FORWARD_LIMIT = 1e-5
GRADIENT_LIMIT = 1e-4
UPDATE_LIMIT = 1e-5
FLIP_INPUT_LIMIT = 1e-4
FLIP_SHARE_LIMIT = 1e-5


class Dump:
    """The folder that nn_interop_dump wrote."""

    def __init__(self, folder):
        self.folder = folder
        blocks, *rates = self.text("options.txt").split()
        self.blocks = int(blocks)
        self.smoothing, self.learning_rate, self.statistics_rate = map(float, rates)

    def text(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def array(self, name, dtype="<f4"):
        return torch.from_numpy(np.fromfile(os.path.join(self.folder, name), dtype))

    def labels(self):
        numbers = np.fromfile(os.path.join(self.folder, "labels.u16"), "<u2")
        return torch.from_numpy(numbers.astype(np.int64))

    def tensors(self, table, array):
        """The named tensors of a flat array."""
        flat = self.array(array)
        found = {}
        for line in self.text(table).splitlines():
            name, offset, *shape = line.split()
            shape = [int(extent) for extent in shape]
            start = int(offset)
            size = int(np.prod(shape))
            found[name] = flat[start:start + size].reshape(shape).clone()
        return found


class EngineRelu:
    """A ReLU that uses the engine's decisions; see above."""

    def __init__(self, masks):
        self.masks = masks
        self.used = 0
        self.flips = 0
        self.largest_flipped = 0.0

    def __call__(self, x):
        mask = self.masks[self.used:self.used + x.numel()].reshape(x.shape)
        self.used += x.numel()
        flipped = x.detach()[(x > 0) != mask].abs()
        self.flips += flipped.numel()
        if flipped.numel():
            self.largest_flipped = max(self.largest_flipped, flipped.max().item())
        return x * mask

    def verdict(self):
        """Prints the differing decisions; returns the number of violated limits."""
        print(f"ReLU decisions: {self.flips} of {self.used} differ, the largest input among them "
              f"is {self.largest_flipped:.1e}, limit {FLIP_INPUT_LIMIT:.0e}")
        complete = self.used == self.masks.numel()
        return int(not complete or self.largest_flipped > FLIP_INPUT_LIMIT
                   or self.flips > FLIP_SHARE_LIMIT * self.used)


class CifarResNet:
    """The network of He et al. 2016, section 4.2, written as functions over named tensors."""

    def __init__(self, blocks, parameters, statistics, rate):
        self.blocks_per_stage = blocks // 3
        self.p = parameters
        self.s = statistics
        self.rate = rate

    def norm(self, x, name, training):
        return F.batch_norm(x, self.s[name + ".running_mean"], self.s[name + ".running_var"],
                            self.p[name + ".weight"], self.p[name + ".bias"],
                            training=training, momentum=self.rate, eps=1e-5)

    def block(self, x, prefix, stride, training, relu):
        y = F.conv2d(x, self.p[prefix + "conv1.weight"], stride=stride, padding=1)
        y = relu(self.norm(y, prefix + "bn1", training))
        y = F.conv2d(y, self.p[prefix + "conv2.weight"], padding=1)
        y = self.norm(y, prefix + "bn2", training)
        if stride == 2:  # option A: every second pixel, zeros for half the channels on each side
            zeros = x.new_zeros(x.shape[0], x.shape[1] // 2, *y.shape[2:])
            x = torch.cat([zeros, x[:, :, ::2, ::2], zeros], dim=1)
        return relu(y + x)

    def logits(self, x, training, relu=F.relu):
        x = F.conv2d(x, self.p["conv1.weight"], padding=1)
        x = relu(self.norm(x, "bn1", training))
        for stage in range(3):
            for index in range(self.blocks_per_stage):
                stride = 2 if stage > 0 and index == 0 else 1
                x = self.block(x, f"layer{stage + 1}.{index}.", stride, training, relu)
        return F.linear(x.mean(dim=(2, 3)), self.p["fc.weight"], self.p["fc.bias"])


class Report:
    def __init__(self):
        self.failures = 0

    def compare(self, what, limit, pairs):
        """Compares pairs of tensors (found, expected) by name, and prints the worst pair."""
        worst, worst_name = -1.0, ""
        for name, (found, expected) in pairs.items():
            found, expected = found.double(), expected.detach().double()
            scale = expected.norm().item()
            error = (found - expected).norm().item() / (scale if scale > 0 else 1.0)
            if not error <= limit:
                self.failures += 1
                print(f"  {what} {name}: relative error {error:.2e} > {limit:.0e}")
            if not error <= worst:
                worst, worst_name = error, name
        print(f"{what}: worst relative error {worst:.2e} ({worst_name}), limit {limit:.0e}")


def initial_statistics(names):
    return {name: torch.ones_like(t) if name.endswith("_var") else torch.zeros_like(t)
            for name, t in names.items()}


def paired(found, expected):
    assert found.keys() == expected.keys()
    return {name: (found[name], expected[name]) for name in expected}


def check(dump):
    report = Report()
    parameters = dump.tensors("parameters.txt", "parameters.f32")
    momentum = dump.tensors("parameters.txt", "momentum.f32")
    running = initial_statistics(dump.tensors("statistics.txt", "updated_statistics.f32"))
    for tensor in parameters.values():
        tensor.requires_grad_(True)
    images = dump.array("images.f32").reshape(-1, 3, 32, 32)
    labels = dump.labels()
    network = CifarResNet(dump.blocks, parameters, running, dump.statistics_rate)
    optimizer = torch.optim.SGD(parameters.values(), lr=dump.learning_rate, momentum=0.9,
                                weight_decay=1e-4)
    for name, tensor in parameters.items():
        optimizer.state[tensor]["momentum_buffer"] = momentum[name]

    relu = EngineRelu(dump.array("masks.u8", np.uint8).bool())
    logits = network.logits(images, True, relu)
    loss = F.cross_entropy(logits, labels, label_smoothing=dump.smoothing)
    loss.backward()
    report.failures += relu.verdict()
    report.compare("training loss", FORWARD_LIMIT,
                   {"loss": (dump.array("loss.f64", "<f8"), loss.reshape(1))})
    report.compare("gradient", GRADIENT_LIMIT,
                   paired(dump.tensors("parameters.txt", "gradient.f32"),
                          {name: t.grad for name, t in parameters.items()}))
    report.compare("running statistics", FORWARD_LIMIT,
                   paired(dump.tensors("statistics.txt", "updated_statistics.f32"), running))

    optimizer.step()
    updated = paired(dump.tensors("parameters.txt", "updated_parameters.f32"), parameters)
    is_shift = {name: ".bias" in name and "fc" not in name for name in updated}
    report.compare("updated parameters", UPDATE_LIMIT,
                   {name: pair for name, pair in updated.items() if not is_shift[name]})
    report.compare("updated shifts", GRADIENT_LIMIT,
                   {name: pair for name, pair in updated.items() if is_shift[name]})
    report.compare("updated momentum", GRADIENT_LIMIT,
                   paired(dump.tensors("parameters.txt", "updated_momentum.f32"), momentum))

    # Both sides infer with the engine's weights and statistics, so that differences between the
    # updates do not matter.
    for target, table, array in ((parameters, "parameters.txt", "updated_parameters.f32"),
                                 (running, "statistics.txt", "updated_statistics.f32")):
        for name, tensor in dump.tensors(table, array).items():
            target[name].data.copy_(tensor)
    with torch.no_grad():
        losses = F.cross_entropy(network.logits(images, False), labels, reduction="none")
    report.compare("inference losses", FORWARD_LIMIT,
                   {"all": (dump.array("evaluation_losses.f64", "<f8"), losses)})
    return report.failures


def main():
    tool, model = sys.argv[1:]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tool, model, folder], check=True)
        failures = check(Dump(folder))
    print(f"{model}: {'agrees with' if not failures else 'DISAGREES with'} PyTorch "
          f"{torch.__version__}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
