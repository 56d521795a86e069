"""Goal: a user's own program trains on several hosts with separate disks, and a power cut of a host
changes no bit.
Method: the coordinator runs on h0. The other hosts have only the C example, the library, the
program mayfly for the sentinel, and the job's token. A host is switched off, and later on again.
In other cases the hosts have nothing, and `mayfly run --hosts` copies all this and the user's
folder to them.
"""
import glob
import os
import shutil
import subprocess
import sys
import time

import lab_of_hosts
import mayfly_run
from mayfly_run import Run, expect
from ssh_test import PROGRAM, lab_with_program, lose_a_host, nothing_is_left

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINEAR = os.environ.get("MAYFLY_TEST_LINEAR", "build/release/example-linear")
STEPS = "30000"
SETTINGS = ["--no-tensorboard", "--digest-every", "1000", "--silence-max-ms", "3000"]


def undisturbed():
    run = Run(SETTINGS + ["--workers", "1"], program=[LINEAR, STEPS])
    digest = run.finish()["final_digest"]
    run.remove()
    return digest


class RunOnFirst(Run):
    """Runs a mayfly command on h0 of the lab, with a run directory on that host."""

    def __init__(self, lab, command, *more):
        self.lab = lab
        self.folder = lab.disk(0, "root")
        self.run_dir = os.path.join(self.folder, "run")
        self.output_path = os.path.join(self.folder, "output.txt")
        self.timeout = 200
        self.started = time.monotonic()
        self.process = lab.start(0, [PROGRAM, command, "--run-dir", "run", *SETTINGS, *more],
                                 self.output_path)


class ProgramRun(RunOnFirst):
    """Runs `mayfly coordinator --model program`; the test starts the programs itself."""

    def __init__(self, lab, workers):
        super().__init__(lab, "coordinator", "--model", "program", "--workers", str(workers))
        self.wait_for("its address", lambda: os.path.exists(self.path("coordinator")))

    def begin_program(self, host):
        library = os.path.join(os.path.dirname(mayfly_run.BINARY), "libmayfly.so.0")
        home = self.lab.disk(host, "root")
        if not os.path.exists(os.path.join(home, "linear")):
            shutil.copytree(self.lab.disk(0, "root/mayfly"), os.path.join(home, "mayfly"))
            shutil.copy(LINEAR, os.path.join(home, "linear"))
            shutil.copy(library, home)
            shutil.copy(self.path("token"), home)
        with open(self.path("coordinator"), encoding="utf-8") as file:
            endpoint = file.read().strip()
        return self.lab.start(host, ["env", "LD_LIBRARY_PATH=/root", f"MAYFLY_PROGRAM={PROGRAM}",
                                     f"MAYFLY_COORDINATOR={endpoint}", "MAYFLY_TOKEN_FILE=token",
                                     "MAYFLY_RUN_DIR=own", "/root/linear", STEPS],
                              os.path.join(home, "program.txt"))


def power_cut():
    digest = undisturbed()
    lab = lab_with_program(4)
    run = ProgramRun(lab, 3)
    programs = [run.begin_program(host) for host in (1, 2, 3)]
    run.wait_for_step(2000)
    lab.power_off(2)
    run.wait_for("its loss", lambda: run.events("lost"))
    lab.power_on(2)
    again = run.begin_program(2)
    code = run.wait()
    summary = run.summary()
    expect(code == 0 and summary["final_digest"] == digest, f"{code} {summary}\n{run.logs()}")
    expect(summary["samples"] == int(STEPS) * 32, summary)
    expect(programs[0].wait(30) == 0 and programs[2].wait(30) == 0, run.logs())
    expect(again.wait(30) in (0, 2), "it may have come when the job was over")
    shown = lab.run(0, [PROGRAM, "digest", "run"])
    expect(shown[0] == 0 and digest in shown[1], f"the weights are not at home: {shown}")


def run_on(lab, names, command, *more):
    """Runs `mayfly run --hosts` for a user whose program is in a folder of the home directory."""
    return RunOnFirst(lab, "run", "--hosts", names, "--program-dir", "mine", *more, "--", *command)


def lab_with_folder(hosts, *files):
    lab = lab_with_program(hosts)
    os.mkdir(lab.disk(0, "root/mine"))
    for file in files:
        shutil.copy(file, lab.disk(0, "root/mine"))
    return lab


def ends_well(run, lab, digest):
    code = run.wait()
    expect(code == 0 and run.summary()["final_digest"] == digest,
           f"{code} {run.summary()}\n{run.logs()}")
    shown = lab.run(0, [PROGRAM, "digest", "run"])
    expect(shown[0] == 0 and digest in shown[1], f"the weights are not at home: {shown}")


def run_on_hosts():
    """One command starts the job. A host loses its power, and another one takes its place."""
    digest = undisturbed()
    lab = lab_with_folder(4, LINEAR)
    run = run_on(lab, "h1,h2,h3", ["./" + os.path.basename(LINEAR), STEPS], "--workers", "2")
    run.wait_for_step(2000)
    used = lose_a_host(lab, run)
    ends_well(run, lab, digest)
    expect(run.summary()["samples"] == int(STEPS) * 32, run.summary())
    nothing_is_left(lab, used)


def python_on_hosts():
    """The Python package is copied to the hosts, and the logs that are collected from them contain
    the program's output."""
    program = os.path.join(ROOT, "tests/integration/library/arrays_program.py")
    command = ["/usr/bin/python3", "arrays_program.py", "200"]
    if subprocess.run([command[0], "-c", "import numpy"], capture_output=True).returncode != 0:
        print("skipped: no NumPy (scripts/setup oracle)")
        sys.exit(mayfly_run.SKIP)
    alone = Run(SETTINGS + ["--workers", "1"], program=[command[0], program, command[2]])
    digest = alone.finish()["final_digest"]
    alone.remove()
    lab = lab_with_folder(3, program)
    run = run_on(lab, "h1,h2", command)
    ends_well(run, lab, digest)
    logs = glob.glob(run.path("logs/h*.log"))
    printed = [log for log in logs if "the program begins" in open(log, encoding="utf-8").read()]
    expect(len(printed) == 2, f"{logs}\n{run.logs()}")
    refused = run_on(lab, "h1,h2", ["python3", "absent.py"], "--program-dir", "yours")
    expect(refused.wait() == 2 and "yours is not a folder" in refused.output(), refused.output())


if __name__ == "__main__":
    if (reason := lab_of_hosts.reason_to_skip()) is not None:
        print(f"skipped: {reason}")
        sys.exit(mayfly_run.SKIP)
    sys.exit(mayfly_run.main({"power_cut": power_cut, "run_on_hosts": run_on_hosts,
                              "python_on_hosts": python_on_hosts}))
