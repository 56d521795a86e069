"""Goal: a worker whose host has no copy of the data set fetches it once from the source that
--data-from names, and trains to the same bits. If it cannot be fetched, or the worker is asked to
leave meanwhile, one line gives the reason and no files are left behind.
Method: workers with cache folders of their own, and a --data that only the coordinator has.
"""
import fcntl
import http.server
import os
import shutil
import signal
import tempfile
import threading

from cluster import Cluster
from image_folder_test import JOB, image_folder
from mayfly_run import Run, expect, main

NOWHERE = "/nowhere/images"


class Job:
    """A coordinator that has the data set, and workers without it."""

    def __init__(self, data_from, coordinator_has=True, as_tar=False):
        self.folder = self.data = image_folder()
        if as_tar:
            self.data = shutil.make_archive(os.path.join(self.folder, "set"), "tar", self.folder)
        self.cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + ["--threads", "1"])
        here = self.data if coordinator_has else NOWHERE
        self.cluster.start_coordinator(2, extra=["--data", here, "--data-from", data_from])

    def cache(self, name):
        return os.path.join(self.cluster.folder, "cache-" + name)

    def worker(self, cache, *more):
        return self.cluster.start_worker(
            self.cluster.endpoint(),
            extra=["--data", NOWHERE, "--cache-dir", self.cache(cache), *more])

    def wait_for_line(self, worker, text):
        self.cluster.wait_for(lambda: text in worker.output(), f"no line {text!r}")

    def finish(self):
        summary = self.cluster.run.finish()
        expect(summary["outcome"] == "done", str(summary))
        expect(summary["final_digest"] == undisturbed(self.data), "the bits of a local run")

    def kept(self, cache):
        """The data sets in a worker's cache, and whatever else is left there of fetching them."""
        folder = self.cache(cache)
        inside = os.listdir(folder) if os.path.exists(folder) else []
        return sorted(name for name in inside if name.startswith("data-"))

    def remove(self):
        self.cluster.run.remove()
        shutil.rmtree(self.cluster.folder, ignore_errors=True)
        shutil.rmtree(self.folder)


def undisturbed(data):
    run = Run(JOB + ["--data", data, "--workers", "1"])
    digest = run.finish()["final_digest"]
    run.remove()
    return digest


def expect_refused(worker, *texts):
    worker.process.wait(60)
    expect(worker.process.returncode == 2, f"exit code {worker.process.returncode}")
    for text in texts:
        expect(text in worker.output(), f"{text!r} in {worker.output()}")


def from_coordinator():
    job = Job("coordinator")
    first, second = job.worker("a"), job.worker("b")
    job.finish()
    for worker, cache in ((first, "a"), (second, "b")):
        expect("fetching the data set from the coordinator: 19 files" in worker.output(),
               worker.output())
        expect(len(job.kept(cache)) == 1, str(job.kept(cache)))
    job.remove()


def once_for_a_host():
    job = Job("coordinator")
    workers = [job.worker("shared"), job.worker("shared")]
    job.finish()
    fetched = sum("fetching the data set" in worker.output() for worker in workers)
    expect(fetched == 1, f"{fetched} workers have fetched it")
    expect(len(job.kept("shared")) == 1, str(job.kept("shared")))
    job.remove()


def tar_of_coordinator():
    job = Job("coordinator", as_tar=True)
    workers = [job.worker("a"), job.worker("a")]
    job.finish()
    expect(any("/set.tar" in worker.output() for worker in workers), workers[0].output())
    job.remove()


def from_a_folder():
    source = image_folder()
    job = Job(source)
    job.worker("a"), job.worker("b")
    job.finish()
    shutil.rmtree(source)
    job.remove()


def by_a_command():
    source = image_folder()
    says_much = "yes copied | head -c 3000000"
    job = Job(f"{says_much}; cp -r {source}/. {{}}")
    job.worker("a"), job.worker("a")
    job.finish()
    shutil.rmtree(source)
    job.remove()


def from_a_url():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    shutil.move(image_folder(), os.path.join(folder, "images"))
    archive = shutil.make_archive(os.path.join(folder, "set"), "gztar", folder, "images")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    job = Job(f"http://127.0.0.1:{server.server_port}/{os.path.basename(archive)}")
    job.worker("a"), job.worker("b")
    job.finish()
    job.remove()
    missing = Job(f"http://127.0.0.1:{server.server_port}/nothing.tar")
    expect_refused(missing.worker("a"), "cannot be fetched", "404")
    expect(not missing.kept("a"), str(missing.kept("a")))
    missing.cluster.run.stop_hard()
    missing.remove()
    server.shutdown()
    shutil.rmtree(folder)


def refused():
    job = Job("coordinator", coordinator_has=False)
    expect_refused(job.worker("a"), NOWHERE + " does not exist on this host and cannot be fetched",
                   "it has no data set to send")
    job.cluster.run.stop_hard()
    job.remove()
    job = Job("echo no such bucket >&2; false {}")
    expect_refused(job.worker("a"), "cannot be fetched", "no such bucket")
    expect(not job.kept("a"), str(job.kept("a")))
    job.cluster.run.stop_hard()
    job.remove()


def a_wrong_source_is_repaired():
    source = image_folder()
    shutil.move(os.path.join(source, "train"), os.path.join(source, "elsewhere"))
    job = Job(f"cp -r {source}/. {{}}")
    expect_refused(job.worker("a"), "the fetched files are not a data set", "train/CLASS")
    expect(not job.kept("a"), str(job.kept("a")))
    shutil.move(os.path.join(source, "elsewhere"), os.path.join(source, "train"))
    job.worker("a"), job.worker("a")
    job.finish()
    shutil.rmtree(source)
    job.remove()


def command_of_a_killed_worker_writes_on():
    source, flag = image_folder(), tempfile.mkdtemp(prefix="mayfly-test-")
    job = Job(f"if mkdir {flag}/first; then "
              f"while [ -e {flag} ]; do echo x >> {{}}/junk; sleep 0.02; done; "
              f"else sleep 0.5; cp -r {source}/. {{}}; fi")
    killed = job.worker("a")
    job.wait_for_line(killed, "fetching the data set")
    job.cluster.wait_for(lambda: os.path.exists(f"{flag}/first"), "the command does not run")
    killed.kill()
    job.worker("a"), job.worker("a")
    job.finish()
    kept, = job.kept("a")
    expect(os.listdir(os.path.join(job.cache("a"), kept)).count("junk") == 0, "junk was added")
    shutil.rmtree(flag)
    shutil.rmtree(source)
    job.remove()


def expect_leaves(worker):
    worker.signal(signal.SIGTERM)
    worker.process.wait(20)
    expect(worker.process.returncode == 0, f"exit code {worker.process.returncode}")
    expect("the worker was asked to leave" in worker.output(), worker.output())


def leaves_while_a_command_runs():
    job = Job("sleep 600; true {}")
    first = job.worker("a")
    job.wait_for_line(first, "fetching the data set")
    second = job.worker("a")
    job.wait_for_line(second, "waiting for another worker of this host")
    expect_leaves(second)
    expect_leaves(first)
    expect(not job.kept("a"), str(job.kept("a")))
    job.cluster.run.stop_hard()
    job.remove()


def leaves_while_another_one_opens_the_images():
    job = Job("coordinator")
    job.wait_for_line(job.worker("a"), "joined ")
    lock, = (name for name in os.listdir(job.cache("a"))
             if name.startswith("images-") and name.endswith(".lock"))
    with open(os.path.join(job.cache("a"), lock), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = job.worker("a")
        job.wait_for_line(second, "waiting for another process that opens these images")
        expect_leaves(second)
    job.worker("a")
    job.finish()
    job.remove()


def coordinator_is_lost():
    job = Job("coordinator")
    with open(os.path.join(job.folder, "train", "large"), "wb") as large:
        large.truncate(2 << 30)  # so that the transfer is not over yet
    stays, leaves = job.worker("a", "--coordinator-timeout", "8"), job.worker("b")
    for worker in (stays, leaves):
        job.wait_for_line(worker, "fetching the data set")
    job.cluster.run.stop_hard()
    job.wait_for_line(leaves, "transfer of the data set continues after an interruption")
    expect_leaves(leaves)
    stays.process.wait(100)
    expect(stays.process.returncode == 1, f"exit code {stays.process.returncode}")
    expect("no coordinator has answered for 8 s" in stays.output(), stays.output())
    for cache in "ab":
        expect(not job.kept(cache), str(job.kept(cache)))
    job.remove()


if __name__ == "__main__":
    raise SystemExit(main({case.__name__: case for case in (
        from_coordinator, tar_of_coordinator, once_for_a_host, from_a_folder, by_a_command,
        from_a_url, refused, a_wrong_source_is_repaired,
        command_of_a_killed_worker_writes_on, leaves_while_a_command_runs,
        leaves_while_another_one_opens_the_images,
        coordinator_is_lost)}))
