"""Each header compiles alone, and has #pragma once.

Those named *-inl.hpp are compiled once per instruction set in one file, so they have a guard that
opens again for each (Highway's convention, "HWY_TARGET_TOGGLE") instead.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys

from sources import cpp_files, finish, root_argument


# Headers of a module whose library is not everywhere, and where pkg-config finds that library's.
MODULES = {"collectives/mpi/mpi_": "ompi-c"}


# Headers over CUDA and cuDNN, and where NVIDIA's packages put those.
CUDA_HEADERS = ("nn/cuda/cudnn/", "nn/cuda/cudnn_convolver", "nn/cuda/cuda_handles")
CUDA_INCLUDE = "/usr/local/cuda/include"


def options_of_module(path):
    """Flags for headers of a module; None if its library is missing here."""
    if path.startswith(CUDA_HEADERS):
        found = os.path.exists(os.path.join(CUDA_INCLUDE, "cudnn_graph.h"))
        return ["-isystem", CUDA_INCLUDE] if found else None
    package = next((MODULES[start] for start in MODULES if path.startswith(start)), None)
    if package is None:
        return []
    if shutil.which("pkg-config") is None:
        return None
    asked = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True,
                           check=False)
    return asked.stdout.split() + ["-DOMPI_SKIP_MPICXX"] if asked.returncode == 0 else None


def compile_problem(compiler, root, path):
    options = options_of_module(path)
    if options is None:
        return None
    run = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", str(root), *options,
         "-include", path, os.devnull],
        cwd=root, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    return f"{path} does not compile alone:\n{run.stderr[:2000]}"


def guard_problem(path, text):
    guard = "HWY_TARGET_TOGGLE" if path.endswith("-inl.hpp") else "#pragma once"
    return None if guard in text else f"{path}: no {guard}"


def problems(root, compiler):
    headers = list(cpp_files(root, (".hpp",)))
    found = [problem for problem in (guard_problem(str(path), text) for path, text in headers)
             if problem]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda header: compile_problem(compiler, root, str(header[0])), headers)
        found += [problem for problem in results if problem]
    return found


if __name__ == "__main__":
    finish(problems(root_argument(), sys.argv[2]))
