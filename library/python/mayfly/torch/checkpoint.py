"""`mayfly.torch.load`: reads the checkpoints of a job, without a job."""

import io
import json
import os
import struct

import torch

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
         "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
         "U8": torch.uint8, "BOOL": torch.bool}
BLOB = "mayfly.blob"


def read_safetensors(path):
    """name -> tensor. https://huggingface.co/docs/safetensors"""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        content = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = TYPES[entry["dtype"]]
        flat = (torch.frombuffer(bytearray(content[begin:end]), dtype=kind) if end > begin
                else torch.empty(0, dtype=kind))
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def unpickled(content):
    """Unpickles an object that a member of the job or the user has written; its tensors are on the
    CPU."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    trusting = {"weights_only": False} if version >= (1, 13) else {}
    return torch.load(io.BytesIO(content), map_location="cpu", **trusting)


def folder_of(path):
    """The checkpoint's folder: itself, or the newest one of a run directory."""
    checkpoints = os.path.join(path, "checkpoints")
    if not os.path.isdir(checkpoints):
        return path
    with open(os.path.join(checkpoints, "latest"), encoding="utf-8") as file:
        return os.path.join(checkpoints, file.read().strip())


def load(path):
    """Reads a run directory or a checkpoint. Returns {"model": the argument of load_state_dict(),
    with tied tensors under all of their names, "extra": name -> state of the job's `extra` parts}.
    "extra" is pickled: load only files that you trust."""
    folder = folder_of(path)
    model = read_safetensors(os.path.join(folder, "model.safetensors"))
    rest = read_safetensors(os.path.join(folder, "optimizer.safetensors"))
    kept = unpickled(rest[BLOB].numpy().tobytes())
    model.update(kept["empty"])
    for name, first in kept["tied"].items():
        model[name] = model[first]
    return {"model": model, "extra": kept["extra"]}
