"""Runs the mayfly binary for tests: starts it, kills its workers, reads its run directory.

Uses only Python's standard library, so that it runs wherever the project builds.
"""
import atexit
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77  # the exit code that means "skipped" to CTest
BINARY = os.environ.get("MAYFLY_TEST_BINARY", "build/release/mayfly")

# Small enough for hundreds of runs, and large enough that random kills occur in every phase.
SMALL_JOB = ["--model", "resnet20", "--data", "procedural:512", "--global-batch", "16",
             "--microbatch", "4", "--lr", "0.05", "--seed", "7", "--no-evaluate",
             "--no-tensorboard", "--digest-every", "1",
             # On a machine busy with other tests a worker must not be evicted for silence.
             "--silence-max-ms", "2000"]


# For jobs whose provider lists a server as soon as it exists (engine/cloud/cloud_plan.hpp).
LISTS_ARE_EXACT = {"MAYFLY_TEST_LIST_SECONDS": "3"}


def lingering(*steps):
    """Arguments that slow a job down after each of `steps`: for up to 16 steps all workers sleep
    most of the time, a second or more in total. So a test that waits for one of `steps` can act
    before the job ends, even on a busy machine. The results have the same bits."""
    ends = [*steps[1:], steps[-1] + 16]
    rules = [f"slow=12x,from=step{step + 1},to=step{min(step + 16, end)}"
             for step, end in zip(steps, ends)]
    return ["--inject", ";".join(rules)]


def look_again(began, least):
    """Sleeps before a loop checks its condition again: `least` seconds, or twice as long as the
    check that began at `began` took, if that is more. A check that starts a program thus leaves
    most of the processor to the job."""
    time.sleep(max(least, 2 * (time.monotonic() - began)))


class Failure(Exception):
    """An expectation of a test does not hold; the text describes it."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def workers_of(launcher_pid):
    """The pids of the launcher's living workers in ascending order, without sentinels and
    zombies."""
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                text = f.read()
            name = text[text.index("(") + 1:text.rindex(")")]
            state, parent = text[text.rindex(")") + 2:].split()[:2]
        except OSError:
            continue
        if int(parent) == launcher_pid and state != "Z" and "sentinel" not in name:
            pids.append(int(entry))
    return sorted(pids)


class Run:
    """One `mayfly train` in a fresh run directory, or a `mayfly run` of `program`."""

    def __init__(self, args, run_dir=None, timeout=300, program=()):
        self.folder = (os.path.dirname(run_dir) if run_dir
                       else tempfile.mkdtemp(prefix="mayfly-test-"))
        self.run_dir = run_dir or os.path.join(self.folder, "run")
        self.timeout = timeout
        self.output_path = os.path.join(self.folder, "output.txt")
        self.started = time.monotonic()
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(
                [BINARY, "run" if program else "train", "--run-dir", self.run_dir] + list(args) +
                (["--", *program] if program else []),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        atexit.register(self.stop_hard)  # a failed test leaves no job behind

    @classmethod
    def attach(cls, folder, process, timeout, output="output.txt"):
        """Wraps a run that the caller has started: `output` and run/ are in `folder`."""
        run = cls.__new__(cls)
        run.folder, run.process, run.timeout = folder, process, timeout
        run.run_dir = os.path.join(folder, "run")
        run.output_path = os.path.join(folder, output)
        run.started = time.monotonic()
        atexit.register(run.stop_hard)
        return run

    def path(self, *parts):
        return os.path.join(self.run_dir, *parts)

    def output(self):
        with open(self.output_path, errors="replace") as f:
            return f.read()

    def wait(self):
        """Returns the exit code. Fails with the run's logs if the run exceeds its timeout."""
        left = self.timeout - (time.monotonic() - self.started)
        try:
            return self.process.wait(timeout=max(left, 1))
        except subprocess.TimeoutExpired:
            text = self.logs()
            self.stop_hard()
            raise Failure(f"still running after {self.timeout} s in {self.run_dir}\n{text}")

    def stop_hard(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def logs(self, tail=25):
        text = "--- output\n" + "\n".join(self.output().splitlines()[-tail:])
        for name in sorted(glob.glob(self.path("logs", "*"))):
            try:
                with open(name, errors="replace") as f:
                    lines = f.read().splitlines()[-tail:]
            except FileNotFoundError:  # old logs are pruned while a job runs
                continue
            text += f"\n--- {os.path.basename(name)}\n" + "\n".join(lines)
        return text

    def finish(self):
        """Waits for success and returns the summary."""
        code = self.wait()
        if code != 0:
            raise Failure(f"exit code {code}\n{self.logs()}")
        return self.summary()

    def summary(self):
        with open(self.path("summary.json")) as f:
            return json.load(f)

    def lines(self, name):
        try:
            with open(self.path(name)) as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def metrics(self):
        return [m for m in self.lines("metrics.jsonl") if is_step(m)]

    def last_steps(self):
        """Yields recorded steps, newest first. Reads only the end of the file, so it may yield few
        or none."""
        tail_bytes = 16384
        try:
            with open(self.path("metrics.jsonl"), "rb") as f:
                size = os.path.getsize(f.name)
                f.seek(max(0, size - tail_bytes))
                lines = f.read().splitlines(keepends=True)
        except OSError:
            return
        whole = lines if size <= tail_bytes else lines[1:]
        found = (json.loads(line) for line in reversed(whole) if line.endswith(b"\n"))
        yield from (m for m in found if is_step(m))

    def last_step(self):
        return next((m["step"] for m in self.last_steps()), 0)

    def last_members(self):
        """The number of members that committed the last recorded step."""
        return next((m["members"] for m in self.last_steps() if "members" in m), 0)

    def events(self, kind):
        return [event for event in self.lines("events.jsonl") if event.get("kind") == kind]

    def wait_for(self, what, is_true):
        """Waits until is_true() holds; fails if the job ends before. `what` names it in errors."""
        end = time.monotonic() + self.timeout
        began = time.monotonic()
        while not is_true():
            expect(time.monotonic() < end and self.process.poll() is None,
                   f"waited for {what}\n{self.logs()}")
            look_again(began, 0.05)
            began = time.monotonic()

    def wait_for_step(self, step):
        while True:
            has_ended = self.process.poll() is not None  # read first: the job may end meanwhile
            if self.last_step() >= step:
                return
            if has_ended:
                raise Failure(f"ended before step {step}\n{self.logs()}")
            if time.monotonic() - self.started > self.timeout:
                text = self.logs()
                self.stop_hard()
                raise Failure(f"step {step} not reached in {self.timeout} s\n{text}")
            time.sleep(0.005)

    def worker_pids(self):
        return workers_of(self.process.pid)

    def command(self, *args):
        return subprocess.run([BINARY] + list(args) + ["--run-dir", self.run_dir],
                              capture_output=True, text=True, timeout=30)

    def remove(self):
        self.stop_hard()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_step(record):
    """Whether a record of metrics.jsonl describes a step."""
    return "loss" in record and "sample_hash" in record


def digests(run):
    """The digest of the state after each step that was recorded with one."""
    return {m["step"]: m["digest"] for m in run.metrics() if m.get("digest")}


def train(args, **options):
    """Runs a job to its end; returns (summary, digests by step). Removes its files on success."""
    run = Run(args, **options)
    summary = run.finish()
    by_step = digests(run)
    run.remove()
    return summary, by_step


def expect_refused(job, cases):
    """Expects that the job is refused with the arguments of each of `cases`, (arguments, words):
    with exit code 2 and one line that contains the words."""
    for args, words in cases:
        run = Run(job + args)
        expect(run.wait() == 2, f"{args}: not refused")
        lines = run.output().strip().splitlines()
        expect(len(lines) == 1 and words in lines[0], f"{args}: said {lines} instead of '{words}'")
        run.remove()


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def play_seeds(play, count, name):
    """Plays the seeds that the environment names, or `count` of them. `play(seed)` returns how
    often the membership changed, or raises Failure. Prints each failure and a summary; returns the
    exit code."""
    changes, failed, played = 0, 0, 0
    for seed in seeds(count):
        played += 1
        try:
            changes += play(seed)
        except Failure as failure:
            failed += 1
            print(f"FAILED {failure}", flush=True)
    print(f"{played - failed} of {played} random schedules ({name}) gave the oracle's bits, "
          f"{changes} changes of membership")
    return 1 if failed else 0


def main(tests):
    """Runs the tests named on the command line, or all; prints a line for each; returns the exit
    code."""
    names = sys.argv[1:] or list(tests)
    failed = 0
    for name in names:
        begin = time.monotonic()
        try:
            tests[name]()
            print(f"ok     {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAILED {name}: {failure}", flush=True)
    return 1 if failed else 0


def seeds(default_count, first=1):
    """The seeds of random schedules. MAYFLY_TEST_SEEDS=COUNT or FIRST:COUNT selects others."""
    text = os.environ.get("MAYFLY_TEST_SEEDS", "")
    if ":" in text:
        first, count = (int(part) for part in text.split(":"))
        return range(first, first + count)
    return range(first, first + (int(text) if text else default_count))


def rng(seed):
    return random.Random(f"mayfly {seed}")
