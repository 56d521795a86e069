"""A job whose workers come from a provider: `mayfly coordinator` with [cloud] settings."""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

import mayfly_run
from mayfly_run import LISTS_ARE_EXACT, SMALL_JOB, Run, expect

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 200
JOB = SMALL_JOB + ["--steps", "1000000", "--threads", "1"]
SLOW = ["--inject", "slow=4x"]  # workers sleep most of the time; the bits are those of JOB


def free_ports(count):
    """Ports on which no process listens. They are below the range from which the kernel chooses, so
    it does not give them to other sockets."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first_chosen = int(file.read().split()[0])
    ports = []
    while len(ports) < count:
        port = random.randrange(1024, first_chosen)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports += [port] if port not in ports else []
    return ports


class CloudJob:
    def __init__(self, words, folder=None, job=tuple(JOB + SLOW)):
        self.job = list(job)
        self.folder = folder or tempfile.mkdtemp(prefix="mayfly-test-")
        os.makedirs(self.folder, exist_ok=True)
        self.words = words
        self.start()

    def start(self):
        with open(os.path.join(self.folder, "output.txt"), "ab") as output:
            process = subprocess.Popen(
                [mayfly_run.BINARY, "coordinator", "--bind-host", "127.0.0.1", "--run-dir",
                 os.path.join(self.folder, "run")]
                + self.job + self.words,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **LISTS_ARE_EXACT})
        self.run = Run.attach(self.folder, process, TIMEOUT)

    def wait_for(self, what, condition):
        """Waits until the condition holds; otherwise fails and shows the job's events."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            began = time.monotonic()
            has_ended = self.run.process.poll() is not None
            if condition():
                return
            expect(not has_ended, f"the job ended before {what}\n{self.shown()}")
            mayfly_run.look_again(began, 0.05)
        raise mayfly_run.Failure(f"{what} never came\n{self.shown()}")

    def shown(self):
        return self.run.output() + "".join(json.dumps(event) + "\n" for event in self.events())

    def events(self, kind=None):
        path = self.run.path("events.jsonl")
        if not os.path.exists(path):
            return []
        events = []
        with open(path) as lines:
            for line in lines:
                if line.endswith("\n"):
                    events.append(json.loads(line))
        return [event for event in events if kind in (None, event["kind"])]

    def status(self):
        """The output of `mayfly status`, or nothing if the coordinator does not answer."""
        done = subprocess.run(
            [mayfly_run.BINARY, "status", "--run-dir", self.run.run_dir, "--json"],
            capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def members(self):
        return self.status().get("members", [])

    def active(self):
        return [m for m in self.members() if m["phase"] == "active"]

    def wait_for_active(self, count):
        self.wait_for(f"{count} active workers",
                      lambda: len(self.active()) == count and len(self.members()) == count)

    def stop(self):
        self.run.command("stop")
        self.run.wait()


def process_cloud(folder):
    cloud = os.path.join(folder, "cloud")
    os.makedirs(cloud, exist_ok=True)
    return cloud, f"{sys.executable} {HERE}/process_cloud.py {cloud}"


def requests_in(cloud):
    with open(os.path.join(cloud, "log.jsonl")) as lines:
        return [r for r in map(json.loads, lines) if r["op"] == "request"]


def alive_in(cloud):
    sys.path.insert(0, HERE)
    import process_cloud as program
    return [s for s in program.servers(cloud) if s["state"] == "running"]
