"""Goal: `mayfly data make` writes a data set completely or not at all, and a network can learn it.
Method: the command is killed while it writes, and repeated; a job trains on the set, and its loss
falls.
"""
import os
import shutil
import subprocess
import tempfile
import time

import mayfly_run
from mayfly_run import Run, expect

MAKE = [os.environ["MAYFLY_TEST_BINARY"], "data", "make"]


def killed():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    data = f"{folder}/set"
    making = subprocess.Popen([*MAKE, data, "--images", "1000000"])
    while not os.path.isdir(f"{data}.making/test/stripes"):
        expect(making.poll() is None, "it ended by itself")
        time.sleep(0.01)
    other = subprocess.run([*MAKE, data, "--images", "3"], capture_output=True, text=True,
                           check=False)
    expect(other.returncode == 1 and f"{making.pid} holds " in other.stderr, other.stderr)
    making.kill()
    making.wait()
    expect(not os.path.exists(data), "half a set is there")
    subprocess.run([*MAKE, data, "--images", "3"], check=True, stdout=subprocess.DEVNULL)
    files = sum(len(files) for _, _, files in os.walk(data))
    expect(files == 13 and os.listdir(folder) == ["set"], f"{files} files, {os.listdir(folder)}")
    shutil.rmtree(folder)


def learned():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    subprocess.run([*MAKE, f"{folder}/set", "--images", "1500", "--size", "64"], check=True,
                   stdout=subprocess.DEVNULL)
    run = Run(["--data", f"{folder}/set", "--image-size", "32", "--model", "resnet20",
               "--global-batch", "64", "--microbatch", "16", "--workers", "2", "--threads", "1",
               "--lr", "0.02", "--epochs", "12", "--no-evaluate", "--no-tensorboard",
               "--checkpoint-minutes", "0"])
    run.finish()
    losses = [record["loss"] for record in run.metrics()][-30:]
    loss = sum(losses) / len(losses)
    expect(loss < 2.2, f"the loss is {loss}; guessing one of ten classes has 2.30")
    run.remove()
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"killed": killed, "learned": learned}))
