"""Machines of the fake cloud: what exists, since when, and the processes that they run."""
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
        self.doomed = False  # its creation will turn out to have failed
        self.state = "starting"  # starting, running, stopping, stopped, gone
        self.reason = ""
        self.process = None
        self.metadata = None  # a server of its own, if startup scripts are run
        self.disk = None      # a folder, the same
        self.notice = Notices()


class Notices:
    """What one machine's metadata server says about its end."""

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
    """All machines of one fake cloud. Call with the cloud's lock held."""

    def __init__(self, run_startup, log_folder, metadata_for):
        self.by_name = {}
        self.run_startup = run_startup
        self.log_folder = log_folder
        self.metadata_for = metadata_for  # starts a metadata server for a machine
        self.boot_s = None  # machines boot by themselves after so long; None: when asked about
        self.lock = None    # the cloud's

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
        """It has booted: from now on it runs its startup script, if scripts are run at all."""
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
        # Where nobody answers, as on a machine of another cloud.
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
        """A folder for the front of PATH: a machine's script must not end the real machine."""
        folder = os.path.join(self.log_folder, "programs")
        path = os.path.join(folder, "shutdown")
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            with open(path, "w") as f:
                f.write("#!/bin/sh\necho \"$FAKE_CLOUD_MACHINE: shutdown $*\"\n")
            os.chmod(path, 0o755)
        return folder

    def collect(self):
        """Machines whose script has ended have shut themselves down. Compute Engine keeps them, and
        bills their disks."""
        for machine in self.by_name.values():
            if machine.state == "running" and machine.process is not None \
                    and machine.process.poll() is not None:
                self.end(machine, "Client.InstanceInitiatedShutdown",
                         state="stopped" if machine.service == "gce" else "gone")

    def end(self, machine, reason, kill=signal.SIGKILL, state="gone"):
        """As if the power was cut, unless `kill` says otherwise."""
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
            shutil.rmtree(machine.disk, ignore_errors=True)  # a day has hundreds of machines

    def end_all(self):
        for machine in list(self.by_name.values()):
            self.end(machine, "the cloud ends")
