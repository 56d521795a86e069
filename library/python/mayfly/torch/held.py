"""The registered tensors of a model. The library uses the address of their memory, but a module may
replace a tensor by another one, or its memory."""

import torch

from .._abi import Refused


class Held:
    """Keeps the memory of the named tensors of `model`, and restores it if it was replaced."""

    def __init__(self, model, named):
        modules = dict(model.named_modules())
        self._places = []  # (name, module, the tensor's name in it, tensor, its memory)
        for name, tensor in named:
            path, _, attribute = name.rpartition(".")
            self._places.append((name, modules[path], attribute, tensor, tensor.detach()))

    def put_back(self):
        """Copies assigned values, as of `self.center = 0.9 * self.center + ...` for a buffer or
        `p.data = ...` for a parameter, to the memory that the library reads and writes."""
        for place in self._places:
            _, module, attribute, tensor, memory = place
            now = getattr(module, attribute, None)
            if now is not tensor or now.data_ptr() != memory.data_ptr():
                self._take(*place, now)

    @torch.no_grad()
    def _take(self, name, module, attribute, tensor, memory, now):
        if isinstance(tensor, torch.nn.Parameter) and now is not tensor:
            raise Refused(f"the parameter {name} was replaced by another one after the job was "
                          "made, and the optimizer has the first; change its values in place, as "
                          "with copy_()")
        if now is None or _kind(now) != _kind(memory):
            raise Refused(f"{name} was {_kind(memory)} when the job was made, and is "
                          f"{'absent' if now is None else _kind(now)} now; move or convert a model "
                          "before its job is made")
        memory.copy_(now.detach().clone())  # it may be a view of the same memory
        tensor.data = memory
        setattr(module, attribute, tensor)


def _kind(tensor):
    """A description for messages: float32[3, 4] on cpu."""
    return f"{str(tensor.dtype)[len('torch.'):]}{list(tensor.shape)} on {tensor.device}"
