"""Goal: workers with and without a GPU can train together if sums are rounded, and only then.
Method: a coordinator and workers are started one by one beside modules of this folder, which
imitate a GPU on the CPU. Its gradients differ from the CPU's in their last bits.
usage: mixed_test.py FOLDER-WITH-MODULES CASE
"""
import os
import signal
import sys
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, expect
from train_test import beside_modules

ENDLESS = SMALL_JOB + ["--threads", "1", "--steps", "1000000"]
GPU = ["--device", "cuda:0"]


def churn():
    """A worker of each kind is lost, goes on alone, and is joined by one of the other kind."""
    with tempfile.TemporaryDirectory(prefix="mayfly-mixed-") as folder:
        cluster = Cluster(folder, ENDLESS + ["--reduction", "fp32"], timeout=250)
        coordinator = cluster.start_coordinator(workers=2)
        endpoint, run = cluster.endpoint(), cluster.run

        def goes_on_with(members, text):
            begin = run.last_step()
            cluster.wait_for(lambda: run.last_members() == members and run.last_step() > begin + 3,
                             text)

        first = {"cpu": cluster.start_worker(endpoint), "gpu": cluster.start_worker(endpoint,
                                                                                   extra=GPU)}
        goes_on_with(2, "the two do not begin")
        first["cpu"].kill()
        goes_on_with(1, "the GPU does not go on alone")
        cluster.start_worker(endpoint)
        goes_on_with(2, "no CPU joins a GPU")
        first["gpu"].kill()
        goes_on_with(1, "the CPU does not go on alone")
        cluster.start_worker(endpoint, extra=GPU)
        goes_on_with(2, "no GPU joins a CPU")
        coordinator.signal(signal.SIGINT)
        expect(cluster.wait_for_end(coordinator, "the job does not stop") == 3, cluster.logs())
        steps = [m["step"] for m in run.metrics()]
        expect(steps == list(range(1, len(steps) + 1)), "steps are missing or come twice")
        kinds = {event["kind"] for event in run.lines("events.jsonl")}
        expect("corrupted" not in kinds, f"the members' states differ\n{cluster.logs()}")
        cluster.stop_hard()


def refused(*options):
    with tempfile.TemporaryDirectory(prefix="mayfly-mixed-") as folder:
        cluster = Cluster(folder, ENDLESS + list(options))
        coordinator = cluster.start_coordinator(workers=1)
        cluster.start_worker(cluster.endpoint())
        cluster.run.wait_for_step(2)
        other = cluster.start_worker(cluster.endpoint(), extra=GPU)
        code = cluster.wait_for_end(other, "the GPU is not refused")
        line = other.output().splitlines()[-1]
        expect(code == 2, f"exit code {code}: {line}")
        for words in ("device: the job has cpu, this worker has cuda, ", "--reduction fp32",
                      f"the job at {cluster.endpoint()}"):
            expect(words in line, f"said {line}")
        coordinator.signal(signal.SIGINT)
        expect(cluster.wait_for_end(coordinator, "the job does not stop") == 3, cluster.logs())
        expect({m["members"] for m in cluster.run.metrics()} == {1}, "the job was touched")
        cluster.stop_hard()


def exact():
    """If results are compared bit by bit, all workers must have the same kind of device."""
    refused()
    refused("--reduction", "fp32", "--audit-every", "2")


if __name__ == "__main__":
    os.environ["REHEARSAL_GPU_ROUNDS"] = "1"
    mayfly_run.BINARY = beside_modules(os.path.abspath(sys.argv.pop(1)))
    sys.exit(mayfly_run.main({"churn": churn, "exact": exact}))
