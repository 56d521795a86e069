"""Kernels that promise to move 16 bytes at once do so in the machine code.

vector_loads_test.py LIBRARY KERNEL...: every kernel of LIBRARY (a shared library or archive) whose
demangled name contains one of the words has LDG.E.128 and STG.E.128, or only what "word:load" says.
Needs cuobjdump.
"""

import collections
import re
import shutil
import subprocess
import sys


def machine_code(library):
    """Instructions by demangled kernel, over all architectures."""
    tool = shutil.which("cuobjdump")
    text = subprocess.run([tool, "--dump-sass", library], capture_output=True, text=True,
                          check=True).stdout
    text = subprocess.run(["c++filt"], input=text, capture_output=True, text=True,
                          check=True).stdout
    found = collections.defaultdict(set)
    kernel = None
    for line in text.splitlines():
        if start := re.match(r"\s*Function : (.*)", line):
            kernel = start.group(1)
        elif kernel and (instruction := re.search(r"\b(LDG|STG)(\.\w+)*", line)):
            found[kernel].add(instruction.group(0))
    return found


def main():
    library, *words = sys.argv[1:]
    if shutil.which("cuobjdump") is None or shutil.which("nvdisasm") is None:
        print("SKIPPED: cuobjdump and nvdisasm are not installed (CUDA's binary utilities)")
        return 77
    code = machine_code(library)
    wrong = []
    for word in words:
        word, _, only = word.partition(":")
        matching = {kernel: used for kernel, used in code.items() if word in kernel}
        if not matching:
            wrong.append(f"there is no kernel {word}")
        for kernel, used in matching.items():
            for kind in ("LDG",) if only == "load" else ("LDG", "STG"):
                if not any(name.startswith(kind) and "128" in name for name in used):
                    wrong.append(f"{kernel}: no {kind} of 128 bits, only {sorted(used)}")
    print("\n".join(wrong) or f"{len(words)} words, all in 16 bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
