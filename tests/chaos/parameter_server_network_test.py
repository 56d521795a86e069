"""Goal: a link that drops packets between processes of a job with parameter servers, both of which
reach the coordinator, costs time and nothing else.
Method: a coordinator, two servers and two workers, each on a host (a network namespace) of its own.
A link between two of them is muted in the middle of the job; the end must be that of an
undisturbed run on loopback.
"""
import sys
import tempfile

import mayfly_run
import network
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect

STEPS = 80
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--sync", "bsp", "--slices", "2",
                   "--ps", "2", "--ps-replicas", "1", "--workers", "2", "--silence-max-ms", "1000"]
COORDINATOR, SERVERS, WORKERS = 0, (1, 2), (3, 4)
oracle = {}


def undisturbed():
    if not oracle:
        run = Run(JOB + ["--quiet"])
        oracle["digest"] = run.finish()["final_digest"]
        run.remove()
    return oracle["digest"]


def cluster_of_all():
    hosts = network.Network(5)
    cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB, hosts)
    cluster.start_coordinator(2, host=COORDINATOR)
    for index, host in enumerate(SERVERS):
        cluster.start_server(cluster.endpoint(), index, host=host)
    for host in WORKERS:
        cluster.start_worker(cluster.endpoint(), host=host)
    cluster.run.wait_for_step(5)
    return cluster


def expect_same_end(cluster):
    cluster.wait_for_end(cluster.coordinators[-1], "the job does not end")
    summary = cluster.run.summary()
    expect(summary["outcome"] == "done" and summary["steps"] == STEPS,
           f"{summary}\n{cluster.logs()}")
    expect(summary["final_digest"] == undisturbed(), f"other bits\n{cluster.logs()}")
    events = cluster.run.lines("events.jsonl")
    cluster.stop_hard()
    cluster.network.remove()
    cluster.run.remove()
    return events


def link_between_leader_and_follower_breaks():
    cluster = cluster_of_all()
    cluster.network.mute(1, 2)
    cluster.network.mute(2, 1)
    events = expect_same_end(cluster)
    kinds = [e["kind"] for e in events]
    expect("follower_unreachable" in kinds, f"nobody noticed: {kinds}")
    expect("shard_taken_over" in kinds or "shard_alone" in kinds, f"nothing was done: {kinds}")


def link_between_worker_and_server_breaks():
    cluster = cluster_of_all()
    cluster.network.mute(3, 1)
    cluster.network.mute(1, 3)
    expect_same_end(cluster)


if __name__ == "__main__":
    REASON = network.reason_to_skip()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(mayfly_run.SKIP)
    sys.exit(mayfly_run.main({
        "link_between_leader_and_follower_breaks": link_between_leader_and_follower_breaks,
        "link_between_worker_and_server_breaks": link_between_worker_and_server_breaks}))
