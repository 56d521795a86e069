"""Goal: if two commands are started in one run directory at the same moment, one of them runs and
the other is refused without changing it: nothing of the run is lost.
Method: both are started 0 to 40 ms apart, in a directory that does not exist yet or that contains a
stopped run of the job. MAYFLY_TEST_DOUBLE_STARTS is the number of such pairs, MAYFLY_TEST_SEEDS
lists seeds for them.
"""
import os
import shutil
import subprocess
import tempfile
import time

import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, Run, expect

STEPS = 4
JOB = [word for word in SMALL_JOB if word != "--no-tensorboard"] + ["--threads", "1"]
COUNT = int(os.environ.get("MAYFLY_TEST_DOUBLE_STARTS", "20"))
FILES = {"config.toml", "events.jsonl", "metrics.jsonl", "token", "view.log", "view.log.lock",
         "summary.json", "tb", "logs", "checkpoints"}


class Start:
    """One of the two commands; its output is written to a separate file."""

    def __init__(self, folder, name, words, prefix=()):
        self.output_path = os.path.join(folder, name + ".txt")
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(
                list(prefix) + [mayfly_run.BINARY] + words, env=mpi_launch.environment(),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def output(self):
        with open(self.output_path, errors="replace") as f:
            return f.read()


def words_of(kind, run_dir, steps):
    words = ["coordinator" if kind == "coordinator" else "train", "--run-dir", run_dir,
             "--steps", str(steps)] + JOB
    if kind != "mpirun":
        words += ["--workers", "1"]
    return words + (["--resume", run_dir] if kind == "resume" else [])


def wait_for_both(folder, run_dir, starts):
    """Waits until both commands have ended. Starts a worker if one of them is a coordinator."""
    deadline = time.monotonic() + 120
    worker = None
    while any(start.process.poll() is None for start in starts):
        waits = any(start.process.poll() is None and "coordinator at" in start.output()
                    for start in starts)
        if waits and worker is None:
            worker = Start(folder, "worker", ["worker", "--run-dir", run_dir] + JOB +
                           ["--steps", str(STEPS)])
        if time.monotonic() > deadline:
            for start in starts:
                start.process.kill()
            raise mayfly_run.Failure("they do not end: " + "\n".join(s.output() for s in starts))
        time.sleep(0.005)
    if worker is not None:
        worker.process.wait()


def start_twice(kinds, chance):
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    first_step = 1
    steps = STEPS
    if "resume" in kinds:
        Run(words_of("train", run_dir, STEPS)[3:], run_dir=run_dir).finish()
        first_step, steps = STEPS + 1, 2 * STEPS
    starts = []
    for name, kind in zip(("one", "other"), kinds):
        prefix = mpi_launch.command(1) if kind == "mpirun" else []
        starts.append(Start(folder, name, words_of(kind, run_dir, steps), prefix))
        time.sleep(chance.uniform(0, 0.5 if kind == "mpirun" else 0.04))  # mpirun starts slowly
    wait_for_both(folder, run_dir, starts)
    check(kinds, starts, run_dir, first_step, steps)
    shutil.rmtree(folder)


def check(kinds, starts, run_dir, first_step, steps):
    text = f"{kinds}: " + "\n---\n".join(start.output() for start in starts)
    codes = [start.process.returncode for start in starts]
    first = [i for i in (0, 1) if "Done: " in starts[i].output() and codes[i] == 0]
    expect(len(first) == 1, f"exit codes {codes}\n{text}")
    refused = starts[1 - first[0]]
    said = refused.output()
    # A command that waits for the lock may get it after the other command has completed the job.
    late = "nothing is left to do" in said and kinds == ("resume", "resume")
    expect(refused.process.returncode == (0 if late else 2), f"exit codes {codes}\n{text}")
    expect(late or "holds" in said, text)
    expect(len(said.splitlines()) == 1 or "mpirun" in kinds, text)
    missing = FILES - set(os.listdir(run_dir))
    expect(not missing, f"{sorted(missing)} of the first one's files are gone\n{text}")
    run = Run.__new__(Run)
    run.run_dir = run_dir
    recorded = [m["step"] for m in run.metrics() if m["step"] >= first_step]
    expect(recorded == list(range(first_step, steps + 1)), f"steps on record: {recorded}\n{text}")
    begun = [e for e in run.lines("events.jsonl") if e["kind"] == "started"]
    expect(len(begun) == (1 if first_step == 1 else 2), f"{len(begun)} parts on record\n{text}")
    expect(run.summary()["outcome"] == "done", text)
    expect(os.listdir(run.path("tb")), "the curves are gone")


def double_starts():
    pairs = [("train", "train"), ("resume", "resume"), ("train", "coordinator"),
             ("coordinator", "train"), ("train", "train")]
    if shutil.which("mpirun") is not None:
        pairs[4] = ("mpirun", "train")
    for number in range(COUNT):
        start_twice(pairs[number % len(pairs)], mayfly_run.rng(number))
    print(f"{COUNT} double starts, nothing lost")


def without_a_name():
    """Commands without a run directory get separate ones, even in the same second."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    words = ["train", "--steps", "2", "--workers", "1", "--no-evaluate"] + JOB
    runs = [subprocess.Popen([os.path.abspath(mayfly_run.BINARY)] + words, cwd=folder,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True) for _ in range(3)]
    for run in runs:
        output, _ = run.communicate(timeout=120)
        expect(run.returncode == 0, f"exit code {run.returncode}\n{output}")
    made = [name for name in os.listdir(os.path.join(folder, "runs")) if name != ".cache"]
    expect(len(made) == 3, f"run directories: {made}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "double_starts": double_starts, "without_a_name": without_a_name}))
