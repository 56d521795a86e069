"""The facts on which the bits of a microbatch depend besides the program; equal on all workers."""

import os
import re

import torch


def facts(optimizer, devices):
    """`devices`: the devices of the model's tensors."""
    found = {
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "threads of torch": torch.get_num_threads(),
        "optimizer": type(optimizer).__name__,
        "denormals": torch.set_flush_denormal(False),
    }
    capability = getattr(torch.backends.cpu, "get_cpu_capability", None) if hasattr(
        torch.backends, "cpu") else None
    found["instruction set"] = capability() if capability else _line("CPU capability usage")
    found["BLAS"] = _libraries("blas", "mkl")
    if any(device.type == "cuda" for device in devices):
        found |= _gpu_facts(next(device for device in devices if device.type == "cuda"))
    return {name: str(value) for name, value in found.items()}


def _gpu_facts(device):
    cudnn = torch.backends.cudnn
    return {
        "GPU": f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)}",
        "CUDA": torch.version.cuda,
        "cuDNN": f"{cudnn.version()} deterministic={cudnn.deterministic} "
                 f"benchmark={cudnn.benchmark} tf32={cudnn.allow_tf32}",
        "matrix products": f"tf32={torch.backends.cuda.matmul.allow_tf32} "
                           f"{os.environ.get('CUBLAS_WORKSPACE_CONFIG', '')}",
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def _libraries(*words):
    """The names of this process's libraries that contain one of the words, except libraries that
    belong to other Python packages than torch and NumPy."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if "/" in line}
    packages = {path: re.search(r"/(?:site|dist)-packages/(\w+)", path) for path in paths}
    names = {os.path.basename(os.path.realpath(path)) for path, package in packages.items()
             if not package or package.group(1) in ("torch", "numpy", "nvidia")}
    return " ".join(sorted(name for name in names
                           if ".so" in name and any(word in name for word in words)))


def _line(word):
    """The line of torch's description of its build that contains the word."""
    for line in torch.__config__.show().splitlines():
        if word in line:
            return line.strip(" -")
    return ""
