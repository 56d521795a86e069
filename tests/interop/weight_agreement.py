#!/usr/bin/python3
"""Checks that weights can be converted from Mayfly to PyTorch and back, and that both compute the
same logits with them.

    weight_agreement.py PATH/weight_interop PATH/mayfly PATH/docs/pytorch.md MODEL

Weight files are read and written with the functions in docs/pytorch.md, so these are tested, too.

1. PyTorch loads Mayfly's weights with strict=True; the logits of both agree to 1e-4 (relative L2
   error over the images).
2. Mayfly loads the weights of a PyTorch network with trained statistics; the same limit holds.
3. `mayfly import` and `mayfly export` of the same file give back its bits.

Exit status: 0 agreement, 1 disagreement, 77 skipped (no PyTorch or torchvision).
"""
import os
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(f"skipped: {error} (apt-get install python3-torch python3-torchvision)")
    sys.exit(77)

LIMIT = 1e-4
CLASSES = 10
IMAGES = 2
SKIPPED = 77


class BasicBlock(nn.Module):
    """The block of the CIFAR networks, with the option-A shortcut."""

    def __init__(self, channels_in, channels):
        super().__init__()
        self.stride = channels // channels_in
        self.conv1 = nn.Conv2d(channels_in, channels, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride == 2:
            padding = x.shape[1] // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, padding, padding))
        return F.relu(x + y)


class CifarResNet(nn.Module):
    """The network of He et al. 2016, section 4.2, with the usual names of its modules."""

    def __init__(self, depth):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        for stage, (first, channels) in enumerate([(16, 16), (16, 32), (32, 64)], 1):
            widths = [first] + [channels] * blocks
            setattr(self, f"layer{stage}", nn.Sequential(
                *[BasicBlock(*pair) for pair in zip(widths, widths[1:])]))
        self.linear = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def is_imagenet(model):
    return model in ("resnet18", "resnet34", "resnet50")


def network(model):
    if is_imagenet(model):
        return torchvision.models.__dict__[model](num_classes=CLASSES)
    return CifarResNet(int(model[len("resnet"):]))


def documented(path):
    """The reader and the writer of weight files, from the Python blocks of the document."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for block in re.findall(r"```python\n(.*?)```", file.read(), flags=re.S):
            if "def " in block:
                exec(block, found)  # pylint: disable=exec-used
    return found["read_safetensors"], found["write_safetensors"]


def trained_network(model, images):
    """A network with PyTorch's initial weights, running statistics of some images, and logit 0 for
    class 0."""
    torch.manual_seed(6)
    net = network(model)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(images + 0.1 * torch.randn_like(images))
        classifier = net.fc if is_imagenet(model) else net.linear
        classifier.weight[0] = 0
        classifier.bias[0] = 0
    return net.eval()


class Test:
    def __init__(self, tool, mayfly, document, model, folder):
        self.tool, self.mayfly, self.model, self.folder = tool, mayfly, model, folder
        self.read, self.write = documented(document)
        self.failures = 0
        size = 224 if is_imagenet(model) else 32
        torch.manual_seed(5)
        self.images = torch.randn(IMAGES, 3, size, size)
        self.images.numpy().tofile(self.path("images.f32"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect(self, holds, text):
        print(("ok     " if holds else "FAILED ") + text)
        self.failures += not holds

    def run(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, SKIPPED):
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done

    def compare_logits(self, what, net, weights):
        done = self.run(self.tool, "logits", self.model, self.path(weights),
                        self.path("images.f32"), str(self.images.shape[2]), self.path("logits"))
        if done.returncode == SKIPPED:
            print(f"SKIP   {what}: {done.stderr.strip()}")
            return
        with open(self.path("logits"), "rb") as file:
            found = torch.frombuffer(bytearray(file.read()), dtype=torch.float64)
        with torch.no_grad():
            expected = net(self.images).double().flatten()
        error = ((found - expected).norm() / expected.norm()).item()
        self.expect(error <= LIMIT, f"{what}: logits differ by {error:.1e}, limit {LIMIT:.0e}")

    def mayfly_to_torch(self):
        self.run(self.tool, "make", self.model, str(CLASSES), self.path("mayfly"))
        tensors = self.read(self.path("mayfly"))
        if not is_imagenet(self.model):  # Mayfly uses torchvision's name of the classifier
            tensors = {name.replace("fc.", "linear."): t for name, t in tensors.items()}
        net = network(self.model)
        net.load_state_dict(tensors, strict=True)
        types = all(tensors[name].dtype == t.dtype for name, t in net.state_dict().items())
        self.expect(types, "Mayfly to PyTorch: names, shapes and types of the state_dict")
        self.compare_logits("Mayfly to PyTorch", net.eval(), "mayfly")

    def torch_to_mayfly(self):
        net = trained_network(self.model, self.images)
        state = net.state_dict()
        prefix = "" if is_imagenet(self.model) else "module."  # as DataParallel stores it
        self.write(self.path("torch"), {prefix + name: t for name, t in state.items()})
        self.compare_logits("PyTorch to Mayfly", net, "torch")
        self.run(self.mayfly, "import", self.path("torch"), "--model", self.model, "--output",
                 self.path("checkpoint"))
        self.run(self.mayfly, "export", self.path("checkpoint"), "--output", self.path("back"))
        back = self.read(self.path("back"))
        ours = {name.replace("linear.", "fc."): t for name, t in state.items()}
        same = back.keys() == ours.keys() and all(
            torch.equal(back[name], t) for name, t in ours.items()
            if not name.endswith("num_batches_tracked"))
        self.expect(same, "import and export give back every bit")


def main():
    tool, mayfly, document, model = sys.argv[1:]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        test = Test(tool, mayfly, document, model, folder)
        test.mayfly_to_torch()
        test.torch_to_mayfly()
        return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main())
