"""Goal: if a link between two processes of a job with parameter servers drops packets, and both
reach the coordinator, the job only loses time once.
Method: a coordinator, two servers and two workers, each on a separate host (a network namespace).
During the job packets between two of them are dropped. The result must be that of an undisturbed
run on loopback. One worker sends late, so the other one mostly waits for it, because a waiting
worker must notice the broken link, too.
"""
import sys
import tempfile
import time

import mayfly_run
import network
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect, lingering

STEPS = 80
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--sync", "bsp", "--slices", "2",
                   "--ps", "2", "--ps-replicas", "1", "--workers", "2", "--silence-max-ms", "1000"]
LATE = ["--inject", "delay=100ms,worker=1"]
COORDINATOR, SERVERS, WORKERS = 0, (1, 2), (3, 4)
oracle = {}


def undisturbed():
    if not oracle:
        run = Run(JOB + ["--quiet"])
        oracle["digest"] = run.finish()["final_digest"]
        run.remove()
    return oracle["digest"]


def cluster_of_all(more=()):
    hosts = network.Network(5)
    cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + list(more), hosts)
    cluster.start_coordinator(2, host=COORDINATOR)
    for index, host in enumerate(SERVERS):
        cluster.start_server(cluster.endpoint(), index, host=host)
    for number, host in enumerate(WORKERS):
        cluster.start_worker(cluster.endpoint(), host=host, extra=["--worker-number", str(number)])
    cluster.run.wait_for_step(5)
    return cluster


def cut(cluster, host, other):
    cluster.network.mute(host, other)
    cluster.network.mute(other, host)


def heal(cluster, host, other):
    cluster.network.unmute(host, other)
    cluster.network.unmute(other, host)


def count_of(cluster, kind):
    return sum(e["kind"] == kind for e in cluster.run.lines("events.jsonl"))


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
    cluster = cluster_of_all(lingering(5))
    cut(cluster, *SERVERS)
    events = expect_same_end(cluster)
    kinds = [e["kind"] for e in events]
    expect("follower_unreachable" in kinds, f"nobody noticed: {kinds}")
    expect("shard_taken_over" in kinds or "shard_alone" in kinds, f"nothing was done: {kinds}")


def link_between_worker_and_server_breaks():
    """The worker with the broken link is evicted, and the other one goes on at once. When the link
    works again, the first worker joins again. The server behind the link has two shards."""
    cluster = cluster_of_all([*LATE, "--shards", "2"])
    # Half of the other worker's delay: by now the first worker has sent its sums, and waits.
    time.sleep(0.05)
    cut(cluster, WORKERS[0], SERVERS[0])
    cluster.wait_for(lambda: count_of(cluster, "evicted"), "nobody noticed")
    step = cluster.run.last_step()
    cluster.wait_for(lambda: cluster.run.last_step() > step + 3, "the others do not go on")
    joined = count_of(cluster, "joined")
    heal(cluster, WORKERS[0], SERVERS[0])
    cluster.wait_for(lambda: count_of(cluster, "joined") > joined, "the worker does not come back")
    events = expect_same_end(cluster)
    kinds = [e["kind"] for e in events]
    expect(kinds.count("evicted") == 1 and kinds.count("worker_cut_off") == 1,
           f"it cost more than one detection: {kinds}")


def no_worker_reaches_a_server():
    """The first worker that notices the broken link leaves. The other one blames the server, whose
    follower then becomes the leader."""
    cluster = cluster_of_all(LATE)
    for worker in WORKERS:
        cut(cluster, worker, SERVERS[1])
    events = expect_same_end(cluster)
    kinds = [e["kind"] for e in events]
    expect("worker_cut_off" in kinds and "server_cut_off" in kinds, f"nobody says so: {kinds}")
    expect("shard_taken_over" in kinds, f"nothing was done: {kinds}")


if __name__ == "__main__":
    REASON = network.reason_to_skip()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(mayfly_run.SKIP)
    sys.exit(mayfly_run.main({
        "link_between_leader_and_follower_breaks": link_between_leader_and_follower_breaks,
        "link_between_worker_and_server_breaks": link_between_worker_and_server_breaks,
        "no_worker_reaches_a_server": no_worker_reaches_a_server}))
