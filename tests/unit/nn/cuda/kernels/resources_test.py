"""Checks the assembler's report of each CUDA kernel: no spills, no more registers than allowed.

resources_test.py FOLDER CEILINGS: FOLDER has *.resources, one for each file that nvcc compiled.
CEILINGS has lines "registers kernel"; a kernel may need fewer. With --list it prints such lines
for the kernels in FOLDER. It rounds each number up as far as a multiprocessor still has room for
as many blocks.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# The most registers per thread with which a number of blocks of 256 threads fits into 65536.
STEPS = (32, 40, 48, 56, 64, 80, 96, 128, 168, 255)


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                         check=True)
    return run.stdout.splitlines()


def short(name):
    """The body that a kernel runs: blocks_kernel<SumRows<Moments<float>>>."""
    found = re.search(r"(\w+_kernel<.*?>)\(", name)
    inner = found.group(1) if found else name
    for noise in ("mayfly::nn::cuda::", "on_device::", "(anonymous namespace)::"):
        inner = inner.replace(noise, "")
    inner = re.sub(r"\((?:\w+::)*(\w+)\)(\d+)", r"\2", inner)
    return inner.replace("> >", ">>").replace("> >", ">>").replace(" ", "")


def kernels(folder):
    """Yields (file, kernel, architecture, registers, bytes of stack and spills)."""
    for path in sorted(pathlib.Path(folder).glob("*.resources")):
        entries = []
        entry = None
        for line in path.read_text().splitlines():
            if found := ENTRY.search(line):
                entry = [found.group(1), found.group(2), None, None]
                entries.append(entry)
            elif entry and (found := SPILLS.search(line)):
                entry[3] = sum(int(part) for part in found.groups())
            elif entry and (found := REGISTERS.search(line)):
                entry[2] = int(found.group(1))
        names = demangled([entry[0] for entry in entries]) if entries else []
        for name, (_, architecture, registers, spilled) in zip(names, entries):
            yield path.name, short(name), architecture, registers, spilled


def problems(found, ceilings):
    seen = set()
    for file, kernel, architecture, registers, spilled in found:
        where = f"{file}: {kernel} ({architecture})"
        seen.add(kernel)
        if registers is None or spilled is None:
            yield f"{where}: the assembler's report is not understood"
            continue
        if spilled:
            yield f"{where}: {spilled} bytes of stack and spilled registers"
        if kernel not in ceilings:
            yield f"{where}: has no line in the table of ceilings"
        elif registers > ceilings[kernel]:
            yield f"{where}: {registers} registers, allowed are {ceilings[kernel]}"
    for kernel in sorted(set(ceilings) - seen):
        yield f"{kernel}: is in the table of ceilings and nowhere else"


def read_ceilings(path):
    lines = [line.split("#")[0].split() for line in pathlib.Path(path).read_text().splitlines()]
    return {name: int(registers) for registers, name in filter(None, lines)}


def main():
    listing = "--list" in sys.argv
    folder, table = [argument for argument in sys.argv[1:] if argument != "--list"]
    if shutil.which("c++filt") is None:
        print("SKIPPED: c++filt is not installed")
        return 77
    found = list(kernels(folder))
    if listing:
        largest = {}
        for _, kernel, _, registers, _ in found:
            largest[kernel] = max(largest.get(kernel, 0), registers)
        for kernel, registers in sorted(largest.items()):
            print(min(step for step in STEPS if step >= registers), kernel)
        return 0
    if not found:
        print("there is no report of the assembler")
        return 1
    wrong = list(problems(found, read_ceilings(table)))
    print("\n".join(wrong) or f"{len(found)} kernels, nothing spilled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
