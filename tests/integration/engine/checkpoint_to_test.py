"""Goal: with --checkpoint-to the coordinator copies each checkpoint to a second place, and repeats
a copy until it succeeds. A job whose last checkpoint could not be copied fails and names the folder
of that checkpoint.
Method: folders, and commands that are small shell scripts.
"""
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect, lingering

STEPS = 24
JOB = SMALL_JOB + ["--steps", str(STEPS), "--checkpoint-every", "10", "--workers", "1",
                   "--threads", "1"]


def started(folder, to, *more):
    os.makedirs(os.path.join(folder, "runs"), exist_ok=True)
    return Run(JOB + ["--checkpoint-to", to, *more], run_dir=os.path.join(folder, "runs", "first"))


def checkpoints(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("step-"))


def into_a_folder():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    other = os.path.join(folder, "mounted")
    run = started(folder, other)
    summary = run.finish()
    copied = run.events("checkpoint_copied")
    expect(copied[-1]["step"] == STEPS, copied)
    there = os.path.join(other, "first")
    expect(checkpoints(os.path.join(there, "checkpoints"))[-1] == f"step-{STEPS}", "not there")
    shown = subprocess.run([mayfly_run.BINARY, "digest", there], capture_output=True, text=True,
                           check=False, timeout=60)
    expect(summary["final_digest"] in shown.stdout, shown)

    shutil.rmtree(run.run_dir)  # the copy alone is sufficient to resume the job
    more = started(folder, other, "--resume", there, "--steps", "30")
    expect(more.finish()["steps"] == 30, "not resumed")
    shutil.rmtree(more.run_dir)
    foreign = started(folder, other, "--seed", "8")
    expect(foreign.wait() == 2 and "holds checkpoints of another job" in foreign.output(),
           foreign.output())
    expect(checkpoints(os.path.join(there, "checkpoints"))[-1] == "step-30", "it is gone")
    shutil.rmtree(folder)


def by_a_command():
    """The command fails twice, and prints megabytes. Each time it gets a complete checkpoint."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    bucket = os.path.join(folder, "a bucket")
    os.makedirs(bucket)
    script = os.path.join(folder, "put")
    with open(script, "w") as file:
        file.write(f"""#!/bin/sh
echo "$1" >> '{folder}/calls'
if [ "$(wc -l < '{folder}/calls')" -le 2 ]; then echo 'no network' >&2; exit 3; fi
head -c 2000000 /dev/zero | tr '\\0' 'x'
cp -r "$1" '{bucket}/'"$2"
""")
    os.chmod(script, 0o755)
    run = started(folder, script + " {} {name}", *lingering(10))
    summary = run.finish()
    failed = run.events("checkpoint_not_copied")
    expect(len(failed) == 2 and "no network" in failed[0]["detail"], failed)
    expect(run.output().count("no network") == 1, run.output())
    shown = subprocess.run([mayfly_run.BINARY, "digest", os.path.join(bucket, f"step-{STEPS}")],
                           capture_output=True, text=True, check=False, timeout=60)
    expect(summary["final_digest"] in shown.stdout, f"{shown} {os.listdir(bucket)}")
    expect(not os.path.exists(run.path(".outgoing")), "what it was given is left")
    shutil.rmtree(folder)


def that_never_works():
    """All copies fail. The run directory is complete all the same."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run = started(folder, "false {}")
    code = run.wait()
    summary = run.summary()
    expect(code == 1 and summary["outcome"] == "failed", f"{code} {summary}")
    expect("but not at the destination of --checkpoint-to" in summary["detail"], summary)
    expect(checkpoints(run.path("checkpoints"))[-1] == f"step-{STEPS}", "no checkpoint")
    shutil.rmtree(folder)


def that_cannot_be():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    with open(os.path.join(folder, "file"), "w"):
        pass
    run_dir = os.path.join(folder, "run")
    refused = subprocess.run([mayfly_run.BINARY, "train", *JOB, "--run-dir", run_dir,
                              "--checkpoint-to", os.path.join(folder, "file")], timeout=60,
                             capture_output=True, text=True, check=False)
    expect(refused.returncode == 2 and "--checkpoint-to: cannot create folder" in refused.stderr,
           refused.stderr)
    expect(not os.path.exists(run_dir), "it has left a directory")
    shutil.rmtree(folder)


def restarted():
    """The coordinator dies while it copies; the next one copies the checkpoint again."""
    job = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"),
                  SMALL_JOB + ["--steps", str(STEPS), "--checkpoint-every", "10", "--threads", "1"]
                  + lingering(12))
    other = os.path.join(job.folder, "other")
    to = ["--checkpoint-to", other]
    job.start_coordinator(1, extra=["--checkpoint-to", "sleep 5; false {}"])
    job.start_worker(job.endpoint())
    job.wait_for(lambda: job.run.events("checkpoint_received"), "the first checkpoint")
    job.coordinators[0].kill()
    job.start_coordinator(1, extra=to)
    job.run.finish()
    copied = checkpoints(os.path.join(other, "run", "checkpoints"))
    expect(copied[-1] == f"step-{STEPS}", copied)
    job.stop_hard()
    shutil.rmtree(job.folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({test.__name__: test for test in [
        into_a_folder, by_a_command, that_never_works, that_cannot_be, restarted]}))
