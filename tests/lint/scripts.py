"""Checks that scripts parse, are executable, and name no place outside of the repository."""

import os
import re
import subprocess

from sources import finish, root_argument

# The only place outside that may be named, by continuous integration: a folder of test data.
OUTSIDE_ALLOWED = {".ci/run": "../shared"}


def script_files(root):
    for folder in ("scripts", ".ci", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                with path.open("rb") as file:
                    if file.read(2) == b"#!":
                        yield path.relative_to(root).as_posix(), path


def outside_problems(name, text):
    allowed = OUTSIDE_ALLOWED.get(name)
    for number, line in enumerate(text.splitlines(), 1):
        rest = line.replace(allowed, "") if allowed else line
        rest = rest.replace('$(dirname "$0")/..', "").replace('"$here/../..', "")
        if re.search(r"(?<![\w.])\.\./", rest):
            yield f"{name}:{number}: leaves the repository: {line.strip()}"
        if re.search(r"(?<![\w.$}])/(home|root|work|tmp|mnt|opt)/", rest):
            yield f"{name}:{number}: names a fixed place on one machine: {line.strip()}"


def problems(root):
    found = []
    for name, path in script_files(root):
        text = path.read_text()
        shell = re.match(r"#!/bin/(bash|sh)", text)
        if not os.access(path, os.X_OK):
            found.append(f"{name}: is not executable")
        if shell:
            run = subprocess.run([shell.group(1), "-n", str(path)], capture_output=True, text=True,
                                 check=False)
            if run.returncode != 0:
                found.append(f"{name}: {run.stderr.strip()}")
        found += outside_problems(name, text)
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
