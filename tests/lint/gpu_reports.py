"""Checks that the reports of scripts/gpu-check in benchmarks/results/gpu are complete, and that the
documents claim no more than the newest report. Without a report they must say that the GPU code is
untested on a device."""

import json
import re
import subprocess

from sources import finish, root_argument

UNTESTED = "untested on a device"
DOCUMENTS = ("README.md", "docs/gpu.md")

STRING = (str,)
FIELDS = {"kind": STRING, "version": (int,), "started": STRING, "finished": STRING,
          "commit": STRING, "uncommitted_changes": (bool,), "gpu": STRING, "cuda": STRING,
          "nccl": STRING, "result": STRING, "checks": (dict,), "clocks_before": (dict,),
          "clocks_after": (dict,)}
RESULTS = {"passed", "failed", "skipped"}


def field_problems(report):
    for name, types in FIELDS.items():
        if not isinstance(report.get(name), types):
            yield f"'{name}' is missing or of another type"
    if report.get("kind") != "gpu-report" or report.get("version") != 1:
        yield "is not a gpu-report of version 1"
    if not re.fullmatch(r"[0-9a-f]{40}", str(report.get("commit"))):
        yield "'commit' is not a commit"
    for name in ("started", "finished"):
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(report.get(name))):
            yield f"'{name}' is not a time"


def check_problems(report):
    checks = report.get("checks")
    for name, check in (checks if isinstance(checks, dict) else {}).items():
        if not isinstance(check, dict) or check.get("result") not in RESULTS:
            yield f"check '{name}' has no result"
        elif not isinstance(check.get("seconds"), (int, float)):
            yield f"check '{name}' has no seconds"
        elif check["result"] != "passed" and not check.get("reason"):
            yield f"check '{name}' does not say why it is {check['result']}"
        elif check["result"] == "failed" and report.get("result") != "failed":
            yield f"check '{name}' failed, but the report did not"
    if not checks:
        yield "there are no checks"


def is_ancestor(root, commit):
    """False only if git denies it; in a copy without history it cannot be decided."""
    run = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=root,
                         capture_output=True, check=False)
    return run.returncode not in (1,)


def document_problems(root, newest):
    for name in DOCUMENTS:
        path = root / name
        if not path.exists():
            continue
        text = " ".join(path.read_text().split())
        if newest is None and UNTESTED not in text:
            yield f"{name}: there is no report of a GPU, and it does not say '{UNTESTED}'"
        if newest is not None and UNTESTED in text:
            yield f"{name}: says '{UNTESTED}', but there is {newest}"


def problems(root):
    found = []
    newest = None
    paths = sorted((root / "benchmarks" / "results" / "gpu").glob("*.json"))
    for path in paths:
        name = path.relative_to(root).as_posix()
        try:
            report = json.loads(path.read_text())
        except ValueError as error:
            found.append(f"{name}: {error}")
            continue
        wrong = [f"{name}: {problem}"
                 for problem in [*field_problems(report), *check_problems(report)]]
        found += wrong
        if not wrong and (newest is None or report["started"] > newest[1]["started"]):
            newest = (name, report)
    if newest and not is_ancestor(root, newest[1]["commit"]):
        found.append(f"{newest[0]}: commit {newest[1]['commit']} is not in this history")
    if newest or not paths:
        found += document_problems(root, newest[0] if newest else None)
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
