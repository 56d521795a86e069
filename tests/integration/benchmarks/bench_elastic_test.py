"""Goal: the benchmarks of elasticity measure what their arguments request and leave no processes
or files behind.
Method: tiny runs of each; their JSON lines, exit codes, processes and folders are checked from
outside. No time is checked.
"""
import json
import os
import subprocess
import tempfile
import time

import mayfly_run
from mayfly_run import expect

SMALL = ["--json", "--data", "procedural:512", "--global-batch", "16", "--microbatch", "4",
         "--silence-max-ms", "2000"]


def bench(words, code=0):
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as scratch:
        done = subprocess.run([mayfly_run.BINARY, "bench"] + words + SMALL, capture_output=True,
                              text=True, timeout=200, env={**os.environ, "TMPDIR": scratch})
        expect(done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stderr}")
        expect(os.listdir(scratch) == [], f"{words} left {os.listdir(scratch)} behind")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line for line in lines if line["kind"] == "event"], lines[-1], done.stderr


def in_order(event, names):
    times = [event[name] for name in names]
    expect(times == sorted(times), f"not in this order: {names}: {times}")


PHASES = ["detected_ms", "told_ms", "stopped_ms", "formed_ms", "synced_ms", "step_ms"]


def recovery():
    events, summary, _ = bench(["recovery", "--workers", "3", "--events", "3", "--resident-mib",
                                "64"])
    expect(len(events) == 3 and summary["events"] == 3, f"{len(events)} events")
    for event in events:
        in_order(event, PHASES)
        beyond = event["step_ms"] - event["still_needed_ms"] - event["redo_ms"]
        expect(abs(event["beyond_ms"] - beyond) < 0.01, f"beyond: {event}")
    expect(summary["resident_mib"] == 64 and summary["microbatch_ms"] > 0, str(summary))
    expect(summary["undisturbed_step_ms"] > 0, str(summary))


def recovery_stop():
    events, _, _ = bench(["recovery", "--workers", "3", "--events", "2", "--fault", "stop"])
    for event in events:
        in_order(event, PHASES)
        expect(event["detected_ms"] > 50, "a stopped process was noticed before it was silent")


def recovery_vanish():
    events, _, err = bench(["recovery", "--workers", "3", "--events", "2", "--fault", "vanish"])
    if "skipped" in err:
        print(err.strip())
        return
    expect(len(events) == 2, f"{len(events)} events")
    left = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout
    expect("mf" not in [line[:2] for line in left.splitlines()], f"left behind: {left}")


def join():
    events, summary, _ = bench(["join", "--workers", "2", "--events", "2"])
    for event in events:
        in_order(event, ["connected_ms", "ready_ms", "admitted_ms", "caught_up_ms", "step_ms"])
        for cost in ["incumbents_cost_ms", "cost_before_ms", "steady_cost_ms"]:
            expect(cost in event, str(event))
    expect(summary["undisturbed_step_with_joiner_ms"] > 0, str(summary))


def cores_of(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(line.split()[1] for line in f if line.startswith("Cpus_allowed_list"))


def join_own_core():
    """The joining worker has the last core for itself."""
    cores = sorted(os.sched_getaffinity(0))
    words = ["bench", "join", "--workers", "2", "--events", "1", "--own-core"] + SMALL
    if len(cores) < 2:
        done = subprocess.run([mayfly_run.BINARY] + words, capture_output=True, text=True)
        expect(done.returncode == 2 and "--own-core" in done.stderr, done.stderr)
        return
    seen = set()
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as scratch:
        bench_process = subprocess.Popen([mayfly_run.BINARY] + words, stdout=subprocess.PIPE,
                                         text=True, env={**os.environ, "TMPDIR": scratch})
        while bench_process.poll() is None:
            for pid in mayfly_run.workers_of(bench_process.pid):
                try:
                    seen.add(cores_of(pid))
                except (OSError, StopIteration):
                    pass  # the process has just ended
            time.sleep(0.02)
        summary = json.loads(bench_process.stdout.read().splitlines()[-1])
    expect(bench_process.returncode == 0 and summary["own_core"] is True, str(summary))
    expect(str(cores[-1]) in seen and len(seen) == 2, f"cores {seen} of {cores}")


def drain():
    events, _, _ = bench(["drain", "--workers", "3", "--events", "2"])
    for event in events:
        expect(event["redone_microbatches"] == 0, "something was computed again")
        in_order(event, ["told_ms", "stopped_ms", "formed_ms", "step_ms"])


def detect():
    events, _, _ = bench(["detect", "--workers", "3", "--events", "2"])
    for event in events:
        in_order(event, ["detected_ms", "told_ms", "stopped_ms"])
    events, _, _ = bench(["detect", "--workers", "3", "--events", "1", "--fault", "hang"])
    in_order(events[0], ["reported_ms", "detected_ms", "told_ms", "stopped_ms"])


def detect_busy():
    _, summary, _ = bench(["detect", "--workers", "2", "--oversubscribe", "2", "--minutes", "0.05"])
    expect(summary["false_evictions"] == 0 and summary["steps"] > 0, str(summary))


def goodput():
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
        trace.write("0,add,a\n0,add,b\n0,add,c\n60000,remove,b\n240000,add,d\n480000,remove,a\n")
        trace.flush()
        _, summary, _ = bench(["goodput", "--trace", trace.name, "--speedup", "60",
                               "--nodes-max", "3"])
    expect(summary["losses"] == 2, f"losses: {summary}")
    expect(summary["moments_played"] == 3 and summary["trace_moments"] == 3, str(summary))
    expect(0 < summary["goodput_as_played"] < 1.5, str(summary))
    measured = all(summary[f"{kind}_unmeasured"] < summary[kind] for kind in ("losses", "joins"))
    expect(0 < summary["goodput_natural"] <= 1 if measured else summary["goodput_natural"] is None,
           str(summary))
    _, summary, _ = bench(["goodput", "--workers", "3", "--kill-every", "3", "--minutes", "0.15"])
    expect(summary["digests_equal"] is True and summary["digest_compared_at_step"] > 0,
           str(summary))
    expect(summary["kills"] >= 2, str(summary))


def bad_trace():
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
        trace.write("0,add,a\n5,vanish,a\n")
        trace.flush()
        done = subprocess.run([mayfly_run.BINARY, "bench", "goodput", "--trace", trace.name],
                              capture_output=True, text=True, timeout=60)
    expect(done.returncode == 2, f"exit code {done.returncode}")
    expect("line 2: 'vanish' is neither add nor remove" in done.stderr, done.stderr)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "recovery": recovery, "recovery_stop": recovery_stop, "recovery_vanish": recovery_vanish,
        "join": join, "join_own_core": join_own_core, "drain": drain, "detect": detect,
        "detect_busy": detect_busy, "goodput": goodput, "bad_trace": bad_trace}))
