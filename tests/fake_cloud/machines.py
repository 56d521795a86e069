"""Machines of the fake cloud: their states and times, and the processes that they run."""
import os
import shutil
import signal
import subprocess
import threading
import time


class Machine:
    def __init__(self, name, service, zone, machine_type, market, labels, startup):
        self.name, self.service, self.zone = name, service, zone
        self.machine_type, self.market, self.labels = machine_type, market, dict(labels)
        self.startup = startup
        self.created = time.time()
        self.ended = None
        self.doomed = False  # its creation will fail later
        self.state = "starting"  # starting, running, stopping, stopped, gone
        self.reason = ""
        self.process = None
        self.metadata = None  # its metadata server, if startup scripts are run
        self.disk = None      # its folder, if startup scripts are run
        self.notice = Notices()


class Notices:
    """The notices that a machine's metadata server announces."""

    def __init__(self):
        self.changed = threading.Condition()
        self.etag = 0
        self.preempted = False
        self.action_time = None      # Unix seconds
        self.rebalance_time = None
        self.azure_events = []
        self.azure_incarnation = 1

    def set(self, kind, after_s=0.0, deadline_s=30.0, resources=None):
        def act():
            with self.changed:
                now = time.time()
                if kind == "preempt":
                    self.preempted, self.action_time = resources is None, now + deadline_s
                    self.azure_events = [{
                        "EventId": f"E{self.etag}", "EventType": "Preempt",
                        "ResourceType": "VirtualMachine", "Resources": resources or ["self"],
                        "EventStatus": "Scheduled", "EventSource": "Platform",
                        "NotBefore": time.strftime("%a, %d %b %Y %H:%M:%S GMT",
                                                   time.gmtime(now + deadline_s)),
                        "Description": "", "DurationInSeconds": -1}]
                elif kind == "rebalance":
                    self.rebalance_time = now
                elif kind == "withdraw":
                    self.preempted, self.action_time, self.azure_events = False, None, []
                    self.rebalance_time = None
                self.etag += 1
                self.azure_incarnation += 1
                self.changed.notify_all()
                return now
        if after_s > 0:
            timer = threading.Timer(after_s, act)
            timer.daemon = True
            timer.start()
            return None
        return act()


class Machines:
    """All machines of one fake cloud. Callers hold the cloud's lock."""

    def __init__(self, run_startup, log_folder, metadata_for):
        self.by_name = {}
        self.run_startup = run_startup
        self.log_folder = log_folder
        self.metadata_for = metadata_for  # starts a metadata server for a machine
        self.boot_s = None  # time until a machine has booted; None: when its state is requested
        self.lock = None    # the cloud's lock

    def add(self, machine):
        self.by_name[machine.name] = machine
        if self.boot_s is not None:
            timer = threading.Timer(self.boot_s, self._boot, [machine])
            timer.daemon = True
            timer.start()
        return machine

    def _boot(self, machine):
        with self.lock:
            if not machine.doomed:
                self.start(machine)

    def start(self, machine):
        """The machine has booted. Starts its startup script, if this cloud runs scripts."""
        if machine.state != "starting":
            return
        machine.state = "running"
        if not self.run_startup or not machine.startup:
            return
        machine.metadata = self.metadata_for(machine)
        machine.disk = os.path.join(self.log_folder, machine.name + ".disk")
        os.makedirs(machine.disk, exist_ok=True)
        address = f"127.0.0.1:{machine.metadata.port}"
        environment = dict(os.environ, AWS_EC2_METADATA_SERVICE_ENDPOINT=f"http://{address}",
                           FAKE_CLOUD_MACHINE=machine.name, WORKER_HOST="127.0.0.1",
                           PATH=f"{self._programs()}:{os.environ['PATH']}",
                           TMPDIR=machine.disk)
        # On a machine of another cloud, no server answers at Google's metadata address.
        environment["GCE_METADATA_HOST"] = address if machine.service == "gce" else "127.0.0.1:1"
        script = os.path.join(self.log_folder, machine.name + ".startup")
        with open(script, "w") as f:
            f.write(machine.startup)
        os.chmod(script, 0o700)
        with open(os.path.join(self.log_folder, machine.name + ".log"), "wb") as log:
            machine.process = subprocess.Popen([script], stdin=subprocess.DEVNULL, stdout=log,
                                               stderr=subprocess.STDOUT, env=environment,
                                               start_new_session=True)

    def _programs(self):
        """A folder that comes first in PATH. Its `shutdown` only prints a line, because a machine's
        script must not shut the real machine down."""
        folder = os.path.join(self.log_folder, "programs")
        path = os.path.join(folder, "shutdown")
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            with open(path, "w") as f:
                f.write("#!/bin/sh\necho \"$FAKE_CLOUD_MACHINE: shutdown $*\"\n")
            os.chmod(path, 0o755)
        return folder

    def collect(self):
        """Marks machines whose script has ended as shut down. Compute Engine keeps such machines,
        and bills their disks."""
        for machine in self.by_name.values():
            if machine.state == "running" and machine.process is not None \
                    and machine.process.poll() is not None:
                self.end(machine, "Client.InstanceInitiatedShutdown",
                         state="stopped" if machine.service == "gce" else "gone")

    def end(self, machine, reason, kill=signal.SIGKILL, state="gone"):
        """Ends a machine: with SIGKILL as by a power cut, or with the signal `kill`."""
        if machine.state == "gone":
            return
        machine.state, machine.reason = state, reason
        machine.ended = machine.ended or time.time()
        if machine.process is not None:
            try:
                os.killpg(machine.process.pid, kill)
            except ProcessLookupError:
                pass
            machine.process.wait()
            machine.process = None
            machine.metadata.stop()
            shutil.rmtree(machine.disk, ignore_errors=True)  # a long run has hundreds of them

    def end_all(self):
        for machine in list(self.by_name.values()):
            self.end(machine, "the cloud ends")
