"""Jobs on several simulated hosts, each with a store of images (--store --store-peers). Counts the
images that such a job reads from storage.
"""
import glob
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import Run, expect

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
    """A job on hosts with a store and `workers_each` workers each. With a network.Network the
    coordinator runs on host 0 and each worker on the next host."""

    def __init__(self, folder, job, hosts, words, network=None, workers_each=1):
        workers = hosts * workers_each
        self.cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), job, network, timeout=600)
        self.cluster.start_coordinator(workers, host=None if network is None else 0)
        self.cluster.job += ["--threads", "1", *words]
        self.folder, self.workers_each, self.count = folder, workers_each, 0
        for _ in range(workers):
            self.start()

    def start(self):
        os.environ["XDG_RUNTIME_DIR"] = self.own_folder(self.count)
        os.makedirs(os.environ["XDG_RUNTIME_DIR"], exist_ok=True)
        self.count += 1
        host = None if self.cluster.network is None else self.count
        return self.cluster.start_worker(self.cluster.endpoint(), host)

    def own_folder(self, worker):
        return os.path.join(self.folder, f"host-{worker // self.workers_each}")

    def end(self):
        self.cluster.stop_hard()
        shutil.rmtree(self.cluster.folder)
        for folder in {self.own_folder(worker) for worker in range(self.count)}:
            shutil.rmtree(folder)


def reference(folder):
    run = Run(job_on(folder) + ["--workers", "1", "--threads", "1"])
    digest = run.finish()["final_digest"]
    samples = [record["sample_hash"] for record in run.metrics()]
    run.remove()
    return digest, samples


class Accesses:
    """Counts the images that are read from storage from now on, by their times of last access."""

    def __init__(self, folder):
        self.paths = glob.glob(f"{folder}/set/train/*/*")
        self.forget()
        with open(self.paths[0], "rb") as f:
            f.read(1)
        if not self.read():
            print("skipped: this file system does not note when a file is read")
            raise SystemExit(mayfly_run.SKIP)
        self.forget()

    def forget(self):
        for path in self.paths:
            os.utime(path, ns=(0, os.stat(path).st_mtime_ns))

    def read(self):
        return sum(os.stat(path).st_atime_ns != 0 for path in self.paths)


# The number of images that may be read again: a worker reads an image from storage if another host
# does not send it in time, which happens on a busy machine.
LATE = IMAGES // 50


def wait_for_second_copies(cluster):
    def copied():
        return sum("have been copied from other hosts" in worker.output()
                   for worker in cluster.workers)
    cluster.wait_for(lambda: copied() == 3, "no second copies")  # one worker of each host copies


def spares_storage(share, change, before=lambda cluster: None, network=None, workers_each=1):
    """Runs a job on three hosts, each with room for this share of the images. After some epochs it
    calls before(cluster) and change(hosts), and expects that no image is read from storage again.
    """
    folder, size = made_set()
    wanted = reference(folder)
    slowly = ["--inject", f"slow=8x,from=step60,to=step{STEPS}"]
    hosts = Hosts(folder, job_on(folder) + slowly, 3,
                  ["--store", f"{int(share * size)}B", "--store-peers"], network, workers_each)
    run = hosts.cluster.run
    run.wait_for_step(60)  # by now all images have been read
    before(hosts.cluster)
    accesses = Accesses(folder)
    change(hosts)
    expect(run.last_step() < STEPS - 2 * IMAGES // BATCH, f"only at step {run.last_step()}")
    summary = run.finish()
    samples = [record["sample_hash"] for record in run.metrics()]
    expect((summary["final_digest"], samples) == wanted, f"other bits or samples: {summary}")
    expect(summary["membership_changes"] > 0, "nothing has changed")
    read = accesses.read()
    expect(read <= LATE, f"{read} of {IMAGES} images were read from storage again")
    hosts.end()
    shutil.rmtree(folder)
