"""Goal: a worker that gets a notice of its cloud leaves as after SIGTERM: at a boundary, without
repeated work, and the job ends with the bits of an undisturbed run. The worker confirms the event
to Azure after it has left. A notice that is far ahead and withdrawn has no effect. With a bad
setting no job starts.
Method: real workers, the fake cloud's metadata servers, and a file of notices.
"""
import os
import tempfile
import time

import mayfly_run
from cluster import Cluster
from fake_cloud_job import expect_undisturbed_bits
from fake_cloud_process import FakeCloud
from mayfly_run import SMALL_JOB, Run, expect

JOB = SMALL_JOB + ["--steps", "1000000", "--threads", "1"]  # until the test stops the job
SLOW = ["--inject", "slow=4x"]  # notices may take long on a busy machine
STOPPED_BY_USER = 3


def job_with_notice(source, give):
    """A job of three workers, the first of which watches `source`. give() makes the notice."""
    folder = tempfile.mkdtemp(prefix="mayfly-notice-")
    cluster = Cluster(folder, JOB + SLOW, timeout=250)
    coordinator = cluster.start_coordinator(3)
    workers = [cluster.start_worker(cluster.endpoint(),
                                    extra=["--notice", source(folder)] if i == 0 else [])
               for i in range(3)]
    cluster.run.wait_for_step(5)
    give(folder)
    code = cluster.wait_for_end(workers[0], "the worker with a notice stays")
    expect(code == 0, f"it ends with {code}\n{cluster.logs()}")
    expect("notice: " in workers[0].output(), workers[0].output())
    expect(coordinator.alive(), "the job ended early")
    cluster.run.wait_for_step(cluster.run.last_step() + 10)
    done = cluster.run.command("stop", "--token-file", cluster.token_file)
    expect(done.returncode == 0, f"stop: {done.stderr}\n{cluster.logs()}")
    code = cluster.wait_for_end(coordinator, "the job does not end")
    expect(code == STOPPED_BY_USER, f"the job ends with {code}\n{cluster.logs()}")
    summary = cluster.run.summary()
    leaves = [r for r in summary["recoveries"] if r["cause"] == "leave"]
    expect(len(leaves) == 1, f"{summary['recoveries']}")
    expect(leaves[0]["redone_microbatches"] == 0, f"work was redone: {leaves[0]}")
    cluster.stop_hard()
    last, digest = expect_undisturbed_bits(cluster.run, JOB)
    expect(last == summary["steps"] and digest == summary["final_digest"],
           f"{summary['steps']} steps, {last} on record; other bits at the end")


def metadata(kind):
    cloud = FakeCloud()
    job_with_notice(lambda folder: f"{kind}:{cloud.addresses['metadata']}",
                    lambda folder: cloud.control("notice", kind="preempt", deadline_s=60))
    told = cloud.control("requests", service="metadata", operation="start_event")
    expect(len(told) == (1 if kind == "azure" else 0), f"of the leave, it was told: {told}")
    cloud.stop()


def file():
    """A worker does not act on a distant notice yet, and forgets it when it is withdrawn."""
    def write(folder, text):
        path = os.path.join(folder, "notice")
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def give(folder):
        write(folder, "100000 far ahead\n")
        output = os.path.join(folder, "worker-0.txt")
        deadline = time.monotonic() + 30
        for word in ("far ahead", "withdrawn"):
            while word not in open(output).read() and time.monotonic() < deadline:
                time.sleep(0.01)
            if word == "far ahead":
                os.unlink(os.path.join(folder, "notice"))
        expect("withdrawn" in open(output).read(), "the withdrawal was not noticed")
        write(folder, "20 maintenance\n")

    job_with_notice(lambda folder: "file:" + os.path.join(folder, "notice"), give)


def bad_setting():
    run = Run(SMALL_JOB + ["--workers", "1", "--notice", "gcp"])
    expect(run.wait() == 2, f"exit code {run.process.returncode}")
    expect("notice 'gcp' is not known" in run.output(), run.output())


CASES = {"gce": lambda: metadata("gce"), "ec2": lambda: metadata("ec2"),
         "azure": lambda: metadata("azure"), "file": file, "bad_setting": bad_setting}

if __name__ == "__main__":
    raise SystemExit(mayfly_run.main(CASES))
