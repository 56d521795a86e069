"""States of optimizers, schedulers and what else a job keeps: what they consist of, how they
travel, and how workers compare them."""

import hashlib
import io
import sys

import numpy
import torch


def is_of_parameter(index, entries):
    """Of a state_dict(): what an optimizer keeps for one parameter, and not for all together."""
    return isinstance(index, int) and isinstance(entries, dict)


def tensors_in(entries):
    """Those that have a name. What is in lists and dictionaries goes with what is no tensor."""
    return {key for key, value in entries.items()
            if isinstance(key, str) and isinstance(value, torch.Tensor)}


def take(name, thing, state):
    if state is None:
        print(f"mayfly: the state that has come has nothing for {name}, which begins anew",
              file=sys.stderr, flush=True)
    else:
        thing.load_state_dict(state)


def without_functions(state):
    """What a scheduler says of itself, without methods, which would bring its optimizer along."""
    return {name: value for name, value in state.items() if not callable(value)}


def saved(rest):
    buffer = io.BytesIO()
    torch.save(rest, buffer)
    return buffer.getvalue()


def hash_of(thing):
    """Two 64-bit numbers that depend on the values in dictionaries, lists, tensors, arrays and
    plain values, and of other objects on their types alone: equal on all workers, whichever of them
    have received the state from others."""
    hasher = hashlib.blake2b(digest_size=16)
    _add_to(hasher, thing)
    return [int.from_bytes(hasher.digest()[i:i + 8], "little", signed=True) for i in (0, 8)]


def _add_to(hasher, thing):
    if isinstance(thing, torch.Tensor):
        flat = thing.detach().cpu().contiguous().reshape(-1)
        hasher.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
        hasher.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
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
    elif thing is None or isinstance(thing, (bool, int, float, str, bytes)):
        hasher.update(repr(thing).encode() + b";")
    else:
        hasher.update(type(thing).__name__.encode() + b";")
