"""Goal: `mayfly profile --difference` finds how much of a step slow reading and preparing of images
takes, and refuses in one line jobs that it cannot measure.
Method: a job of two workers with --inject, in the cells A to E of the command.
"""
import json
import os
import subprocess
import tempfile

import mayfly_run
from mayfly_run import expect

JOB = """model = "resnet20"
data = "procedural:512"
workers = 2
threads = 1
global_batch = 8
microbatch = 4
inject = "fetch=80ms;prep=50ms"
silence_max_ms = 2000
"""


def profile(folder, *words, job=JOB):
    path = os.path.join(folder, "job.toml")
    with open(path, "w") as f:
        f.write(job)
    return subprocess.run([mayfly_run.BINARY, "profile", "--difference", path, "--output",
                           os.path.join(folder, "runs"), *words],
                          capture_output=True, text=True, timeout=280)


def finds_kinds():
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        done = profile(folder, "--rounds", "2", "--steps", "20", "--json")
        expect(done.returncode == 0, done.stderr)
        found = json.loads(done.stdout)
        kinds = found["kinds"]
        means = {cell: sum(times) / len(times) for cell, times in found["cells_ms"].items()}
        expect(set(means) == set("ABCDE") and found["rounds"] == 2, done.stdout)
        total = sum(part["ms"] for part in kinds.values())
        expect(abs(total - means["E"]) < 0.01, done.stdout)
        for part in kinds.values():
            expect(part["low_ms"] <= part["ms"] <= part["high_ms"], done.stdout)
            expect(part["measurable"] == (part["low_ms"] > 0), done.stdout)
        # Neither part is hidden, because each alone takes longer than computing. Another busy
        # process may lengthen either of them, so only their sum is checked.
        expect(kinds["fetch"]["ms"] + kinds["prep"]["ms"] > 60, done.stdout)
        expect(means["D"] > means["C"] and means["E"] > means["C"], done.stdout)
        expect(found["stash"]["interconnect_ms"] >= 0, done.stdout)
        speeds = found["ds_analyzer_images_per_second"]
        expect(speeds["speed"] == min(value for name, value in speeds.items() if name != "speed"),
               done.stdout)
        again = profile(folder)
        expect(again.returncode == 2 and "choose another --output" in again.stderr, again.stderr)


def refuses():
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        for job, words, text in (
                (JOB.replace("workers = 2", "workers = 1"), (), "at least two workers"),
                (JOB, ("--rounds", "x"), "expects a whole number from 1 to"),
                (JOB.replace("80ms", "80"), (), "fetch is a time"),
                (JOB, ("runs/a",), "reads no run directory")):
            done = profile(folder, *words, job=job)
            expect(done.returncode == 2 and text in done.stderr, f"{done.returncode} {done.stderr}")
            expect(done.stderr.count("\n") == 1 and not os.path.exists(folder + "/runs"),
                   done.stderr)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"finds_kinds": finds_kinds, "refuses": refuses}))
