"""Goal: workers with and without a GPU train together where sums are rounded, and only there.
Method: a coordinator and workers that are started one by one beside modules that play the GPU on
the CPU (this folder); the pretended GPU's gradients differ from the CPU's in their last bits.
usage: mixed_test.py FOLDER-WITH-MODULES CASE
"""
import os
import signal
import sys
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, expect
from train_test import beside_modules, pretended

ENDLESS = SMALL_JOB + ["--threads", "1", "--steps", "1000000"]
GPU = ["--device", "cuda:0"]


def churn():
    """Each kind is lost, carries on alone, and gets the other kind as a joiner."""
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
    """Results that are compared bit by bit must come from one kind of device."""
    refused()
    refused("--reduction", "fp32", "--audit-every", "2")


TABLE = "sm_90-cudnn-9.19.0.tsv"
TITLE = "mayfly-engine-table\t1\tsm_90-cudnn-9.19.0\n"
COLUMNS = "pass\tdtype\timages\tin\tout\tkernel\tstride\tpadding\tsize\tengine\tus\tfirst_us\n"


def with_table(text):
    """The program in another folder, with this engine table beside it."""
    program = beside_modules(MODULES)
    folder = os.path.join(os.path.dirname(program), "engine_tables")
    os.mkdir(folder)
    with open(os.path.join(folder, TABLE), "w") as f:
        f.write(text)
    return program


def tables():
    """Two workers whose GPUs would take other engines of cuDNN are not in one job."""
    images = SMALL_JOB[SMALL_JOB.index("--microbatch") + 1]
    row = f"forward\tfp32\t{images}\t16\t16\t3\t1\t1\t32\teng1_k2=0\t1.00\t2.00\n"
    without = mayfly_run.BINARY
    mayfly_run.BINARY = with_table(TITLE + COLUMNS + row)
    with tempfile.TemporaryDirectory(prefix="mayfly-mixed-") as folder:
        cluster = Cluster(folder, ENDLESS + GPU)
        coordinator = cluster.start_coordinator(workers=1)
        first = cluster.start_worker(cluster.endpoint())
        cluster.run.wait_for_step(2)
        expect("convolutions are computed by cuDNN's own first choice of engine" in first.output(),
               f"the worker does not say what its table lacks\n{first.output()}")
        mayfly_run.BINARY = without
        other = cluster.start_worker(cluster.endpoint())
        code = cluster.wait_for_end(other, "a worker without the table is not refused")
        line = other.output().splitlines()[-1]
        expect(code == 2, f"exit code {code}: {line}")
        for words in ("convolution kernels: the job has cudnn, 1 of ", " by engine table ",
                      "this worker has cudnn; ", "engine_tables"):
            expect(words in line, f"said {line}")
        coordinator.signal(signal.SIGINT)
        expect(cluster.wait_for_end(coordinator, "the job does not stop") == 3, cluster.logs())
        cluster.stop_hard()
    job = SMALL_JOB + ["--steps", "2", "--workers", "1"] + GPU
    for text, said in ((TITLE + COLUMNS + row[1:], TABLE + ": line 3: no convolution"),
                       (TITLE.replace("90", "80") + COLUMNS, "is the engine table of sm_80")):
        mayfly_run.BINARY = with_table(text)
        mayfly_run.expect_refused(job, [([], said)])


def refused_engines():
    """A GPU that does not run an engine which cuDNN offers computes in parts and says so; it is not
    in one job with a GPU that does, whichever comes first, nor after the coordinator's death."""
    job = ENDLESS + GPU + ["--dtype", "fp16", "--global-batch", "4", "--microbatch", "2"]
    os.environ["REHEARSAL_GPU_PLAN"] = "fused"
    for first, second in (("", "32"), ("32", ""), ("32", "64")):
        with tempfile.TemporaryDirectory(prefix="mayfly-mixed-") as folder:
            cluster = Cluster(folder, job)
            coordinator = cluster.start_coordinator(workers=1)
            workers = []
            for channels in (first, first, second):
                if len(workers) == 2:  # the next coordinator knows it from the one before
                    coordinator.kill()
                    coordinator = cluster.start_coordinator(workers=1)
                with pretended(REHEARSAL_GPU_REFUSES=channels):
                    workers.append(cluster.start_worker(cluster.endpoint()))
                if len(workers) < 3:
                    members = len(workers)
                    cluster.wait_for(lambda m=members: cluster.run.last_members() == m,
                                     f"GPUs that refuse '{first}' are not in one job")
            code = cluster.wait_for_end(workers[2], "a GPU that computes otherwise is not refused")
            line = workers[2].output().splitlines()[-1]
            expect(code == 2, f"exit code {code}: {line}")
            for words in ("engines on the GPU: the job has ", "this worker has ",
                          "the same engines of cuDNN", " refused by the GPU"):
                expect(words in line, f"said {line}")
            warning = "does not run on this GPU: CUDNN_STATUS_EXECUTION_FAILED, pretended; the " \
                      "layer is computed in parts"
            for channels, worker in ((first, workers[0]), (second, workers[2])):
                said = [text for text in worker.output().splitlines() if warning in text]
                expect(bool(said) == bool(channels), f"said {said}")
                expect(all(f" x {channels} x " in text for text in said), f"said {said}")
            coordinator.signal(signal.SIGINT)
            expect(cluster.wait_for_end(coordinator, "the job does not stop") == 3, cluster.logs())
            cluster.stop_hard()


if __name__ == "__main__":
    os.environ["REHEARSAL_GPU_ROUNDS"] = "1"
    MODULES = os.path.abspath(sys.argv.pop(1))
    mayfly_run.BINARY = beside_modules(MODULES)
    sys.exit(mayfly_run.main({"churn": churn, "exact": exact, "tables": tables,
                              "refused_engines": refused_engines}))
