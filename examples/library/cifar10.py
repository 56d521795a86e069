"""ResNet-20 on CIFAR-10 in PyTorch, elastic: workers may be killed and added while it trains.

    mayfly run --workers 4 --eval-every-epochs 1 -- python3 cifar10.py cifar-10-batches-bin
    kill -9 $(pgrep -f cifar10.py | tail -n 1)      # the others go on within milliseconds

DATA is the folder of the binary version of CIFAR-10, or one of folders of images: train/CLASS/*.jpg
and test/CLASS/*.jpg. Needs python3-torch and python3-numpy; folders of images python3-pil, too.
"""
import argparse
import os

import mayfly.torch
import numpy
import torch
from torch import nn
from torch.nn import functional

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


def read_binary(folder, names):
    records = numpy.concatenate([numpy.fromfile(os.path.join(folder, name), numpy.uint8)
                                 for name in names]).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(numpy.int64)


def read_folders(folder):
    from PIL import Image
    images, labels = [], []
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            with Image.open(os.path.join(folder, name, file)) as image:
                images.append(numpy.asarray(image.convert("RGB")).transpose(2, 0, 1))
            labels.append(label)
    return numpy.stack(images), numpy.array(labels)


class Images(torch.utils.data.Dataset):
    """Whoever reads an image crops and mirrors it alike: the job seeds each sample."""

    def __init__(self, folder, is_test):
        self.is_test = is_test
        if os.path.exists(os.path.join(folder, "data_batch_1.bin")):
            names = ["test_batch.bin"] if is_test else [f"data_batch_{i}.bin" for i in range(1, 6)]
            images, self.labels = read_binary(folder, names)
        else:
            images, self.labels = read_folders(os.path.join(folder, "test" if is_test else "train"))
        self.images = torch.from_numpy(images)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index].float() / 255 - MEAN) / DEVIATION
        if not self.is_test:
            top, left, mirrored = torch.randint(0, 9, (2,)).tolist() + [torch.rand(1) < 0.5]
            image = functional.pad(image, (4, 4, 4, 4))[:, top:top + 32, left:left + 32]
            image = image.flip(2) if mirrored else image
        return image, int(self.labels[index])


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential() if stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1),
                   Block(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=float, default=10)
    options = parser.parse_args()
    if not any(os.path.exists(os.path.join(options.data, name))
               for name in ("data_batch_1.bin", "train")):
        parser.error(f"neither data_batch_1.bin nor train is in {options.data}")

    torch.set_num_threads(1)
    torch.manual_seed(1)  # the same first weights on all workers
    train, test = Images(options.data, False), Images(options.data, True)
    steps = round(options.epochs * len(train) / 128)
    model = resnet20()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps)
    job = mayfly.torch.Job(model, optimizer, scheduler, data=train, batch=128, steps=steps)

    @job.evaluation(test)
    def measure(x, y):
        logits = model(x)
        return (logits.argmax(1) == y).sum(), functional.cross_entropy(logits, y, reduction="sum")

    for step in job.steps():
        for x, y in step:
            step.backward(functional.cross_entropy(model(x), y))
        optimizer.step()
        scheduler.step()
    print(job.outcome)


if __name__ == "__main__":
    main()
