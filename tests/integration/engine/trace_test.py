"""Goal: --trace writes a file that Perfetto can open: strict JSON, nested spans, one process per
member, also when a worker is killed. Tracing does not change the result.
Method: two workers, one of which is killed, and one that joins. The spans of every lane must nest
like brackets; the spans of a step must agree with each other.
"""
import collections
import json
import os

import mayfly_run
from mayfly_run import SMALL_JOB, Run, digests, expect

TOLERANCE_US = 0.002  # times are printed with three digits
JOB = SMALL_JOB + ["--steps", "30", "--threads", "1"]
# Long enough for a joiner to train in it, also on a busy machine.
LONG_JOB = SMALL_JOB + ["--steps", "80", "--threads", "1"]


def check_nesting(lane, spans):
    open_until = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_until and open_until[-1] <= span["ts"] + TOLERANCE_US:
            open_until.pop()
        end = span["ts"] + span["dur"]
        expect(not open_until or end <= open_until[-1] + TOLERANCE_US,
               f"{span} in lane {lane} ends after what contains it")
        open_until.append(end)


def lanes_of(events):
    """Spans by lane name of each member."""
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    lanes = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], named[event["pid"], event["tid"]]].append(event)
    return lanes


def check_member(member, lanes):
    for name in ("trainer", "compute 0", "communication"):
        expect((member, name) in lanes, f"member {member} has no lane '{name}'")
    seen = {span["name"] for (pid, _), spans in lanes.items() if pid == member for span in spans}
    for name in ("form view", "state sync", "step", "data wait", "forward", "backward",
                 "add to sums", "wait for compute", "start all-reduce", "all-reduce",
                 "all-reduce signals", "wait for all-reduce", "commit"):
        expect(name in seen, f"member {member} has no span '{name}' among {sorted(seen)}")


def train_traced(args):
    run = Run(LONG_JOB + ["--trace", "auto"] + args)
    run.finish()
    with open(run.path("trace.json")) as f:
        events = json.load(f)
    return run, events


def traced():
    _, reference = mayfly_run.train(LONG_JOB + ["--workers", "1"])
    run, events = train_traced(["--workers", "2", "--chaos", "kill@step=10:worker=1,join@step=15",
                                "--trace-steps", "0:6"])
    expect(digests(run) == reference, "a traced job has other bits")
    lanes = lanes_of(events)
    members = {pid for pid, _ in lanes}
    expect(len(members) == 3, f"members {members} left a trace, not three")
    for lane, spans in lanes.items():
        check_nesting(lane, spans)
    survivor = min(members)
    check_member(survivor, lanes)
    steps = {span["args"]["step"] for span in lanes[survivor, "trainer"] if span["name"] == "step"}
    expect(steps >= set(range(1, 7)) and len(steps) < 30, f"steps in the trace: {sorted(steps)}")
    run.remove()


def window():
    """Only the requested steps are recorded, in a file of the user's choice."""
    folder = mayfly_run.tempfile.mkdtemp(prefix="mayfly-test-")
    path = os.path.join(folder, "chosen.json")
    mayfly_run.train(JOB + ["--workers", "1", "--trace", path, "--trace-steps", "3:5"])
    with open(path) as f:
        events = json.load(f)
    steps = sorted(e["args"]["step"] for e in events if e["name"] == "commit")
    expect(steps == [4, 5], f"traced steps {steps}, not 4 and 5")
    mayfly_run.shutil.rmtree(folder)


def refused():
    """A --trace-steps that is not a range of steps is refused before the job starts."""
    for value in ("5", "7:3", "a:b"):
        done = mayfly_run.subprocess.run(
            [mayfly_run.BINARY, "train", "--trace", "auto", "--trace-steps", value],
            capture_output=True, text=True, timeout=30)
        expect(done.returncode == 2 and "trace_steps" in done.stderr,
               f"--trace-steps {value}: {done.returncode} {done.stderr}")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main(
        {"traced": traced, "window": window, "refused": refused}))
