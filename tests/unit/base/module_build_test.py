"""Goal: a module built from other sources than the program reports another build.
Method: runs cmake/MayflyModuleBuild.cmake as a script on small trees that differ in one file.
usage: module_build_test.py REPOSITORY
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1]).resolve() / "cmake/MayflyModuleBuild.cmake"
TREE = {"base/result.hpp": "a", "nn/model.cpp": "b", "nn/cuda/kernels/step.cu": "c",
        "collectives/nccl/sums.cuh": "d", "datasets/core/stream.hpp": "e", "cli/main.cpp": "f",
        "docs/gpu.md": "g"}


def build_of(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        output = pathlib.Path(folder, "build.cpp")
        subprocess.run(["cmake", "-D", f"ROOT={folder}", "-D", "VERSION=1.2.3", "-D",
                        f"OUTPUT={output}", "-P", SCRIPT], check=True, timeout=60)
        return re.search(r'return "1\.2\.3 " __VERSION__ " ([0-9a-f]{16})";',
                         output.read_text()).group(1)


def main():
    same = build_of(TREE)
    failures = []
    if build_of(TREE) != same:
        failures.append("the same sources in another folder are another build")
    for name in TREE:
        matters = not name.startswith(("cli/", "docs/"))
        for change, files in {"changed": {**TREE, name: "x"},
                              "removed": {n: t for n, t in TREE.items() if n != name},
                              "renamed": {n.replace(name, name.replace("/", "/x", 1)): t
                                          for n, t in TREE.items()}}.items():
            if (build_of(files) != same) != matters:
                failures.append(f"{name} {change}: {'the same' if matters else 'another'} build")
    print("\n".join(failures) or f"{3 * len(TREE)} changes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
