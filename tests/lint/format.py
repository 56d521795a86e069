"""Checks that clang-format 14 would change no source."""

import re
import shutil
import subprocess
import sys

from sources import cpp_files, finish, root_argument


def problems(root, tool):
    names = [path for path, _ in cpp_files(root)]
    run = subprocess.run([tool, "--dry-run", "--Werror", *names], cwd=root, capture_output=True,
                         text=True, check=False)
    places = sorted(set(re.findall(r"^(\S+?:\d+):\d+: error", run.stderr, flags=re.M)))
    if run.returncode != 0 and not places:
        return [run.stderr]
    return [f"{place}: clang-format -i would change this" for place in places]


if __name__ == "__main__":
    CLANG_FORMAT = shutil.which("clang-format-14") or shutil.which("clang-format")
    if CLANG_FORMAT is None:
        print("SKIPPED: clang-format is not installed")
        sys.exit(77)
    VERSION = subprocess.run([CLANG_FORMAT, "--version"], capture_output=True, text=True,
                             check=True).stdout.strip()
    if " 14." not in VERSION:
        print(f"SKIPPED: the layout is defined by clang-format 14, this is {VERSION}")
        sys.exit(77)
    finish(problems(root_argument(), CLANG_FORMAT))
