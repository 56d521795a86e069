"""Goal: exit code and summary of a job tell its outcome: done if no work is left, failed if its
last weights or its summary could not be written. The records of a finished job are not changed.
Method: real jobs that are stopped in their last step, or that cannot write to their folder.
"""
import os
import shutil
import subprocess

import mayfly_run
from bad_input_test import changes, everything_in
from mayfly_run import SMALL_JOB, Run, expect, lingering

JOB = SMALL_JOB + ["--workers", "2", "--threads", "1"]
EVALUATED = [word for word in JOB if word != "--no-evaluate"]


def resume(run, *more):
    """`train --resume`: in the run's own directory, unless `more` names another."""
    where = [] if "--run-dir" in more else ["--run-dir", run.run_dir]
    return subprocess.run([mayfly_run.BINARY, "train", "--resume", run.run_dir] + EVALUATED +
                          where + list(more), capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


def stopped_in_the_last_step():
    run = Run(EVALUATED + ["--steps", "12"] + lingering(11))
    run.wait_for_step(11)
    run.process.terminate()
    summary = run.finish()
    expect(summary["outcome"] == "done" and summary["steps"] == 12, summary)
    expect("test_top1" in summary, "no final evaluation")
    run.remove()


def nothing_left():
    run = Run(EVALUATED + ["--steps", "6"])
    done = run.finish()
    before = everything_in(run.run_dir)
    other = os.path.join(run.folder, "other")
    for more in ((), ("--trace", "auto"), ("--quiet",), ("--run-dir", other)):
        again = resume(run, "--steps", "6", *more)
        text = again.stdout + again.stderr
        expect(again.returncode == 0, f"exit code {again.returncode}\n{text}")
        expect(len(text.splitlines()) == 1 and "nothing is left to do" in text, text)
        changed = changes(before, everything_in(run.run_dir))
        # The lock file names the last process that took it.
        expect(changed in ([], ["view.log.lock"]), f"changed {changed}")
    expect(not os.path.exists(other), "a directory was made for nothing")

    os.remove(run.path("summary.json"))  # as if the job was killed before it wrote the summary
    again = resume(run, "--steps", "6")
    expect(again.returncode == 0, again.stderr)
    rest = run.summary()
    for name in ("outcome", "steps", "final_digest", "test_top1"):
        expect(rest[name] == done[name], f"{name} is {rest[name]}, not {done[name]}")
    run.remove()


def last_weights_not_written():
    """A file is in the place of the folder of checkpoints. Training goes on, and each cause of a
    failed checkpoint is reported once."""
    run = Run(JOB + ["--steps", "30", "--checkpoint-every", "3"] + lingering(5))
    run.wait_for_step(5)
    shutil.rmtree(run.path("checkpoints"), ignore_errors=True)
    while os.path.isdir(run.path("checkpoints")):  # a checkpoint was being written
        shutil.rmtree(run.path("checkpoints"), ignore_errors=True)
    with open(run.path("checkpoints"), "w") as f:
        f.write("in the way")
    code = run.wait()
    expect(code == 1, f"exit code {code}\n{run.logs()}")
    summary = run.summary()
    expect(summary["outcome"] == "failed" and summary["steps"] == 30, summary)
    expect("the last state is lost: checkpoint of step 30 not saved" in summary["detail"], summary)
    said = [line for line in run.output().splitlines() if "training continues" in line]
    causes = {line.split(";")[0].rsplit(": ", 1)[1] for line in said}
    expect(said and len(said) == len(causes), f"said {said}")
    failed = [e["step"] for e in run.lines("events.jsonl") if e["kind"] == "checkpoint_failed"]
    expect(len(failed) > 3 and failed[-1] == 30, f"on record: {failed}")
    run.remove()


def summary_not_written():
    run = Run(JOB + ["--steps", "30"] + lingering(5))
    run.wait_for_step(5)
    os.makedirs(run.path("summary.json", "in the way"))
    code = run.wait()
    expect(code == 1, f"exit code {code}\n{run.logs()}")
    text = run.output()
    expect("Failed (no summary: cannot rename to" in text, text)
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "stopped_in_the_last_step": stopped_in_the_last_step, "nothing_left": nothing_left,
        "last_weights_not_written": last_weights_not_written,
        "summary_not_written": summary_not_written}))
