"""Goal: with images kept in memory (--store) a job has the same bits with any joins and leaves,
reads each image for which the store has room once from storage, and leaves no files behind.
Method: folders of tiny JPEGs; the digest without a store; the bytes read according to
members.jsonl.
"""
import glob
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from image_folder_test import JOB, image_folder
from mayfly_run import Run, expect, expect_refused

STEPS = ["--steps", "96"]  # 90 epochs
RUNTIME = tempfile.mkdtemp(prefix="mayfly-test-")


def stored(folder):
    return sum(os.path.getsize(path) for path in glob.glob(folder + "/train/*/*.jpg"))


def bytes_of_a_microbatch(run):
    """The bytes that members read from storage per microbatch, from the last line of each."""
    last = {line["member"]: line["stages"]["bytes"] for line in run.lines("members.jsonl")
            if "stages" in line}
    expect(len(last) > 0, "no member says what it has read")
    return max(last.values())


def same_bits():
    folder = image_folder()
    subprocess.run(["tar", "-cf", f"{folder}/set.tar", "-C", folder, "train", "test"], check=True)
    digests = {}
    churn = ["--chaos", "kill@step=15:worker=1,join@step=25,kill@step=40:worker=0"]
    for name, data, words in (
            ("none", folder, ["--workers", "2"]),
            ("all", folder, ["--workers", "2", "--store", "1MB"]),
            ("some", folder, ["--workers", "3", "--store", "4kB", *churn]),
            ("tar", f"{folder}/set.tar", ["--workers", "2", "--store", "1MiB"]),
            ("tiny", folder, ["--workers", "1", "--store", "100B"])):
        run = Run(JOB + STEPS + ["--threads", "1", "--data", data, *words])
        digests[name] = run.finish()["final_digest"]
        read, whole = bytes_of_a_microbatch(run), 4 * stored(folder) / 17
        expect(abs(read - whole) < 0.1 * whole if name in ("none", "tiny") else read < whole,
               f"{name}: {read} of {whole} bytes of a microbatch")
        kept = "keep up to" in run.logs()
        expect(kept == (name != "none"), f"{name}: {run.logs()}")
        expect(glob.glob(RUNTIME + "/*/*") == [], f"{name}: {glob.glob(RUNTIME + '/*/*')}")
        run.remove()
    expect(len(set(digests.values())) == 1, f"the digests differ: {digests}")
    shutil.rmtree(folder)


def refused():
    folder = image_folder()
    job = JOB + STEPS + ["--data", folder]
    expect_refused(job, [(["--store", "8GiBs"], "such as 8GiB"), (["--store", "0"], "such as 8GiB"),
                         (["--store", "1TiB"], "such as 8GiB")])
    run = Run(job + ["--store", "511GiB"])
    expect(run.wait() == 2, run.output())
    expect("store of 511.0 GiB is more than" in run.output(), run.output())
    run.remove()
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ["XDG_RUNTIME_DIR"] = RUNTIME
    code = mayfly_run.main({"same_bits": same_bits, "refused": refused})
    shutil.rmtree(RUNTIME)
    raise SystemExit(code)
