"""Goal: the benchmarks of communication measure what their arguments request and leave no processes
or files behind.
Method: tiny runs of `mayfly bench allreduce` and `mayfly bench reform`; their JSON lines, exit
codes, processes and scratch folders are checked from outside. No time is checked.
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import mayfly_run
from mayfly_run import expect


class Scratch:
    """A folder for temporary files that the benchmark must leave empty."""

    def __init__(self, binary=mayfly_run.BINARY):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory(prefix="mayfly-test-")
        self.environment = {**os.environ, "TMPDIR": self.folder.name}

    def start(self, words):
        return subprocess.Popen([self.binary, "bench"] + words, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, words, code=0):
        process = self.start(words)
        out, err = process.communicate(timeout=200)
        expect(process.returncode == code,
               f"bench {' '.join(words)}: exit code {process.returncode}: {err}")
        self.expect_tidy(words)
        return out, err

    def expect_tidy(self, words):
        left = os.listdir(self.folder.name)
        expect(left == [], f"bench {' '.join(words)} left {left} behind")
        deadline = time.monotonic() + 20
        while (processes := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(not processes, f"bench {' '.join(words)} left processes behind: {processes}")

    def processes(self):
        """The command lines of processes that contain this folder's name."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    line = f.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.folder.name in line:
                found.append(line)
        return found


def lines_of(text, kind):
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["kind"] == kind]


def allreduce_reports_every_cell(kind):
    out, err = Scratch().run(["allreduce", "--ranks", "2", "--sizes", "4K,100K", "--backends",
                              "tcp,unix", "--peers", "poll", "--rounds", "1", "--type", kind,
                              "--json"])
    expect(err == "", f"nothing to complain of, but: {err}")
    machine, = lines_of(out, "machine")
    for field in ("processor", "cores", "commit", "mayfly", "load_average_before", "date"):
        expect(field in machine, f"the machine line lacks {field}")
    rounds, rows = lines_of(out, "round"), lines_of(out, "row")
    cells = {(row["contestant"], row["bytes"]) for row in rows}
    expect(cells == {(name, size) for name in ("mayfly-tcp", "mayfly-unix", "poll")
                     for size in (4096, 102400)}, f"the cells are {cells}")
    expect(len(rounds) == len(rows) == 6, f"{len(rounds)} rounds and {len(rows)} rows")
    for row in rows:
        expect(row["ranks"] == 2 and row["type"] == kind and row["rounds"] == 1, f"row {row}")
        expect(row["peer"] == (row["contestant"] == "poll"), f"row {row}")
        expect(0 < row["min_ms"] <= row["p10_ms"] <= row["median_ms"] <= row["p90_ms"],
               f"times out of order: {row}")
        expect(row["best_peer"] == "poll" and row["ratio_to_best_peer"] > 0, f"row {row}")
        close = abs(row["bytes"] / row["median_ms"] / 1e6 - row["algorithm_gbps"])
        expect(close < 0.01 * row["algorithm_gbps"] + 1e-3, f"bandwidth of {row}")
        expect(abs(row["bus_gbps"] - row["algorithm_gbps"]) < 1e-3, "2 (n - 1) / n is 1 for two")


def gloo_is_measured_where_it_is_built():
    """Gloo, whose ranks exchange their addresses through the driver's store."""
    if not os.path.exists(os.path.join(os.path.dirname(mayfly_run.BINARY), "mayfly-peer-gloo")):
        print("no Gloo: its ranks are not tried")
        return
    out, _ = Scratch().run(["allreduce", "--ranks", "3", "--sizes", "4K", "--backends", "gloo",
                            "--peers", "gloo", "--rounds", "1", "--json"])
    names = {row["contestant"] for row in lines_of(out, "row")}
    expect(names == {"mayfly-gloo", "gloo"}, f"measured {names}")
    reform_reports_both_kinds_of_change("gloo")


def file_has_the_same_lines():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.jsonl")
        out, _ = Scratch().run(["allreduce", "--ranks", "3", "--sizes", "4K", "--backends", "tcp",
                                "--peers", "none", "--rounds", "2", "--out", path])
        with open(path) as f:
            text = f.read()
    expect("mayfly-tcp" in out and "alg GB/s" in out, f"not a table: {out}")
    row, = lines_of(text, "row")
    expect(row["best_peer"] is None and row["rounds"] == 2, f"row {row}")


def interrupted_bench_leaves_nothing():
    scratch = Scratch()
    words = ["allreduce", "--ranks", "2", "--sizes", "1M", "--backends", "tcp,unix", "--peers",
             "none", "--rounds", "1000"]
    process = scratch.start(words)
    deadline = time.monotonic() + 60
    while len(scratch.processes()) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    expect(process.returncode == 1 and out == "", f"code {process.returncode}, output {out}")
    expect(err.strip() == "mayfly: interrupted", f"it said: {err}")
    scratch.expect_tidy(words)


def killed_driver_takes_its_ranks_along():
    scratch = Scratch()
    process = scratch.start(["reform", "--ranks", "3", "--kills", "100000"])
    deadline = time.monotonic() + 60
    while len(scratch.processes()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while scratch.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(not scratch.processes(), f"left behind: {scratch.processes()}")


# A peer that follows the protocol, but for the statement that replaces LIE.
PEER = """#!/usr/bin/env python3
import socket, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
control = socket.socket(socket.AF_UNIX)
control.connect(words["--control"])
lines = control.makefile("rw")
def ask(line):
    print(line, file=lines, flush=True)
    return lines.readline()
ask("hello " + words["--name"] + " -1")
ask("address -")
order = ask("ready")
while order.startswith("cell"):
    LIE
    order = ask("times" + " 1000" * int(order.split()[3]))
"""


def broken_peer_is_a_line_and_the_others_are_measured():
    """A broken or missing peer is reported in one line, and the other measurements go on. A copy of
    the program looks for its peers in a folder of the test."""
    lies = {"print('all is lost'); sys.exit(3)": "poll: a rank process ended",
            "ask('failed diverged wrong sum: element 7 of 1024')": "poll: wrong sum: element 7",
            "ask('times 1 2')": "poll: a rank measured another number of times"}
    words = ["allreduce", "--ranks", "2", "--sizes", "4K", "--backends", "tcp", "--rounds", "1",
             "--json"]
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "mayfly")
        for program in ("", "-bench"):
            shutil.copy(mayfly_run.BINARY + program, binary + program)
        _, err = Scratch(binary).run(words + ["--peers", "poll,gloo"], code=1)
        expect("left out: poll: there is no " + folder in err, f"it said: {err}")
        out, err = Scratch(binary).run(words)  # without --peers
        expect(lines_of(out, "row")[0]["best_peer"] is None, f"rows: {out}")
        expect("left out: poll" in err, f"it said: {err}")
        for lie, complaint in lies.items():
            peer = os.path.join(folder, "mayfly-peer-poll")
            with open(peer, "w") as f:
                f.write(PEER.replace("LIE", lie))
            os.chmod(peer, 0o700)
            out, err = Scratch(binary).run(words + ["--peers", "poll"], code=1)
            expect(complaint in err and err.count("\n") == 1, f"{lie}: it said: {err}")
            measured = [row["contestant"] for row in lines_of(out, "row")]
            expect(measured == ["mayfly-tcp"], f"{lie}: measured {measured}")


def reform_reports_both_kinds_of_change(backend):
    out, _ = Scratch().run(["reform", "--ranks", "3", "--kills", "3", "--backend", backend,
                            "--json"])
    trials, rows = lines_of(out, "trial"), lines_of(out, "row")
    expect([t["change"] for t in trials] == ["planned", "loss"] * 3, f"the trials are {trials}")
    for trial in trials:
        times = [trial[f"{phase}_ms"] for phase in ("heard", "stopped", "formed", "sum", "known")]
        expect(times == sorted(times) and times[0] >= 0, f"phases out of order: {trial}")
    expect([(row["change"], row["backend"], row["ranks"], row["trials"]) for row in rows] ==
           [("loss", backend, 3, 3), ("planned", backend, 3, 3)], f"the rows are {rows}")


def bench_allreduce():
    allreduce_reports_every_cell("fp32")
    allreduce_reports_every_cell("int32")
    gloo_is_measured_where_it_is_built()
    file_has_the_same_lines()
    broken_peer_is_a_line_and_the_others_are_measured()
    interrupted_bench_leaves_nothing()


def bench_reform():
    reform_reports_both_kinds_of_change("unix")
    reform_reports_both_kinds_of_change("tcp")
    killed_driver_takes_its_ranks_along()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"allreduce": bench_allreduce, "reform": bench_reform}))
