"""Goal: at most one side of a partition goes on, and the other side joins it after the partition.
Method: a primary, a standby and three workers, each on a separate host (a network namespace). The
primary is cut off with one worker, so the standby has the majority. The records of both sides
together must be those of an undisturbed run. A step that both sides had committed would differ, or
would be recorded twice in different views.
"""
import json
import subprocess
import sys
import tempfile

import mayfly_run
import network
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect

STEPS = 160
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--silence-max-ms", "1000"]
SLOW = ["--inject", "slow=4x"]  # so that the job does not end before the sides are joined again
PRIMARY, STANDBY, WORKERS = 0, 1, (2, 3, 4)


def status_of(cluster, name, host):
    words = [mayfly_run.BINARY, "status", cluster.endpoint(name), "--json", "--token-file",
             cluster.token_file]
    done = subprocess.run(cluster.network.command(host, words), capture_output=True, text=True,
                          timeout=30)
    gone = {"phase": done.stderr, "members": []}
    return json.loads(done.stdout) if done.returncode == 0 else gone


def records_of(cluster, name):
    first = cluster.coordinators[0]
    run = Run.attach(cluster.folder, first.process, cluster.timeout, first.output_path)
    run.run_dir = cluster.run_dir(name)
    return run


def majority_goes_on_and_minority_joins_it():
    _, undisturbed = mayfly_run.train(JOB + ["--workers", "1"])
    hosts = network.Network(5)
    cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + SLOW, hosts, timeout=240)
    primary = cluster.start_coordinator(3, host=PRIMARY, extra=["--quorum"])
    standby = cluster.start_coordinator(3, name="standby", host=STANDBY, extra=["--standby"])
    for host in WORKERS:
        cluster.start_worker([cluster.endpoint(), cluster.endpoint("standby")], host=host)
    cluster.run.wait_for_step(5)
    hosts.partition([PRIMARY, WORKERS[0]], [STANDBY, WORKERS[1], WORKERS[2]])

    def has_taken_over():
        status = status_of(cluster, "standby", STANDBY)
        return status["phase"] == "running" and len(status["members"]) == 2
    cluster.wait_for(has_taken_over, "the side with the majority does not go on")
    expect(status_of(cluster, "run", PRIMARY)["phase"] != "running", "both sides go on")
    hosts.heal()
    cluster.wait_for(lambda: "joining again" in cluster.workers[0].output(),
                     "the minority does not join again")
    code = cluster.wait_for_end(standby, "the job does not end")
    expect(code == 0, f"the standby ended with {code}\n{cluster.logs()}")
    expect(primary.alive(), "the old primary ended")
    primary.kill()
    first, second = records_of(cluster, "run"), records_of(cluster, "standby")
    by_step = {}
    for run in (first, second):
        for step, digest in mayfly_run.digests(run).items():
            expect(by_step.setdefault(step, digest) == digest, f"step {step} was committed twice")
    for step, digest in undisturbed.items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    cluster.stop_hard()
    hosts.remove()
    cluster.run.remove()


if __name__ == "__main__":
    REASON = network.reason_to_skip()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(mayfly_run.SKIP)
    sys.exit(mayfly_run.main({
        "majority_goes_on_and_minority_joins_it": majority_goes_on_and_minority_joins_it}))
