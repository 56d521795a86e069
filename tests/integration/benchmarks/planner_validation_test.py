"""The command of docs/planner_validation.md, run on a small invented calibration, prints the rows
that the document has. According to them, the models predict the invented numbers."""
import json
import os
import re
import subprocess
import sys
import tempfile

import mayfly_run
from mayfly_run import expect

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
# Rows that the models do not predict: the folder is too small for them or lacks their measurements.
NOT_KNOWN = {"step time with 30 ms of latency", "accuracy with a switch of policy",
             "checkpoint of a new network"}


def names_in(text):
    """The first cells of the table whose heading names the command."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| left out and predicted |"))
    names = []
    for line in lines[start + 2:]:
        if not line.startswith("| "):
            return names
        names.append(line.split("|")[1].strip())
    return names


def main():
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        output = os.path.join(folder, "rows.jsonl")
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "benchmarks/planner_validation"), "--calibration",
             os.path.join(ROOT, "tests/unit/planner/invented"), "--program", mayfly_run.BINARY,
             "--output", output], capture_output=True, text=True, timeout=280, check=False)
        expect(done.returncode == 0, done.stderr)
        with open(output, encoding="utf-8") as lines:
            results = [json.loads(line) for line in lines]
    rows = [row for row in results if row["kind"] == "planner"]
    with open(os.path.join(ROOT, "docs/planner_validation.md"), encoding="utf-8") as text:
        documented = names_in(text.read())
    with open(os.path.join(ROOT, "benchmarks/planner_validation"), encoding="utf-8") as text:
        measured = re.findall(r'^    \("([^"]+)", ', text.read(), re.MULTILINE)
    expect(documented == measured, f"the document has {documented}, the command {measured}")
    names = [row["row"] for row in rows]
    expect(len(names) >= 10 and names == [name for name in documented if name in names],
           f"rows {names}")
    expect(names_in(done.stdout) == names, done.stdout)
    for row in rows:
        if row["row"] not in NOT_KNOWN:
            expect(row["covered"] == row["values"], f"{row}")
            expect(row["mayfly"] < row["plain"] / 2, f"{row}")
    choices = {row["method"]: row for row in results if row["kind"] == "choice"}
    for method in ("medians", "limits kept with probability 0.95"):
        expect(choices[method]["broken"] == 0 < choices["plain method"]["broken"], f"{choices}")
    print("passed")


if __name__ == "__main__":
    main()
