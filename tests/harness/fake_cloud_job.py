"""A job whose servers come from the fake cloud (tests/fake_cloud). `mayfly coordinator` sends
requests to the interface of Compute Engine or EC2, the machines start from the bundle that the
coordinator serves, and every worker is a real process. Used by tests and by scripts/demo-spot.
"""
import collections
import fcntl
import glob
import json
import os
import shutil
import subprocess
import tempfile
import time

import mayfly_run
from fake_cloud_process import FakeCloud
from mayfly_run import Failure, Run, expect

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
MACHINE_TYPE = {"gce": "n1-standard-8", "ec2": "p3.2xlarge"}
MAKES = {"gce": "insert", "ec2": "RunInstances"}  # the operations that make machines


def bundle_of(binary):
    """The path of the worker bundle of a binary and the modules beside it. Makes the bundle if it
    is missing or older than one of these files. A lock lets one process make it while others wait.
    """
    binary = os.path.abspath(binary)
    folder = os.path.dirname(binary)
    path = os.path.join(folder, "mayfly-worker.tar.gz")
    contents = [binary, *glob.glob(os.path.join(glob.escape(folder), "libmayfly_*.so"))]
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path) or \
                os.path.getmtime(path) < max(map(os.path.getmtime, contents)):
            subprocess.run([binary, "bundle", path], check=True, capture_output=True)
    return path


def unpack_bundle(binary, folder):
    """Unpacks the bundle of a binary into the folder. It is decompressed only once, into a
    directory beside the bundle, from which later calls copy."""
    bundle = bundle_of(binary)
    unpacked = bundle + ".unpacked"
    with open(bundle + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(unpacked) or \
                os.path.getmtime(unpacked) < os.path.getmtime(bundle):
            shutil.rmtree(unpacked, ignore_errors=True)
            shutil.rmtree(unpacked + ".new", ignore_errors=True)
            os.mkdir(unpacked + ".new")
            subprocess.run(["tar", "-xzf", bundle, "-C", unpacked + ".new"], check=True)
            os.rename(unpacked + ".new", unpacked)
    subprocess.run(["cp", "-a", "--reflink=auto", os.path.join(unpacked, "."), folder], check=True)


def offers(provider):
    """Spot offers in three zones, and an expensive offer on demand that is always available."""
    machine = MACHINE_TYPE[provider]
    return (f"{machine}@zone-a:spot=0.90,{machine}@zone-b:spot=0.95,"
            f"{machine}@zone-c:spot=1.00,small@zone-c:on_demand=3.00")


class FakeCloudJob:
    """`job`: settings that the coordinator and the workers share. `workers`: None if a job file in
    `extra` has their number and the offers. `program`: (folder, command) of `mayfly run`.
    `environment`: additional variables for the coordinator."""

    def __init__(self, provider, job, workers, extra=(), timeout=300, folder=None, boot_s=0.2,
                 program=None, environment=()):
        self.provider, self.job, self.timeout = provider, list(job), timeout
        self.folder = folder or tempfile.mkdtemp(prefix="mayfly-cloud-job-")
        self.started = time.monotonic()
        self.cloud = FakeCloud("--run-startup", "--folder", os.path.join(self.folder, "cloud"))
        self.cloud.control("set", boot_s=boot_s)
        at = self.cloud.addresses
        place = (f"region={at['region']} image=ami-1 endpoint={at['ec2']}" if provider == "ec2"
                 else f"project={at['project']} zone=zone-a endpoint={at['gce']}")
        self.environment = dict(
            os.environ, SSL_CERT_FILE=at["ca_file"], AWS_ACCESS_KEY_ID=at["access_key"],
            AWS_SECRET_ACCESS_KEY=at["secret_key"], GOOGLE_APPLICATION_CREDENTIALS=at["key_file"],
            **dict(environment))
        self.words = ["--cloud-provider", provider, "--cloud-options", place]
        if program is None:
            self.words += ["--cloud-bundle", bundle_of(mayfly_run.BINARY), "--cloud-worker-args",
                           " ".join(self.job)]
        self.words += self.job + list(extra)
        if workers is not None:
            self.words += ["--workers", str(workers)]
            if "--cloud-offers" not in self.words:
                self.words += ["--cloud-offers", offers(provider)]
        self.command = "coordinator"
        if program is not None:
            self.command = "run"
            self.words += ["--program-dir", program[0], "--", *program[1]]
        self.run = None

    def start(self):
        """Starts or restarts the coordinator."""
        with open(os.path.join(self.folder, "output.txt"), "ab") as output:
            process = subprocess.Popen(
                [mayfly_run.BINARY, self.command, "--bind-host", "127.0.0.1", "--run-dir",
                 os.path.join(self.folder, "run")]
                + self.words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=self.environment)
        self.run = Run.attach(self.folder, process, self.timeout)
        self.run.started = self.started
        return self

    def kill_coordinator(self):
        self.run.process.kill()
        self.run.process.wait()

    def wait_for(self, what, condition):
        while True:
            began = time.monotonic()
            has_ended = self.run.process.poll() is not None
            if condition():
                return
            if has_ended:
                raise Failure(f"the job ended before {what}\n{self.shown()}")
            if time.monotonic() - self.started > self.timeout:
                raise Failure(f"{what} never came\n{self.shown()}")
            mayfly_run.look_again(began, 0.02)

    def end(self):
        """Stops the job with a checkpoint, waits for its end, and returns the summary."""
        self.run.command("stop")
        code = self.run.wait()
        expect(code == 3, f"the job ended with {code}\n{self.shown()}")
        return self.run.summary()

    def stop(self):
        if self.run is not None:
            self.run.stop_hard()
        self.cloud.stop()

    # --- records

    def events(self, *kinds):
        return [e for e in self.run.lines("events.jsonl") if not kinds or e["kind"] in kinds]

    def machines(self, *states):
        return self.cloud.control("machines", states=states or None, whole=False)

    def requests_sent(self):
        return self.cloud.control("requests", service=self.provider,
                                  operation=MAKES[self.provider])

    def machines_by_request(self):
        """The number of machines that each request has ever created."""
        made = collections.Counter(m["labels"]["mayfly-request"] for m in self.machines()
                                   if m["reason"] not in ("stock_out", "quota"))
        return made

    def shown(self):
        text = self.run.logs() + "\n--- events\n"
        text += "".join(json.dumps(event) + "\n" for event in self.events()[-40:])
        folder = os.path.join(self.folder, "cloud")
        for name in sorted(os.listdir(folder)):
            if name.endswith(".log"):
                with open(os.path.join(folder, name), errors="replace") as f:
                    text += f"--- {name}\n" + "\n".join(f.read().splitlines()[-12:]) + "\n"
        return text


def expect_undisturbed_bits(run, job, timeout=300):
    """Expects that every recorded step of `run` has the digest of an undisturbed run with one
    worker. Returns the last step and its digest."""
    found = mayfly_run.digests(run)
    last = max(found)
    oracle = Run(list(job) + ["--workers", "1"], timeout=timeout)
    oracle.wait_for_step(last)
    oracle.command("stop")
    oracle.wait()
    wanted = mayfly_run.digests(oracle)
    wrong = [step for step in found if found[step] != wanted.get(step)]
    expect(not wrong, f"other bits than an undisturbed run at {len(wrong)} of {len(found)} steps, "
                      f"first {wrong[:1]}")
    expect(sorted(found) == list(range(1, last + 1)), "steps 1, 2, 3, ... without a gap")
    oracle.remove()
    return last, wanted[last]
