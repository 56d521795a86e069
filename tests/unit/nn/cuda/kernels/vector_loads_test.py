"""Checks that kernels that promise to move 16 bytes at once do so.

vector_loads_test.py NVCC ROOT LIBRARY: checks the PTX that NVCC makes of the files and, where
cuobjdump and nvdisasm are installed, the machine code of LIBRARY.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# By file: parts of the names of its kernels, and whether they store 16 bytes at once as well.
PROMISES = {
    "norm_sum_kernels.cpp": {"SumRows<": False},
    "norm_apply_kernels.cpp": {"::Apply<": True, "ApplyGradient<": True},
    "pool_kernels.cpp": {"::Add<": True, "::Shortcut<": True, "ShortcutGradient<": True,
                         "::MaxPool<": True, "MaxPoolGradient<": True},
    "parameter_kernels.cpp": {"::Sgd": True},
}


def demangle(text):
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True,
                          check=True).stdout


def ptx_of(nvcc, root, file):
    with tempfile.NamedTemporaryFile(suffix=".ptx") as out:
        subprocess.run([nvcc, "-x", "cu", "-ptx", "-arch=compute_90", "-O3", "-std=c++20",
                        f"-I{root}", "-fmad=false", "--expt-relaxed-constexpr",
                        root / "nn" / "cuda" / "kernels" / file, "-o", out.name], check=True)
        return pathlib.Path(out.name).read_text()


def accesses(text, start, load, store):
    """Returns for each kernel whether it loads and whether it stores 16 bytes at once."""
    found = collections.defaultdict(lambda: [False, False])
    kernel = None
    for line in text.splitlines():
        if begins := re.search(start, line):
            kernel = begins.group(1)
        elif kernel:
            found[kernel][0] |= re.search(load, line) is not None
            found[kernel][1] |= re.search(store, line) is not None
    return {demangle(kernel).strip(): used for kernel, used in found.items()}


def problems(where, code, promises):
    for word, stores in promises.items():
        matching = {kernel: used for kernel, used in code.items() if word in kernel}
        if not matching:
            yield f"{where}: there is no kernel {word}"
        for kernel, (has_load, has_store) in matching.items():
            if not has_load or (stores and not has_store):
                yield f"{where}: {kernel} does not move 16 bytes at once"


def main():
    nvcc, root, library = sys.argv[1:]
    if shutil.which("c++filt") is None:
        print("SKIPPED: c++filt is not installed")
        return 77
    wrong = []
    for file, promises in PROMISES.items():
        code = accesses(ptx_of(nvcc, pathlib.Path(root), file), r"\.entry (\w+)\(",
                        r"\bld\.global(\.\w+)*\.v4\.\w32\b",
                        r"\bst\.global(\.\w+)*\.v4\.\w32\b")
        wrong += problems(file, code, promises)
    tools = shutil.which("cuobjdump") and shutil.which("nvdisasm")
    if tools:
        text = subprocess.run(["cuobjdump", "--dump-sass", library], capture_output=True, text=True,
                              check=True).stdout
        code = accesses(text, r"Function : (\w+)", r"\bLDG(\.\w+)*\.128\b", r"\bSTG(\.\w+)*\.128\b")
        for promises in PROMISES.values():
            wrong += problems("machine code", code, promises)
    seen = "PTX and machine code" if tools else "PTX (cuobjdump or nvdisasm is not installed)"
    print("\n".join(wrong) or f"16 bytes at once wherever promised, in {seen}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
