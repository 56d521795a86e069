"""A job whose coordinators and workers a test starts one by one, as on real machines. All run on
this machine's loopback interface, or each on a host of a `network.Network`. A test can kill, stop
and restart any of them.
"""
import atexit
import os
import signal
import subprocess
import time

import mayfly_run
from mayfly_run import Failure, Run


class Process:
    """One mayfly process. Its output goes into the file `name`.txt of the cluster's folder."""

    def __init__(self, cluster, name, words, host=None):
        self.name, self.host = name, host
        self.output_path = os.path.join(cluster.folder, name + ".txt")
        command = [mayfly_run.BINARY] + words
        if host is not None:
            command = cluster.network.command(host, command)
        with open(self.output_path, "ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.alive():
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def output(self):
        with open(self.output_path, errors="replace") as f:
            return f.read()


class Cluster:
    """`job`: settings of `mayfly train` that the coordinator and the workers share. Tests read the
    records of the first coordinator through `run` (mayfly_run.Run)."""

    def __init__(self, folder, job, network=None, timeout=120):
        self.folder, self.job, self.network, self.timeout = folder, list(job), network, timeout
        self.started = time.monotonic()
        self.token_file = os.path.join(folder, "token")
        self.processes, self.coordinators, self.workers = [], [], []
        self.ports = {}
        self.run = None
        atexit.register(self.stop_hard)

    # --- starting

    def start_process(self, name, words, host):
        """Starts any mayfly command. For coordinators and workers there are functions below."""
        process = Process(self, name, words, host)
        self.processes.append(process)
        return process

    def run_dir(self, name="run"):
        return os.path.join(self.folder, name)

    def start_coordinator(self, workers, name="run", host=None, extra=()):
        """Starts or restarts the coordinator with the run directory `name`."""
        words = ["coordinator", "--run-dir", self.run_dir(name), "--token-file", self.token_file,
                 "--workers", str(workers)] + self.job + list(extra)
        if "--bind-host" not in words:
            words += ["--bind-host", "127.0.0.1" if host is None else self.network.address(host)]
        if name in self.ports:
            words += ["--port", str(self.ports[name])]
        process = self.start_process("coordinator-" + name, words, host)
        self.coordinators.append(process)
        if self.run is None:
            self.run = Run.attach(self.folder, process.process, self.timeout, process.output_path)
        elif name == "run":
            self.run.process = process.process
        self.ports[name] = int(self.endpoint(name, process).rsplit(":", 1)[1])
        return process

    def endpoint(self, name="run", process=None):
        """Waits until the coordinator has written the address on which it listens; returns it."""
        path = os.path.join(self.run_dir(name), "coordinator")
        while True:
            try:
                with open(path) as f:
                    text = f.read().strip()
                if text:
                    return text
            except FileNotFoundError:
                pass
            if process is not None and not process.alive():
                raise Failure(f"coordinator {name} ended: {process.output()}")
            self.check_time(f"coordinator {name} does not listen")
            time.sleep(0.01)

    def start_worker(self, endpoints, host=None, extra=()):
        """`endpoints`: one "host:port" or a list; the worker tries them in this order."""
        endpoints = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        number = len(self.workers)
        words = ["worker", "--coordinator", ",".join(endpoints), "--token-file", self.token_file,
                 "--run-dir", self.run_dir(f"worker-{number}")] + self.job + list(extra)
        if host is not None:
            words += ["--bind-host", self.network.address(host)]
        worker = self.start_process(f"worker-{number}", words, host)
        self.workers.append(worker)
        return worker

    def start_server(self, endpoint, index, host=None):
        """Starts a parameter server."""
        words = ["ps-server", "--coordinator", endpoint, "--token-file", self.token_file,
                 "--run-dir", self.run_dir(f"server-{index}"), "--ps-index",
                 str(index)] + self.job
        if host is not None:
            words += ["--bind-host", self.network.address(host)]
        return self.start_process(f"server-{index}", words, host)

    # --- waiting

    def check_time(self, text):
        if time.monotonic() - self.started > self.timeout:
            logs = self.logs()
            self.stop_hard()
            raise Failure(f"{text} after {self.timeout} s\n{logs}")

    def wait_for(self, condition, text):
        """Waits until condition() holds, at most until the cluster's timeout."""
        began = time.monotonic()
        while not condition():
            self.check_time(text)
            mayfly_run.look_again(began, 0.01)
            began = time.monotonic()

    def wait_for_end(self, process, text):
        self.wait_for(lambda: not process.alive(), text)
        return process.process.returncode

    def logs(self, tail=25):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".txt"):
                with open(os.path.join(self.folder, name), errors="replace") as f:
                    text += f"--- {name}\n" + "\n".join(f.read().splitlines()[-tail:]) + "\n"
        return text

    def stop_hard(self):
        for process in self.processes:
            if process.alive():
                process.signal(signal.SIGCONT)
                process.kill()
