"""Goal: hosts that get images from each other's stores (--store-peers) train to the same bits, read
nothing from storage that one of them keeps, and lose nothing but time with a host.
Method: workers with stores of their own, as on several hosts; digests, the hashes of samples, and
what members.jsonl says was read; workers are killed and others come.
"""
import os
import random
import shutil
import subprocess
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import Run, expect, expect_refused

IMAGES, BATCH = 320, 16
STEPS = 12 * IMAGES // BATCH


def made_set():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    made = subprocess.run([mayfly_run.BINARY, "data", "make", f"{folder}/set", "--images",
                           str(IMAGES), "--size", "64"], check=True, stdout=subprocess.PIPE)
    expect(b"images" in made.stdout, made.stdout)
    size = sum(os.path.getsize(os.path.join(place, name))
               for place, _, names in os.walk(f"{folder}/set/train") for name in names)
    return folder, size


def job_on(folder, steps=STEPS):
    return ["--data", f"{folder}/set", "--image-size", "32", "--model", "resnet20",
            "--global-batch", str(BATCH), "--microbatch", "4", "--lr", "0.05", "--seed", "7",
            "--no-evaluate", "--no-tensorboard", "--digest-every", "1", "--steps", str(steps),
            "--silence-max-ms", "4000", "--cache-dir", f"{folder}/cache"]


class Hosts:
    """A job whose workers have a store each."""

    def __init__(self, folder, job, workers, words):
        self.cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), job, timeout=600)
        self.cluster.start_coordinator(workers)
        self.cluster.job += ["--threads", "1", *words]
        self.folder, self.count = folder, 0
        for _ in range(workers):
            self.start()

    def start(self):
        os.environ["XDG_RUNTIME_DIR"] = os.path.join(self.folder, f"host-{self.count}")
        os.mkdir(os.environ["XDG_RUNTIME_DIR"])
        self.count += 1
        return self.cluster.start_worker(self.cluster.endpoint())

    def end(self):
        self.cluster.stop_hard()
        shutil.rmtree(self.cluster.folder)
        for number in range(self.count):
            shutil.rmtree(os.path.join(self.folder, f"host-{number}"))


def reference(folder):
    run = Run(job_on(folder) + ["--workers", "1", "--threads", "1"])
    digest = run.finish()["final_digest"]
    samples = [record["sample_hash"] for record in run.metrics()]
    run.remove()
    return digest, samples


def read_per_microbatch(run):
    """Bytes from storage, by member, as its last line says it."""
    return {line["member"]: line["stages"]["bytes"] for line in run.lines("members.jsonl")
            if "stages" in line}


def kept_elsewhere():
    folder, size = made_set()
    wanted = reference(folder)
    last = {}
    for words in (["--store-peers"], []):
        hosts = Hosts(folder, job_on(folder), 2, ["--store", f"{int(0.6 * size)}B", *words])
        run = hosts.cluster.run
        digest = run.finish()["final_digest"]
        expect((digest, [record["sample_hash"] for record in run.metrics()]) == wanted, words)
        last[len(words)] = max(read_per_microbatch(run).values())
        hosts.end()
    whole = 4 * size / IMAGES
    expect(last[1] < 0.5 * last[0], f"of {whole} bytes {last[1]} are still read from storage")
    expect(last[0] > 0.2 * whole, f"without --store-peers {last[0]} of {whole} bytes are read")
    shutil.rmtree(folder)


def killed():
    folder, size = made_set()
    wanted = reference(folder)
    choice = random.Random(int(os.environ.get("MAYFLY_TEST_SEED", "1")))
    hosts = Hosts(folder, job_on(folder), 3, ["--store", f"{int(0.4 * size)}B", "--store-peers"])
    run = hosts.cluster.run
    for _ in range(6):
        begun = run.last_step()
        run.wait_for_step(min(begun + choice.randrange(5, 50), STEPS - 1))
        if run.last_step() > STEPS - 60:
            break
        alive = [worker for worker in hosts.cluster.workers if worker.alive()]
        choice.choice(alive).kill()
        hosts.start()
    summary = run.finish()
    samples = [record["sample_hash"] for record in run.metrics()]
    expect((summary["final_digest"], samples) == wanted, f"other bits or samples: {summary}")
    expect(summary["membership_changes"] >= 2, "nobody was lost")
    hosts.end()
    shutil.rmtree(folder)


def refused():
    folder, _ = made_set()
    expect_refused(job_on(folder), [
        (["--store-peers"], "store_peers needs store"),
        (["--store-peers", "--store", "1MB", "--sync", "bsp"], "works with all-reduce")])
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"kept_elsewhere": kept_elsewhere, "killed": killed,
                                      "refused": refused}))
