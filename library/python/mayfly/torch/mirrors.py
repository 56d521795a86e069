"""Copies in host memory ("mirrors") of tensors whose memory the library cannot use: tensors on a
GPU, and tensors that are not contiguous. The library reads and writes the copies, which are read
from the tensors and written to them."""

import torch


def is_elsewhere(tensor):
    return tensor.device.type != "cpu"


def needs_mirror(tensor):
    return is_elsewhere(tensor) or not tensor.is_contiguous()


def host_memory(elements, dtype, device):
    """Host memory. For a GPU it is page-locked, so that copies have the full speed of the bus."""
    return torch.empty(elements, dtype=dtype, pin_memory=device.type == "cuda")


class _Group:
    """Tensors of one device and type. They are copied together, through one block on the device."""

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
    """The mirrors of those named tensors that need one."""

    def __init__(self):
        self._layout = None
        self._groups = []
        self._copies = {}

    def follow(self, named):
        """Replaces the tensors. The copies keep their memory if the names, shapes, types and
        devices are the same. Returns [(name, tensor that the library uses)]."""
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
        """Copies the tensors to the mirrors."""
        for group in self._groups:
            group.read()

    def write(self):
        """Copies the mirrors to the tensors."""
        for group in self._groups:
            group.write()


class Gradients:
    """The gradients of a microbatch in the form for the library: 32-bit floats in host memory."""

    def __init__(self, parameters):
        self._parameters = parameters  # [(name, parameter)]
        self._blocks = {}              # device -> host memory for all gradients that are on it
        self._kept = []                # the tensors to which the returned addresses point

    @torch.no_grad()
    def addresses(self):
        """The addresses of the parameters' gradients, in their order; None = no gradient. Valid
        until the next call, or release()."""
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
        """Drops the gradients, whose addresses are not used any more, to free their memory."""
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
