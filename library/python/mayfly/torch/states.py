"""States of optimizers, schedulers and extra parts of a job: their tensors, their pickled form, and
the hashes by which workers compare them."""

import hashlib
import io
import sys

import numpy
import torch


def is_of_parameter(index, entries):
    """Whether an item of an optimizer's state_dict() is the state of one parameter, rather than of
    all parameters together."""
    return isinstance(index, int) and isinstance(entries, dict)


def tensors_in(entries):
    """The names of the tensors. Tensors in lists and dictionaries are pickled instead."""
    return {key for key, value in entries.items()
            if isinstance(key, str) and isinstance(value, torch.Tensor)}


def put_types_back(optimizer, came):
    """Restores the types of loaded tensors: load_state_dict() converts each one to the type of its
    parameter. That is wrong if the optimizer uses another type, such as NAdam for its product with
    parameters of 16 or 64 bits. `came`: index of a parameter -> its entries as they were loaded."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    held = optimizer.state_dict()["state"]
    for index, parameter in enumerate(parameters):
        entries = held.get(index)
        # If they are not the same object, state_dict() has made a copy in a form of its own.
        if isinstance(entries, dict) and entries is optimizer.state.get(parameter):
            entries.update(_of_types(entries, came.get(index)))


def _of_types(now, came):
    """`now`, in which the tensors whose type differs in `came` are replaced by those of `came`."""
    if isinstance(now, torch.Tensor) and isinstance(came, torch.Tensor):
        return now if now.dtype == came.dtype else came.to(now.device)
    if isinstance(now, dict) and isinstance(came, dict):
        return {key: _of_types(value, came.get(key)) for key, value in now.items()}
    if isinstance(now, list) and isinstance(came, list) and len(now) == len(came):
        return [_of_types(one, its) for one, its in zip(now, came)]
    return now


def take(name, thing, state):
    if state is None:
        print(f"mayfly: the received state has nothing for {name}, which keeps its initial state",
              file=sys.stderr, flush=True)
    else:
        thing.load_state_dict(state)


def without_functions(state):
    """The state of a scheduler without methods, which would be pickled with its optimizer."""
    return {name: value for name, value in state.items() if not callable(value)}


def saved(rest):
    buffer = io.BytesIO()
    torch.save(rest, buffer)
    return buffer.getvalue()


def hash_of(thing):
    """Two 64-bit numbers that depend on the values in dictionaries, lists, tensors, arrays and
    plain values, and only on the types of other objects. They are equal on all workers, even if
    some have received the state from others."""
    hasher = hashlib.blake2b(digest_size=16)
    _add_to(hasher, thing)
    return [int.from_bytes(hasher.digest()[i:i + 8], "little", signed=True) for i in (0, 8)]


def _add_to(hasher, thing):
    if isinstance(thing, torch.Tensor):
        flat = thing.detach().cpu().contiguous().reshape(-1)
        hasher.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
        hasher.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(thing, numpy.generic):  # a NumPy scalar
        _add_to(hasher, numpy.asarray(thing))
    elif isinstance(thing, numpy.ndarray) and thing.dtype.hasobject:  # its bytes are addresses
        hasher.update(f"{thing.dtype}{thing.shape}".encode())
        _add_to(hasher, thing.tolist())
    elif isinstance(thing, numpy.ndarray):
        hasher.update(f"{thing.dtype}{thing.shape}".encode() + thing.tobytes())
    elif isinstance(thing, dict):
        hasher.update(b"{")
        for name, value in sorted(thing.items(), key=lambda item: repr(item[0])):
            hasher.update(repr(name).encode())
            _add_to(hasher, value)
        hasher.update(b"}")
    elif isinstance(thing, (list, tuple)):
        hasher.update(b"[")
        for value in thing:
            _add_to(hasher, value)
        hasher.update(b"]")
    elif thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        hasher.update(repr(thing).encode() + b";")
    else:
        hasher.update(type(thing).__name__.encode() + b";")
