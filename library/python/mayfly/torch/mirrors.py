"""Copies in host memory of tensors that the library cannot use where they are: those on a GPU, and
those that are not contiguous. It reads and writes the copies; the tensors follow, or are read."""

import torch


def is_elsewhere(tensor):
    return tensor.device.type != "cpu"


def needs_mirror(tensor):
    return is_elsewhere(tensor) or not tensor.is_contiguous()


def host_memory(elements, dtype, device):
    """Page-locked for a GPU, which then copies at the full speed of its bus."""
    return torch.empty(elements, dtype=dtype, pin_memory=device.type == "cuda")


class _Group:
    """Tensors of one device and type: copied together, by way of one block on the device."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.sizes = [tensor.numel() for tensor in tensors]
        self.host = host_memory(sum(self.sizes), tensors[0].dtype, tensors[0].device)
        self.copies = [part.view(tensor.shape)
                       for part, tensor in zip(self.host.split(self.sizes), tensors)]

    @torch.no_grad()
    def read(self):
        self.host.copy_(torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors]))

    @torch.no_grad()
    def write(self):
        block = self.host.to(self.tensors[0].device)
        for tensor, part in zip(self.tensors, block.split(self.sizes)):
            tensor.copy_(part.view(tensor.shape))


class Mirrors:
    """Of those of the named tensors that need one."""

    def __init__(self):
        self._layout = None
        self._groups = []
        self._copies = {}

    def follow(self, named):
        """Other tensors in place of those so far. The copies stay where they are if the names,
        shapes, types and devices are the same. Returns [(name, tensor that the library uses)]."""
        mirrored = [(name, tensor) for name, tensor in named if needs_mirror(tensor)]
        layout = [(name, tensor.shape, tensor.dtype, tensor.device) for name, tensor in mirrored]
        places = {}
        for name, tensor in mirrored:
            places.setdefault((tensor.device, tensor.dtype), []).append((name, tensor))
        if layout == self._layout:
            for group, members in zip(self._groups, places.values()):
                group.tensors = [tensor for _, tensor in members]
        else:
            self._layout = layout
            self._groups = [_Group([tensor for _, tensor in members])
                            for members in places.values()]
            self._copies = {name: copy for group, members in zip(self._groups, places.values())
                            for (name, _), copy in zip(members, group.copies)}
        return [(name, self._copies.get(name, tensor)) for name, tensor in named]

    def read(self):
        """The copies become what the tensors are."""
        for group in self._groups:
            group.read()

    def write(self):
        """The tensors become what the copies are."""
        for group in self._groups:
            group.write()


class Gradients:
    """The gradients of a microbatch as the library takes them: 32-bit floats in host memory."""

    def __init__(self, parameters):
        self._parameters = parameters  # [(name, parameter)]
        self._blocks = {}              # device -> host memory for all gradients that are on it
        self._kept = []                # what the addresses that were given point to

    @torch.no_grad()
    def addresses(self):
        """Of the gradient of each parameter, in their order; None = it has none. Valid until the
        next call, or release()."""
        self._kept = [None if p.grad is None else p.grad.detach().to(torch.float32)
                      for _, p in self._parameters]
        elsewhere = {}
        for i, gradient in enumerate(self._kept):
            if gradient is None:
                continue
            if is_elsewhere(gradient):
                elsewhere.setdefault(gradient.device, []).append(i)
            else:
                self._kept[i] = gradient.contiguous()
        for device, places in elsewhere.items():
            self._take(device, places)
        return [None if gradient is None else gradient.data_ptr() for gradient in self._kept]

    def release(self):
        """The gradients that were given are needed no longer: their memory is free for others."""
        self._kept = []

    def _take(self, device, places):
        """Copies the gradients at these places to the host, all at once."""
        if device not in self._blocks:
            size = sum(p.numel() for _, p in self._parameters if p.device == device)
            self._blocks[device] = host_memory(size, torch.float32, device)
        sizes = [self._kept[i].numel() for i in places]
        block = self._blocks[device][:sum(sizes)]
        block.copy_(torch.cat([self._kept[i].reshape(-1) for i in places]))
        for i, part in zip(places, block.split(sizes)):
            self._kept[i] = part
