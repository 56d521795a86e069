"""Goal: coordinators, workers and servers of several hosts find each other without --bind-host,
also by names that mean 127.0.1.1 on their own host. A waiting process prints what it waits for, and
the coordinator names each worker that it refuses.
Method: processes of one job on loopback, and on hosts that are network namespaces (needs root).
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import mayfly_run
import network
from cluster import Cluster
from mayfly_run import SMALL_JOB, expect, lingering
from oracle import Oracle

STEPS = 30
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1"]


class Hosts(network.Network):
    """Hosts with names. Host 0 is alpha, and resolves its own name to 127.0.1.1, as Debian does."""

    def __init__(self, hosts):
        super().__init__(hosts)
        self.folders = []
        for host in range(hosts):
            folder = f"/etc/netns/{self.name}h{host}"  # `ip netns exec` mounts it over /etc
            os.makedirs(folder)
            self.folders.append(folder)
            alpha = "127.0.1.1" if host == 0 else self.address(0)
            with open(folder + "/hosts", "w") as f:
                f.write(f"127.0.0.1 localhost\n{alpha} alpha\n")

    def remove(self):
        super().remove()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def new_cluster(net=None):
    cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB, net)
    done = subprocess.run([mayfly_run.BINARY, "token", cluster.token_file], check=False)
    expect(done.returncode == 0, "no token was made")
    return cluster


def start(cluster, name, words, host=None):
    """Starts a command on a host without any option about addresses."""
    return cluster.start_process(
        name, words + ["--token-file", cluster.token_file, "--run-dir",
                       cluster.run_dir(name)] + cluster.job, host)


def wait_for_words(cluster, process, *words):
    cluster.wait_for(lambda: all(word in process.output() for word in words),
                     f"{process.name} does not say {words}")


def ended(process, timeout=60):
    return process.process.wait(timeout)


def skip_without_hosts():
    reason = network.reason_to_skip()
    if reason is not None:
        print(f"skipped: {reason}")
        raise SystemExit(mayfly_run.SKIP)


def waits_aloud():
    """Waiting workers and servers print within seconds for which name and address they wait."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = new_cluster()
    begin = time.monotonic()
    waiting = [start(cluster, "worker", ["worker", "--coordinator", f"localhost:{port}"]),
               start(cluster, "server", ["ps-server", "--coordinator", f"127.0.0.1:{port}",
                                         "--sync", "bsp"])]
    wait_for_words(cluster, waiting[0], f"cannot connect to localhost:{port} (", "127.0.0.1",
                   "Connection refused; retrying for")
    wait_for_words(cluster, waiting[1], f"cannot connect to 127.0.0.1:{port}: Connection refused; ")
    expect(time.monotonic() - begin < 20, "it took too long to say so")
    cluster.stop_hard()


def names_who_is_refused():
    cluster = new_cluster()
    coordinator = cluster.start_coordinator(1, extra=["--bind-host", "127.0.0.1"])
    other = start(cluster, "other", ["worker", "--coordinator", cluster.endpoint(),
                                     "--checkpoint-every", "7"])
    expect(ended(other) == 2, other.output())
    wait_for_words(cluster, coordinator, "refused the worker on ",
                   "checkpoint_every: the job has 0, this worker has 7")
    wrong = os.path.join(cluster.folder, "wrong")
    subprocess.run([mayfly_run.BINARY, "token", wrong], check=True)
    intruder = cluster.start_process(
        "intruder", ["worker", "--coordinator", cluster.endpoint(), "--token-file", wrong,
                     "--run-dir", cluster.run_dir("intruder")] + cluster.job, None)
    expect(ended(intruder) == 2, intruder.output())
    wait_for_words(cluster, coordinator, "control port: refused 127.0.0.1:", "wrong token")
    cluster.stop_hard()


def every_interface():
    """A coordinator on 0.0.0.0 names an address that others can connect to."""
    cluster = new_cluster()
    coordinator = cluster.start_coordinator(1, extra=["--bind-host", "0.0.0.0"])
    endpoint = cluster.endpoint()
    expect(not endpoint.startswith("0."), endpoint)
    worker = start(cluster, "worker", ["worker", "--coordinator", endpoint])
    expect(ended(worker) == 0 and ended(coordinator) == 0, cluster.logs())
    cluster.stop_hard()


def nothing_said():
    """No option names an address on any of three hosts. A worker on the coordinator's host connects
    by that host's name."""
    skip_without_hosts()
    net = Hosts(3)
    cluster = new_cluster(net)
    coordinator = start(cluster, "run", ["coordinator", "--workers", "3", "--port", "7000"], 0)
    workers = [start(cluster, f"worker{host}", ["worker", "--coordinator", "alpha:7000"], host)
               for host in range(3)]
    codes = [ended(process) for process in [coordinator, *workers]]
    expect(codes == [0, 0, 0, 0], f"{codes}\n" + "".join(p.output() for p in workers))
    expect(f"coordinator at {net.address(0)}:7000" in coordinator.output(), coordinator.output())
    run = mayfly_run.Run.attach(cluster.folder, coordinator.process, 60)
    expect(run.metrics()[-1]["members"] == 3, "not all took part")
    expect(mayfly_run.digests(run) == Oracle(JOB + ["--workers", "1"]).digests(), "other digests")
    net.remove()


def out_of_reach():
    """A worker on another host that listens on 127.0.0.1 is refused; the job is not disturbed."""
    skip_without_hosts()
    net = Hosts(2)
    cluster = new_cluster(net)
    cluster.job = JOB + lingering(3)
    coordinator = start(cluster, "run", ["coordinator", "--workers", "1", "--port", "7000"], 0)
    worker = start(cluster, "worker", ["worker", "--coordinator", "alpha:7000"], 0)
    run = mayfly_run.Run.attach(cluster.folder, coordinator.process, 60)
    run.wait_for_step(3)
    hidden = start(cluster, "hidden", ["worker", "--coordinator", "alpha:7000", "--bind-host",
                                       "127.0.0.1"], 1)
    expect(ended(hidden) == 2, hidden.output())
    expect("which only its own host can reach" in hidden.output(), hidden.output())
    expect(ended(worker) == 0 and ended(coordinator) == 0, cluster.logs())
    expect("which only its own host can reach" in coordinator.output(), coordinator.output())
    expect({m["members"] for m in run.metrics()} == {1}, "the others were disturbed")
    net.remove()


if __name__ == "__main__":
    sys.exit(mayfly_run.main({test.__name__: test for test in [
        waits_aloud, names_who_is_refused, every_interface, nothing_said, out_of_reach]}))
