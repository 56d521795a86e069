"""Checks that each header compiles alone and has #pragma once, and that each source compiles alone,
which a build in batches does not show.

    headers.py ROOT COMPILER [BUILD_FOLDER [SHARE]]

If a file in the build begins with a header, the header has compiled alone there. So with a build
folder only the other headers are compiled here, with ccache if it is installed. All of them take
five minutes on two cores. With a SHARE of N only one in N is compiled, different ones for each
commit, and those that the last commits or the working tree have changed, or a sample if these are
many. With a SHARE, one in 4 N of the sources that the build compiles in batches are also compiled
alone. Headers named *-inl.hpp are compiled once per instruction set in one file, so instead of
#pragma once they have a guard that opens again for each (Highway's convention,
"HWY_TARGET_TOGGLE").
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib

from sources import code_only, cpp_files, finish, includes, root_argument


# Beginnings of paths of headers that need a library, which may be missing; its pkg-config name.
MODULES = {"collectives/mpi/mpi_": "ompi-c"}


# Headers that need CUDA and cuDNN, and the folder in which NVIDIA's packages install those.
CUDA_HEADERS = ("nn/cuda/cudnn/", "nn/cuda/cudnn_convolver", "nn/cuda/cuda_handles",
                "nn/cuda/device_copies", "nn/cuda/resident_state")
CUDA_INCLUDE = "/usr/local/cuda/include"
# Headers for users' projects, which include each other relative to this folder.
INSTALLED = "library/include/"
# Files that this many last commits have changed are compiled; if there are more than RECENT_MOST, a
# sample of about that many.
RECENT_COMMITS = 20
RECENT_MOST = 16
CCACHE = ["ccache"] if shutil.which("ccache") else []


def options_of_module(path):
    """The compiler's flags for a header; None if a library that it needs is missing."""
    if path.startswith(CUDA_HEADERS):
        found = os.path.exists(os.path.join(CUDA_INCLUDE, "cudnn_graph.h"))
        return ["-isystem", CUDA_INCLUDE] if found else None
    if path.startswith(INSTALLED):
        return ["-I", INSTALLED]
    package = next((MODULES[start] for start in MODULES if path.startswith(start)), None)
    if package is None:
        return []
    if shutil.which("pkg-config") is None:
        return None
    asked = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True,
                           check=False)
    return asked.stdout.split() + ["-DOMPI_SKIP_MPICXX"] if asked.returncode == 0 else None


def compile_problem(compiler, root, path, folder):
    options = options_of_module(path)
    if options is None:
        return None
    source = pathlib.Path(folder, path.replace("/", "-") + ".cpp")
    source.write_text(f'#include "{path}"\n')
    return problem_of(path, root, [*CCACHE, compiler, "-std=c++20", "-c", "-I", str(root), *options,
                                   str(source), "-o", str(source.with_suffix(".o"))])


def problem_of(path, folder, command):
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    return f"{path} does not compile alone:\n{run.stderr[:2000]}"


def compilations_of_batches(build):
    """The entries of compile_commands.json that compile several sources."""
    commands = build / "compile_commands.json"
    for entry in json.loads(commands.read_text()) if commands.exists() else []:
        if "/Unity/" in entry["file"] and pathlib.Path(entry["file"]).exists():
            yield entry


def sources_in_batches(build, root):
    """By source of a batch, the command that compiles it alone: (folder, command without source and
    output)."""
    found = {}
    for entry in compilations_of_batches(build):
        flags = shlex.split(entry["command"].split(" -o ")[0])
        for source in re.findall(r'#include "(.+)"', pathlib.Path(entry["file"]).read_text()):
            if pathlib.Path(source).is_relative_to(root):
                found[str(pathlib.Path(source).relative_to(root))] = (entry["directory"], flags)
    return found


def source_problems(root, build, share, pool):
    batched = sources_in_batches(build, root)

    def look(path):
        where, flags = batched[path]
        return problem_of(path, where, [*flags, "-O0", "-fsyntax-only", str(root / path)])

    return [problem for problem in pool.map(look, of_this_commit(root, sorted(batched), share))
            if problem]


def guard_problem(path, text):
    guard = "HWY_TARGET_TOGGLE" if path.endswith("-inl.hpp") else "#pragma once"
    return None if guard in text else f"{path}: no {guard}"


def begins_with(text):
    """The path in quotes of the #include that is the first code of a source, or None."""
    said = (number for number, line in enumerate(code_only(text).splitlines(), 1) if line.strip())
    number, kind, path = next(includes(text), (0, "", ""))
    return path if kind == '"' and number == next(said, None) else None


def compiled_in(build, root):
    """Headers that have compiled alone in a build folder: the source of an object begins with the
    header, the object is newer than both, and no option made the compiler read another file
    first."""
    commands = build / "compile_commands.json"
    found = set()
    for entry in json.loads(commands.read_text()) if commands.exists() else []:
        source = pathlib.Path(entry["directory"], entry["file"])
        output = re.search(r" -o (\S+)", entry["command"])
        if output is None or re.search(r" -(include|imacros)", entry["command"]):
            continue
        made = pathlib.Path(entry["directory"], output.group(1))
        if not source.exists() or not made.exists():
            continue
        header = begins_with(source.read_text())
        if header is not None and (root / header).exists() and made.stat().st_mtime >= max(
                source.stat().st_mtime, (root / header).stat().st_mtime):
            found.add(header)
    return found


def of_this_commit(root, paths, share):
    """The paths to check for this commit: one in `share`, chosen by the commit's hash, and recently
    changed ones."""
    def git(*words):
        ran = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                             check=False)
        return ran.stdout.splitlines() if ran.returncode == 0 else None

    commit = git("rev-parse", "--verify", "HEAD")
    new = git("log", f"-{RECENT_COMMITS}", "--format=", "--name-only")
    touched = git("status", "--porcelain", "--untracked-files=all")
    if None in (commit, new, touched):
        return paths
    new = {*new, *(line[3:] for line in touched)}.intersection(paths)
    share_of_new = len(new) // RECENT_MOST + 1

    def number(path):
        return zlib.crc32((commit[0] + path).encode())

    return [path for path in paths
            if number(path) % (share_of_new if path in new else share) == 0]


def problems(root, compiler, build=None, share=1):
    headers = [(str(path), text) for path, text in cpp_files(root, (".hpp",))]
    found = [problem for problem in (guard_problem(path, text) for path, text in headers)
             if problem]
    known = compiled_in(build, root) if build is not None else set()
    left = [path for path, _ in headers if path not in known]
    if share > 1:
        left = of_this_commit(root, left, share)
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch if build is None or not build.is_dir() else build / "lint-headers"
        os.makedirs(folder, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = pool.map(lambda path: compile_problem(compiler, root, path, folder), left)
            found += [problem for problem in results if problem]
            if share > 1 and build is not None:
                found += source_problems(root, build, 4 * share, pool)
    return found


if __name__ == "__main__":
    finish(problems(root_argument(), sys.argv[2], *map(pathlib.Path, sys.argv[3:4]),
                    *map(int, sys.argv[4:5])))
