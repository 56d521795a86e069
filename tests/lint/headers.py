"""Each header compiles alone, and has #pragma once.

Those named *-inl.hpp are compiled once per instruction set in one file, so they have a guard that
opens again for each (Highway's convention, "HWY_TARGET_TOGGLE") instead.
"""

import concurrent.futures
import os
import subprocess
import sys

from sources import cpp_files, finish, root_argument


def compile_problem(compiler, root, path):
    run = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", str(root), "-include", path,
         os.devnull],
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
        results = pool.map(lambda header: compile_problem(compiler, root, header[0]), headers)
        found += [problem for problem in results if problem]
    return found


if __name__ == "__main__":
    finish(problems(root_argument(), sys.argv[2]))
