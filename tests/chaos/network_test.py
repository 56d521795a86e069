"""Goal: hosts and links that fail silently only cost time.
Method: a coordinator and three workers, each on a separate host (a network namespace). During the
job a host is disconnected, or packets between two hosts are dropped. The digest after every step
must be that of an undisturbed run on loopback.
"""
import sys
import tempfile

import mayfly_run
import network
from cluster import Cluster
from mayfly_run import SMALL_JOB, expect
from oracle import Oracle

STEPS = 120
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--silence-max-ms", "1000"]
COORDINATOR = 0
oracle = {}


def undisturbed():
    if not oracle:
        oracle.update(Oracle(JOB + ["--workers", "1"]).digests())
    return oracle


def cluster_of(workers):
    hosts = network.Network(workers + 1)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cluster = Cluster(folder, JOB, hosts)
    cluster.start_coordinator(workers, host=COORDINATOR)
    for worker in range(workers):
        cluster.start_worker(cluster.endpoint(), host=worker + 1)
    cluster.run.wait_for_step(5)
    return cluster


def expect_same_bits(cluster):
    cluster.wait_for_end(cluster.coordinators[-1], "the job does not end")
    summary = cluster.run.summary()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps\n{cluster.logs()}")
    by_step = mayfly_run.digests(cluster.run)
    for step, digest in undisturbed().items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    cluster.stop_hard()
    cluster.network.remove()
    cluster.run.remove()
    return summary


def host_vanishes():
    """A host's packets are dropped both ways: no end of file, no reset, only silence."""
    cluster = cluster_of(3)
    cluster.network.pull_out(2)
    summary = expect_same_bits(cluster)
    expect(summary["membership_changes"] >= 1, "nobody was missed")
    expect(any(r["cause"] == "lost" for r in summary["recoveries"]), summary["recoveries"])


def link_breaks():
    """Two workers cannot exchange data, but both reach the coordinator: one of them is evicted."""
    cluster = cluster_of(3)
    cluster.network.mute(1, 2)
    cluster.network.mute(2, 1)
    expect_same_bits(cluster)


def link_breaks_one_way():
    cluster = cluster_of(3)
    cluster.network.mute(1, 2)
    expect_same_bits(cluster)


def comes_back():
    """A host is cut off for only a moment. The job goes on, at most with a change of view."""
    cluster = cluster_of(3)
    cluster.network.pull_out(3)
    step = cluster.run.last_step()
    cluster.network.heal()
    cluster.run.wait_for_step(step + 5)
    expect_same_bits(cluster)


if __name__ == "__main__":
    REASON = network.reason_to_skip()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(mayfly_run.SKIP)
    sys.exit(mayfly_run.main({
        "host_vanishes": host_vanishes, "link_breaks": link_breaks,
        "link_breaks_one_way": link_breaks_one_way, "comes_back": comes_back}))
