"""Goal: `mayfly bench data` measures how fast images are prepared from storage, from a store, and
from the samples that another job has prepared.
Method: it runs on tiny photographs; its lines must name the sources of the bytes.
"""
import json
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import BINARY, expect


def bench(*words):
    return subprocess.run([BINARY, "bench", "data", "--seconds", "0.3", *words],
                          capture_output=True, text=True, check=False)


def ways():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    os.environ["XDG_RUNTIME_DIR"] = folder
    subprocess.run([BINARY, "data", "make", f"{folder}/set", "--images", "64", "--size", "64"],
                   check=True, stdout=subprocess.DEVNULL)
    words = ["--data", f"{folder}/set", "--image-size", "32", "--store", "8MB",
             "--prepared-store", "8MB"]
    done = bench(*words, "--json")
    expect(done.returncode == 0, done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(line["way"], line["from_store"]) for line in lines]
    expect(found == [("", 0), ("into the store", 0), ("from the store", 1),
                     ("into prepared images", 0), ("from prepared images", 1)], found)
    expect(all(line["images_per_second"] > 0 and line["images_per_cpu_second"] > 0
               for line in lines), lines)
    rates = [line["images_per_cpu_second"] for line in lines]
    expect(rates[4] > rates[3], f"copying is slower than preparing: {rates}")
    done = bench(*words)
    expect("from prepared images: " in done.stdout and "100.0 % of the bytes" in done.stdout,
           done.stdout)
    shutil.rmtree(folder)


def refused():
    done = bench("--data", "procedural:100", "--store", "8MB")
    expect(done.returncode == 2 and "decoded once and need no store" in done.stderr, done.stderr)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"ways": ways, "refused": refused}))
