"""Goal: for a user's own program, trained through the library, the promises of the built-in
networks hold: the same bits for any number of workers and any losses, joins and leaves, each sample
once, checkpoints that another number of workers can resume, and refusals in one line.
Method: the C example, and NumPy and PyTorch programs, under `mayfly run` and alone.
"""
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mayfly_run
import mpi_launch
from mayfly_run import Run, expect

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "..", "..", "..", "library", "python")
LINEAR = os.environ.get("MAYFLY_TEST_LINEAR", "build/release/example-linear")
PYTHON = "/usr/bin/python3"  # the one that has NumPy and PyTorch
QUIET = ["--no-tensorboard", "--digest-every", "1", "--silence-max-ms", "2000"]
os.environ["PYTHONPATH"] = PACKAGE


@functools.cache
def python_with(module):
    """Whether Python has the module; does not load it, which takes seconds for PyTorch."""
    look = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{module}'))"
    found = subprocess.run([PYTHON, "-c", look], capture_output=True, check=False)
    if found.returncode != 0:
        print(f"{PYTHON} has no {module}")
        sys.exit(mayfly_run.SKIP)


def trained(program, workers, args=(), chaos=""):
    """Runs a job to its end; returns (summary, digests, sample hashes, run)."""
    run = Run(QUIET + ["--workers", str(workers), *args] + (["--chaos", chaos] if chaos else []),
              program=program, timeout=120)
    summary = run.finish()
    hashes = {m["step"]: m["sample_hash"] for m in run.metrics()}
    return summary, mayfly_run.digests(run), hashes, run


# For three workers: with two of them the job waits for a third one.
WAITING = ["--min-workers", "3", "--min-workers-timeout", "60"]


def changes(*steps):
    """After each of the steps a worker is killed or told to leave, in turn, and another one joins.
    Workers are named, because one that leaves may still run when the next one is chosen."""
    return ",".join(f"{'drain' if i % 2 else 'kill'}@step={step}:worker={i},join@step={step}"
                    for i, step in enumerate(steps))


def expect_same_bits(program, *steps):
    """Expects the bits of one worker for two workers, and for three with changes of membership
    after the `steps`. The job waits for a third worker, so each joining one gets the state."""
    alone = trained(program, 1)
    for workers, plan, args in ((2, "", []), (3, changes(*steps), WAITING)):
        summary, digests, hashes, run = trained(program, workers, args, plan)
        expect(digests == alone[1], f"{workers} workers, {plan}: other bits\n{run.logs()}")
        expect(hashes == alone[2], f"{workers} workers, {plan}: other samples")
        if plan:
            gone = len(run.events("lost")) + len(run.events("left"))
            came = len(run.events("joined")) - workers
            expect(gone >= len(steps) and came == len(steps), f"{gone}, {came}\n{run.logs()}")
        # A worker that takes a state wrongly is evicted, and the bits of the job stay right.
        expect(not run.events("corrupted"), f"{plan}: a state was taken wrongly\n{run.logs()}")
        run.remove()
    alone[3].remove()


CHANGES = (40, 90, 130)


def c_program():
    expect_same_bits([LINEAR, "400"], *CHANGES)


def cpp_program():
    expect_same_bits([LINEAR + "-cpp", "400"], *CHANGES)


def audited():
    """A second worker also computes every third step's microbatch, by the same loop: no bit of the
    job changes, and a program with other results each time is detected in the first step."""
    python_with("torch")
    program = [PYTHON, "-B", os.path.join(HERE, "torch_program.py"), "cnn", "12"]
    plain = trained(program, 2)
    summary, digests, _, run = trained(program, 2, ["--audit-every", "3"])
    expect(digests == plain[1], f"{summary}\n{run.logs()}")
    plain[3].remove()
    run.remove()
    wrong = Run(QUIET + ["--workers", "2", "--audit-every", "1"], timeout=120,
                program=[*program[:-2], "unchecked", "12"])
    code = wrong.wait()
    expect(code == 1 and "different results for a microbatch of step 1" in wrong.output(),
           f"{code}\n{wrong.logs()}")
    wrong.remove()


def arrays():
    python_with("numpy")
    expect_same_bits([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "200"], *CHANGES)


def sizes():
    python_with("numpy")
    run = trained([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "5", "sizes"], 1)[3]
    run.remove()


def many_tensors():
    """A model of 1,500 tensors, as large networks have. Its workers' description of the job was cut
    off after 32 KiB, and none of them was admitted."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "60", "many"]
    plain = trained(program, 1)
    _, digests, _, run = trained(program, 3, WAITING, changes(20))
    expect(digests == plain[1], run.logs())
    run.remove()
    plain[3].remove()


def own_metrics():
    """The program's own metrics are recorded: the same means for any number of workers."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "40"]
    seen = []
    for workers in (1, 3):
        run = trained(program, workers)[3]
        seen.append([{m["name"]: m["value"] for m in one["own"]} for one in run.metrics()])
        run.remove()
    expect(seen[0] == seen[1], f"{seen[0][:2]} {seen[1][:2]}")
    expect(all(one["samples"] == 4 for one in seen[0]), seen[0])
    expect(seen[0][-1]["error"] < 0.5 * seen[0][0]["error"], seen[0])


def resumed():
    """Stopped with two workers and resumed with three: the bits of a job that was not stopped."""
    program = [LINEAR, "100000"]
    run = Run(QUIET + ["--workers", "2", "--checkpoint-every", "50"], program=program)
    run.wait_for_step(120)
    run.process.terminate()
    code = run.wait()
    stopped = run.summary()
    expect(code == 3 and stopped["outcome"] == "stopped", f"{code} {stopped}\n{run.logs()}")
    steps = stopped["steps"]
    program = [LINEAR, str(steps + 200)]
    undisturbed = trained(program, 1)
    summary, digests, _, again = trained(program, 3, ["--resume", run.run_dir])
    expect(summary["final_digest"] == undisturbed[0]["final_digest"], f"{summary}\n{again.logs()}")
    expect(min(digests) == steps + 1, f"resumed after step {steps}: {min(digests)}")
    shown = subprocess.run([mayfly_run.BINARY, "digest", again.run_dir], capture_output=True,
                           text=True, timeout=60)
    expect(shown.stdout.strip() == summary["final_digest"], shown.stdout + shown.stderr)
    shown = subprocess.run([mayfly_run.BINARY, "eval", again.run_dir], capture_output=True,
                           text=True, timeout=60)
    expect(shown.returncode == 2 and "is of a program of its own" in shown.stderr, shown.stderr)
    for one in (run, undisturbed[3], again):
        one.remove()


def coordinator_restarted():
    """Programs on other machines, as far as they know, train on while they have no coordinator."""
    program = [LINEAR, "16000"]
    undisturbed = trained(program, 1, ["--digest-every", "1000"])
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    place = os.path.join(run_dir, "coordinator")

    def begin_coordinator(*args):
        with open(os.path.join(folder, "output.txt"), "ab") as output:
            return subprocess.Popen([mayfly_run.BINARY, "coordinator", "--run-dir", run_dir,
                                     *QUIET, "--digest-every", "1000", *args],
                                    stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.STDOUT)

    def begin_program(name):
        with open(place, encoding="utf-8") as file:
            endpoint = file.read().strip()
        own = {**os.environ, "MAYFLY_COORDINATOR": endpoint,
               "MAYFLY_TOKEN_FILE": os.path.join(run_dir, "token"),
               "MAYFLY_RUN_DIR": os.path.join(folder, name)}
        with open(os.path.join(folder, name + ".txt"), "wb") as output:
            return subprocess.Popen(program, env=own, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.STDOUT)

    process = begin_coordinator("--model", "program", "--workers", "2", "--bind-host", "127.0.0.1")
    run = Run.attach(folder, process, 120)
    run.wait_for("the coordinator", lambda: os.path.exists(place))
    programs = [begin_program(name) for name in ("first", "second")]
    run.wait_for_step(500)
    process.kill()
    process.wait()
    run.process = begin_coordinator()
    run.wait_for("its return", lambda: run.events("coordinator_restarted"))
    programs.append(begin_program("third"))
    summary = run.finish()
    expect(summary["final_digest"] == undisturbed[0]["final_digest"], f"{summary}\n{run.logs()}")
    expect(summary["samples"] == 16000 * 32, summary)
    codes = [one.wait(60) for one in programs]
    expect(codes[:2] == [0, 0], f"{codes}")  # the third may come when the job is over
    run.remove()
    undisturbed[3].remove()


def under_mpirun():
    """Each rank of `mpirun mayfly run` is a worker, and the loss of one is like any other."""
    mpi_launch.skip_without_mpirun()
    undisturbed = trained([LINEAR, "4000"], 1)
    run = mpi_launch.start(3, QUIET, program=[LINEAR, "4000"])
    run.wait_for_step(500)
    mpi_launch.kill_rank(run, 2)  # its program goes with it
    run.wait()
    expect(run.summary()["final_digest"] == undisturbed[0]["final_digest"], run.logs())
    expect(len(run.events("lost")) == 1, run.logs())
    run.remove()
    run = mpi_launch.start(3, QUIET, program=[LINEAR, "4000"])
    run.wait_for_step(500)
    os.kill(mpi_launch.pid_of_rank(run.process, 2), signal.SIGINT)  # as Ctrl-C at srun
    run.wait()
    expect(run.summary()["final_digest"] == undisturbed[0]["final_digest"], run.logs())
    expect(len(run.events("left")) == 1 and not run.events("lost"), run.logs())
    run.remove()
    undisturbed[3].remove()


def environment_alone(**more):
    """The environment of a program that was not started as a worker."""
    binary = os.path.abspath(mayfly_run.BINARY)
    return {**os.environ, "MAYFLY_PROGRAM": binary, "MAYFLY_LIBRARY": os.path.join(
        os.path.dirname(binary), "libmayfly.so.0"), **more}


def begin_alone(folder, *args, program="arrays_program.py", **more):
    return subprocess.Popen([PYTHON, "-B", os.path.join(HERE, program), *args], cwd=folder,
                            env=environment_alone(**more), stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def alone():
    """A program that was not started as a worker begins a job of its own."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    done = subprocess.run([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100"],
                          cwd=folder, env=environment_alone(), capture_output=True, text=True,
                          timeout=120)
    expect(done.returncode == 0 and "Outcome.DONE" in done.stdout, done.stdout + done.stderr)
    runs = os.listdir(os.path.join(folder, "runs"))
    expect(len(runs) == 1 and runs[0].startswith("arrays_program-"), runs)
    shutil.rmtree(folder)


def processes_with(word):
    """The ids of the processes that have `word` in their command."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


def expect_gone(word, within, text):
    """No process has `word` in its command any more; ends those that have."""
    deadline = time.monotonic() + within
    while processes_with(word) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = processes_with(word)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    expect(not left, f"{left} still run after {within} s\n{text}")


def alone_refused():
    """A program that is refused, or ended before its loop, leaves no coordinator behind. It used to
    run for ever."""
    python_with("numpy")
    for args, code in ((["0"], 2), (["100", "inner"], 2), (["10", "waits"], -signal.SIGTERM)):
        folder = tempfile.mkdtemp(prefix="mayfly-test-")
        process = begin_alone(folder, *args, MAYFLY_RUN_DIR=os.path.join(folder, "run"))
        begun = process.stdout.readline() if "waits" in args else ""
        if begun:
            while "waits before its loop" not in begun:
                begun = process.stdout.readline()
            process.terminate()
        process.wait(60)
        expect_gone(folder, 2, args)  # it has the other end of the pipe
        expect(process.returncode == code, f"{args}: {process.returncode} {process.stdout.read()}")
        shutil.rmtree(folder)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    process = begin_alone(folder, "10", MAYFLY_PROGRAM="/bin/false")
    said = process.communicate(timeout=60)[0]
    expect(process.returncode == 2 and "has ended with exit code 1" in said,
           f"{process.returncode} {said}")
    expect(os.listdir(os.path.join(folder, "runs")) == [], said)
    slow = os.path.join(folder, "slow")
    with open(slow, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nsleep 60 &\ntrap "kill $!; exit" TERM\nsleep 0.5\n'
                   f'touch {folder}/begun\nwait\n')
    os.chmod(slow, 0o755)
    process = begin_alone(folder, "10", MAYFLY_PROGRAM=slow)  # its coordinator has not begun yet
    while process.poll() is None and not os.path.exists(os.path.join(folder, "begun")):
        time.sleep(0.05)
    process.terminate()
    process.wait(60)
    expect_gone(slow, 2, "the coordinator of a program that has ended")
    expect(process.returncode == -signal.SIGTERM, process.stdout.read())
    shutil.rmtree(os.path.join(folder, "runs"))
    own = os.path.join(folder, "runs", "own")
    os.makedirs(own)
    begin_alone(folder, "10", MAYFLY_PROGRAM="/bin/false", MAYFLY_RUN_DIR=own).communicate(
        timeout=60)
    expect(os.path.isdir(own), "a folder that was there before has been removed")
    shutil.rmtree(folder)
    unconnected = """if True:
        import signal, subprocess
        from mayfly import _alone, _core
        begun = []
        def begin():
            begun.append(subprocess.Popen(["sleep", "60"]))
            return begun[-1], {}
        def interrupt(coordinator):
            raise KeyboardInterrupt
        _alone.start_coordinator = begin
        try:
            _core.Core()
        except _core.Refused:
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            print("refused")
        _alone.EarlyEnd = interrupt  # Ctrl-C when the coordinator has just begun
        try:
            _core.Core()
        except KeyboardInterrupt:
            print(begun[-1].poll() == -signal.SIGTERM)"""
    done = subprocess.run([PYTHON, "-B", "-c", unconnected], env=environment_alone(), timeout=30,
                          capture_output=True, text=True)
    expect(done.stdout == "refused\nTrue\n", done.stdout + done.stderr)


def alone_resumed():
    """A program that is alone and cannot take the state that it resumes from ends with the reason.
    It used to wait for its own coordinator, which waited for a worker."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    first = begin_alone(folder, "30", MAYFLY_RUN_DIR=run_dir)
    said = first.communicate(timeout=60)[0]
    expect(first.returncode == 0, said)
    second = begin_alone(folder, "40", "wide", MAYFLY_RESUME=run_dir,
                         MAYFLY_RUN_DIR=os.path.join(folder, "again"))
    try:
        second.wait(60)
    except subprocess.TimeoutExpired:
        second.kill()
    expect_gone(folder, 2, "the coordinator of a program that has failed")
    said = second.stdout.read()
    expect(second.wait() not in (0, -signal.SIGKILL) and "bias: expected " in said,
           f"{second.returncode} {said}")
    shutil.rmtree(folder)


def alone_elsewhere():
    """A file named mayfly in the current folder is not run in place of the program."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    shutil.copy("/bin/false", os.path.join(folder, "mayfly"))
    own = {name: value for name, value in os.environ.items() if name != "MAYFLY_LIBRARY"}
    for more in ({}, {"MAYFLY_LIBRARY": "libmayfly.so.0"}):
        done = subprocess.run(
            [PYTHON, "-B", "-c", "from mayfly import _alone; print(_alone.find_program())"],
            cwd=folder, env={**own, **more}, capture_output=True, text=True, timeout=60)
        expect(done.stdout.strip() != os.path.join(folder, "mayfly"), done.stdout)
    shutil.rmtree(folder)


def alone_ends_early():
    """A program that is alone and leaves its loop, or raises in it, ends at once, and its job has a
    summary. It used to hang for ten seconds without output, and the job had no summary."""
    python_with("numpy")
    for how, code, words in (("breaks", 0, "mayfly: the program has ended before its loop"),
                             ("raises", 1, "ZeroDivisionError")):
        folder = tempfile.mkdtemp(prefix="mayfly-test-")
        run_dir = os.path.join(folder, "run")
        began = time.monotonic()
        process = begin_alone(folder, "1000", how, MAYFLY_RUN_DIR=run_dir,
                              MAYFLY_WORKER_NUMBER="1")
        process.wait(60)
        took = time.monotonic() - began
        expect_gone(folder, 10, how)
        said = process.stdout.read()
        expect(process.returncode == code and words in said and took < 8,
               f"{how}: {process.returncode} after {took:.1f} s\n{said}")
        expect(os.path.exists(os.path.join(run_dir, "summary.json")), f"{how}: {said}")
        with open(os.path.join(run_dir, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        expect(summary["outcome"] == "failed" and summary["steps"] >= 19,
               f"{how}: {summary}\n{said}")
        shutil.rmtree(folder)


def alone_again():
    """A program that is alone may have one job after the other, each with a coordinator. The second
    one used to look for the coordinator of the first, and to fail after a minute."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    said = begin_alone(folder, "20", "again").communicate(timeout=90)[0]
    runs = os.listdir(os.path.join(folder, "runs"))
    expect("again Outcome.DONE" in said and len(runs) == 2, f"{runs}\n{said}")
    shutil.rmtree(folder)


def alone_killed():
    """The coordinator of a program that is alone ends when that is killed, in its loop or before,
    unless it has other workers. It used to wait for one for ten minutes, or for ever."""
    python_with("numpy")
    for how, seen in (("", "step 1/"), ("waits", "the program waits before its loop")):
        folder = tempfile.mkdtemp(prefix="mayfly-test-")
        process = begin_alone(folder, "100000", how, MAYFLY_RUN_DIR=os.path.join(folder, "run"))
        said = ""
        while seen not in said and process.poll() is None:
            said += process.stdout.readline()
        process.kill()
        process.wait()
        expect_gone(folder, 5, said)
        expect(os.path.exists(os.path.join(folder, "run", "summary.json")), said)
        shutil.rmtree(folder)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    first = begin_alone(folder, "600", MAYFLY_RUN_DIR=run_dir)
    Run.attach(folder, first, 60).wait_for_step(5)
    with open(os.path.join(run_dir, "coordinator"), encoding="utf-8") as file:
        place = file.read().strip()
    second = begin_alone(folder, "600", MAYFLY_COORDINATOR=place,
                         MAYFLY_TOKEN_FILE=os.path.join(run_dir, "token"))
    said = second.stdout.readline()
    while joined_in(run_dir) < 2 and second.poll() is None:
        time.sleep(0.05)
    first.kill()
    said += second.communicate(timeout=60)[0]
    expect(second.returncode == 0 and "Outcome.DONE" in said, said)
    expect_gone(folder, 10, said)
    shutil.rmtree(folder)


def notebook():
    """A job whose loop has not begun can be closed and made anew. One whose loop is left by an
    exception, which nobody but the notebook sees, is over: its coordinator ends although the
    process goes on. It used to wait for the worker."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cells = """if True:
        import os, sys, time
        import mayfly, numpy
        sys.ps1, sys.argv[0] = "In : ", os.environ["NAME_OF_RUN"]
        weight = numpy.zeros(4, numpy.float32)
        def made():
            return mayfly.ArrayJob({"weight": weight}, samples=64, batch=16, steps=1000)
        job = made()
        try:
            made()
        except mayfly.Refused as error:
            print("refused:", error)
        job.close()
        job = made()
        try:
            for step in job.steps():
                for microbatch in step:
                    step.add({"weight": weight}, 1 / (step.number < 20))
        except ZeroDivisionError:
            print("failed", job.outcome, flush=True)
        job.close()
        try:
            made()
        except mayfly.Refused as error:
            print("refused:", error, flush=True)
        time.sleep(60)"""
    name = os.path.basename(folder)
    process = subprocess.Popen([PYTHON, "-B", "-c", cells], cwd=folder, text=True,
                               env=environment_alone(NAME_OF_RUN=name), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = ""
    while said.count("refused:") < 2 and process.poll() is None:
        said += process.stdout.readline()
    expect_gone(f"runs/{name}", 10, said)
    process.kill()
    process.wait()
    expect(said.count("call its close() if its loop has not begun") == 2, said)
    expect(said.index("refused") < said.index("failed None") < said.rindex("refused"), said)
    shutil.rmtree(folder)


def joined_in(run_dir):
    """The number of workers that have joined the job of this run directory."""
    with open(os.path.join(run_dir, "events.jsonl"), encoding="utf-8") as file:
        return sum(json.loads(line)["kind"] == "joined" for line in file)


def alone_twice():
    """Two programs that start at the same moment have separate jobs, and a program that names the
    folder of a running job is refused. They used to become one job without a message."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    slow = os.path.join(folder, "slow")
    with open(slow, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nsleep 0.5\nexec {os.path.abspath(mayfly_run.BINARY)} "$@"\n')
    os.chmod(slow, 0o755)
    both = [begin_alone(folder, "20", MAYFLY_PROGRAM=slow) for _ in range(2)]
    said = [one.communicate(timeout=60)[0] for one in both]
    runs = [os.path.join(folder, "runs", name) for name in os.listdir(os.path.join(folder, "runs"))]
    expect([one.returncode for one in both] == [0, 0] and len(runs) == 2, f"{runs} {said}")
    expect([joined_in(run_dir) for run_dir in runs] == [1, 1], f"{runs} {said}")
    named = os.path.join(folder, "run")
    first = begin_alone(folder, "300", MAYFLY_RUN_DIR=named)
    Run.attach(folder, first, 60).wait_for_step(20)
    second = begin_alone(folder, "20", MAYFLY_RUN_DIR=named)
    said = [one.communicate(timeout=60)[0] for one in (second, first)]
    expect(second.returncode == 2 and "the coordinator has ended with exit code" in said[0], said)
    expect(first.returncode == 0 and joined_in(named) == 1, said)
    shutil.rmtree(folder)


def absent_token():
    """A file that is not there is named, also if its name is not UTF-8; it is no reason to begin a
    job of one's own."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100"]
    environment = {**os.environ, "MAYFLY_PROGRAM": os.path.abspath(mayfly_run.BINARY),
                   "MAYFLY_LIBRARY": os.path.join(os.path.dirname(
                       os.path.abspath(mayfly_run.BINARY)), "libmayfly.so.0"),
                   "MAYFLY_COORDINATOR": "127.0.0.1:9"}
    for name, value, shown in (("MAYFLY_TOKEN_FILE", "absent/token", "absent/token"),
                               ("MAYFLY_JOB_FILE", "caf\udce9/job", "caf?/job")):
        done = subprocess.run(program, cwd=folder, env={**environment, name: value},
                              capture_output=True, text=True, timeout=120)
        expect(done.returncode != 0 and shown in done.stderr.splitlines()[-1], done.stderr)
    expect(os.listdir(folder) == [], f"it began {os.listdir(folder)}\n{done.stderr}")
    shutil.rmtree(folder)


def used(how, workers, *more, args=(), ends=0, program="torch_usage.py"):
    """(run, the lines that the programs have written to each file) of the program."""
    python_with("torch")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run = Run(QUIET + ["--workers", str(workers), *args], timeout=120,
              program=[PYTHON, "-B", os.path.join(HERE, program), how, folder, *more])
    code = run.wait()
    expect(code == ends, f"{how}: {code}\n{run.logs()}")
    written = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            written[name] = file.read().splitlines()
    shutil.rmtree(folder)
    return run, written


def weighted():
    """Means over valid samples: those of plain PyTorch, and the same bits for three workers."""
    alone, written = used("weighted", 1)
    three, _ = used("weighted", 3)
    expect(float(written["difference"][0]) < 1e-5, written["difference"])
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    alone.remove()
    three.remove()


def speaks():
    """One worker in each step prints the loss; each worker would print the same."""
    alone, expected = used("speaks", 1)
    three, written = used("speaks", 3)
    expect(len(written["losses"]) == 40 and written["losses"] == expected["losses"], written)
    alone.remove()
    three.remove()


def stops_early():
    """A job that its program stops because of an evaluation leaves a checkpoint."""
    args = ["--eval-every-epochs", "1"]
    run, written = used("stops", 2, "20000", args=args, ends=3)
    expect(len(written["ends"]) == 2, written)
    found = "Outcome.STOPPED 20000 [Evaluation(step=12, samples=192, correct=192"
    expect(all(line.startswith(found) for line in written["ends"]), written)
    summary = run.summary()
    expect(summary["outcome"] == "stopped" and os.path.isdir(
        run.path("checkpoints", f"step-{summary['steps']}")), f"{summary}\n{run.logs()}")
    run.remove()


def tied_weights():
    """mayfly.torch.load() gives them under both of their names, and what else was kept."""
    run, written = used("tied", 1)
    expect(written.get("loaded") == ["yes"], f"{written}")
    run.remove()


def kept_gradients():
    """A gradient is the program's own: neither the next step nor the end of the loop changes it,
    and what is added to it after the loop goes nowhere else. They used to lie in memory of the
    library, which was written over and then freed."""
    run, written = used("keeps", 2)
    expect([int(line) >= 160 for line in written["kept"]] == [True, True], f"{written}")
    run.remove()


def normed():
    """A model may hold a tensor that is computed, such as the weight of weight_norm. Its job could
    not be made, because such a model cannot be copied."""
    alone, _ = used("normed", 1)
    three, _ = used("normed", 3)
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    alone.remove()
    three.remove()


def killed_reader():
    """The program itself reads the samples that a killed process should have read ahead. The loop
    used to wait for them for ever."""
    plain, _ = used("read", 1)
    killed, written = used("killed", 1)
    expect(len(written["killed"]) == 1 and "was ended from outside" in killed.logs(),
           killed.logs())
    expect(mayfly_run.digests(killed) == mayfly_run.digests(plain), killed.logs())
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    process = begin_alone(folder, "killed", folder, program="torch_usage.py")
    process.wait(60)  # the processes that are left are ended, and the signal is not to the job
    said = process.stdout.read()
    expect(process.returncode == 0 and "was ended from outside" in said
           and "stopping with a checkpoint" not in said, said)
    shutil.rmtree(folder)
    plain.remove()
    killed.remove()


def abandoned_readers():
    """A program that fails ends at once. It used to read all requested samples first, while the
    other workers waited for its end."""
    python_with("torch")
    reading = """if True:
        import time
        from mayfly._core import Microbatch
        from mayfly.torch.loader import Loader
        class Slow:
            def __getitem__(self, index):
                print("reads", flush=True)
                time.sleep(30)
        loader = Loader(Slow(), None, 2)
        loader.read_ahead([Microbatch(1, number, 0, [0], [0]) for number in range(6)], 0)
        time.sleep(1)
        loader.abandon()"""
    began = time.monotonic()
    done = subprocess.run([PYTHON, "-B", "-c", reading], capture_output=True, text=True,
                          timeout=200, env=environment_alone())
    expect("reads" in done.stdout and time.monotonic() - began < 25, done.stdout + done.stderr)


def half():
    """Parameters of 16 bits: their gradients are summed in 32, the same for any workers."""
    alone, _ = used("half", 1, "200")
    three, _ = used("half", 3, "200")
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    losses = [m["loss"] for m in three.metrics()]
    expect(sum(losses[-20:]) < 0.8 * sum(losses[:20]), f"{losses}")
    alone.remove()
    three.remove()


def random_evaluation():
    """Random numbers of a test set depend on its samples, not on the worker that evaluates them.
    The program's own sums are added over all workers."""
    found = []
    for workers in (1, 3):
        run, written = used("random", workers)
        found.append({line.split("[")[1] for line in written["ends"]})
        sums = {one["name"]: one["value"] for one in run.events("evaluation")[-1]["sums"]}
        expect(sums["size"] == sum(range(192)) / 4 and 0 < sums["above"] < 2 * 192, sums)
        said = "sums=" + str({name: float(value) for name, value in sums.items()})
        expect(said in written["ends"][0], f"{said} {written}")
        run.remove()
    expect(found[0] == found[1] and len(found[0]) == 1, found)


def many_sums():
    """An evaluation may have sums for each of many classes. The names used to be compared as one
    text, for which a message had no room: every worker, or the coordinator, aborted."""
    run, _ = used("classes", 2, "8")
    sums = {one["name"]: one["value"] for one in run.events("evaluation")[-1]["sums"]}
    expect(len(sums) == 150 and sums["intersection of class 149"] == 192 * 149, sums)
    run.remove()


def kept_state():
    """Other parts of the state are compared between workers, too, also numbers of NumPy, of which
    only the type was compared. A worker whose program does not load a part is told which one it
    is."""
    run, _ = used("extra", 2, "3000", ends=1)
    expect("states differ" in run.output(), run.logs())
    run.remove()
    run, _ = used("forgets", 2, "6000", args=["--chaos", "join@step=20"])
    words = "has not taken the tensor mayfly.hash.extra.kept of the optimizer as it is"
    failed = run.events("program_failed")
    expect(len(failed) == 1 and words in failed[0]["detail"], run.logs())
    run.remove()


def large_extra():
    """Large parts of what else is kept, such as mean weights, have little room beside them, because
    a worker that joins gets that as well. It used to get four times their size."""
    changed("large", 1, "2")[0].remove()


def changed(how, workers, *more, **given):
    return used(how, workers, *more, **given, program="torch_changes.py")


def expect_same_digests(runs):
    first, *others = runs
    for run in others:
        expect(mayfly_run.digests(run) == mayfly_run.digests(first), run.logs())
    for run in runs:
        run.remove()


def replaced_buffer():
    """A buffer that a module assigns anew, as the centre of DINO, is the job's as others are. Its
    first memory was freed, and the library went on writing there."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    runs, written = zip(*[changed("replaces", 1), changed("replaces", 3, args=disturbed)])
    values = {line for one in written for line in one["center"]}
    expect(len(values) == 1 and str([0.0] * 8) not in values, values)
    expect_same_digests(runs)


def moved_parameters():
    """Parameters whose memory is replaced, by p.data or vector_to_parameters(), are those of the
    job: nothing differs. The library used the memory that they had first, which was freed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("plain", 1)[0], changed("moved", 1)[0],
                         changed("moved", 3, args=disturbed)[0]])


def copied_state():
    """An optimizer whose state_dict() makes copies trains as others do. Their memory was freed when
    the library had been told where they are, and read later."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("plain", 1)[0], changed("copies", 1)[0],
                         changed("copies", 3, args=disturbed)[0]])


def other_optimizers():
    """An optimizer may have its state from the beginning, none at all, one of another type than its
    parameters, or one of lists and dictionaries. The first ended the program, and so did the last
    one: its size was not foreseen, and a worker that joined could not take what has no elements. Of
    another type no worker that joined could take it."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    for how in ("adagrad", "stateless", "nadam", "nested"):
        expect_same_digests([changed(how, 1)[0], changed(how, 3, args=disturbed)[0]])


def empty_parts():
    """A parameter or a buffer without elements, by which models find their device, changes nothing
    and is in the checkpoint. Such a model used to be refused."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    plain, alone = changed("plain", 1)[0], changed("empty_parts", 1)[0]
    losses = [[m["loss"] for m in run.metrics()] for run in (plain, alone)]
    expect(losses[0] == losses[1], losses)
    expect_same_digests([alone, changed("empty_parts", 3, args=disturbed)[0]])
    plain.remove()


def frozen_layer():
    """A layer that the program has put into eval mode stays in it beyond the evaluations, of which
    one is tried before the loop."""
    expect_same_digests([changed("frozen", 1)[0], changed("frozen", 2)[0]])


def random_collate():
    """What a batch is made with may draw random numbers: the same bits for any workers, and for any
    processes that read ahead."""
    args = ["--eval-every-epochs", "1"]
    runs, written = zip(*[changed(how, workers, args=args) for how in ("mixed", "mixed_ahead")
                          for workers in (1, 3)])
    found = {line for one in written for line in one["evaluations"]}
    expect(len(found) == 1, found)
    expect_same_digests(runs)


def random_updates():
    """An update may draw random numbers, as that of SGLD or of a private training does: the same on
    all workers. They went on from what each had computed last, so the states differed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("noisy", 1)[0], changed("noisy", 3, args=disturbed)[0]])


def other_samples():
    """A sample may be a dictionary or one tensor, also for an evaluation and for job.check()."""
    for how in ("dictionary", "tensor"):
        changed(how, 1)[0].remove()


def diverged():
    """A program ends with the reason of its failed job, and not with an error that follows from a
    missing loss."""
    run, _ = changed("diverges", 2, ends=1)
    expect("MayflyError: " in run.logs() and "TypeError" not in run.logs(), run.logs())
    run.remove()


def repeated_evaluation():
    """An evaluation that is made again, because a worker was lost after it, counts once."""
    run, written = changed("killed", 3, args=["--eval-every-epochs", "1"])
    expect(written["steps"] == [str([6, 12, 18, 24])] * 2, f"{written}\n{run.logs()}")
    run.remove()


def gained_parts():
    """A program that resumes may have a scheduler and other parts that it had not: they begin as it
    makes them, and a line says so."""
    before, _ = changed("plain", 1)
    again, _ = changed("gains", 2, "40", args=["--resume", before.run_dir])
    for name in ("the scheduler", "the extra part kept"):
        expect(f"the state that has come has nothing for {name}, which begins anew"
               in again.logs(), again.logs())
    again.remove()
    before.remove()


def tried_again():
    """A job that is refused can be made again in the same process, with or without a launcher."""
    run, written = changed("retries", 1)
    expect("the optimizer lacks" in str(written["refused"]) and len(written["refused"]) == 2,
           written)
    run.remove()
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    process = begin_alone(folder, "retries", folder, program="torch_changes.py")
    said = process.communicate(timeout=60)[0]
    expect(process.returncode == 0 and os.path.exists(os.path.join(folder, "steps")), said)
    shutil.rmtree(folder)


def misused():
    """One line that says what is wrong: exit code 2 if the job cannot begin, 1 if it has failed."""
    for how, code, words in (
            ("inner", 1, "the loop has left step 1 before all of its microbatches"),
            ("returns", 2, "must return two numbers"),
            ("lacks", 2, "and a dictionary of the sums above, size; it returned"),
            ("early", 2, "the optimizer lacks 3.weight and 1 more"),
            ("twice", 1, "this one has its result already")):
        run, _ = used(how, 1, ends=code)
        expect(words in run.logs(), f"{how}: {run.logs()}")
        run.remove()
    for how, code, words in (
            ("thaws", 1, "first.weight was frozen when the job was made, and is to be trained"),
            ("renewed", 1, "the parameter last.weight was replaced by another one"),
            ("filled", 1, "extremes was float32[0, 2] on cpu when the job was made, and is"),
            ("converted", 1, "was float32[8, 6] on cpu when the job was made, and is float64"),
            ("stream", 2, "data has no length or no index"),
            ("loader", 2, "data is a DataLoader; give the job its data set"),
            ("renorm", 2, "the layer words has a max_norm: it would change its weights"),
            ("share", 2, "correct is 0.5, and not a number of right predictions"),
            ("again", 2, "a job has one evaluation, and this is a second one"),
            ("readers", 2, "num_workers is -1, and must be at least 0"),
            ("empty", 2, "the data set of the evaluation is empty"),
            ("metric", 2, 'lists of names, such as ["norm"]'),
            ("sum", 2, 'lists of names, such as ["size"]'),
            ("endless", 2, "steps must be more than 0, and not -1"),
            ("short", 2, "epochs must be more than 0, and not 0"),
            ("fraction", 2, "steps is 1.5, and not a whole number"),
            ("batch", 2, "mayfly: batch is 16.0, and not a whole number")):
        run, _ = changed(how, 1, ends=code)
        expect(words in run.logs(), f"{how}: {run.logs()}")
        run.remove()


def other_text():
    """The output and the error of a program are recorded, also if they are not UTF-8. The text was
    lost, and with it the reason why the job had failed."""
    run, _ = changed("surrogate", 1, ends=1)
    notes = {(one["of"], one["detail"]) for one in run.events("note")}
    expect(notes == {("read", "of ?")}, f"{notes}\n{run.logs()}")
    failed = [one["detail"] for one in run.events("program_failed")]
    expect("ValueError: no file ?" in "".join(failed), f"{failed}\n{run.logs()}")
    run.remove()


def alone_stopped():
    """Ctrl-C and SIGTERM of a program that is alone stop its job with a checkpoint."""
    python_with("numpy")
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tempfile.mkdtemp(prefix="mayfly-test-")
        run_dir = os.path.join(folder, "run")
        environment = {**os.environ, "MAYFLY_PROGRAM": os.path.abspath(mayfly_run.BINARY),
                       "MAYFLY_RUN_DIR": run_dir, "MAYFLY_LIBRARY": os.path.join(
                           os.path.dirname(os.path.abspath(mayfly_run.BINARY)), "libmayfly.so.0")}
        with open(os.path.join(folder, "output.txt"), "w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "1000000"], cwd=folder,
                env=environment, stdout=output, stderr=output)
            run = Run.attach(folder, process, 60)
            run.wait_for_step(20)
            process.send_signal(number)
            code = process.wait(60)
            output.seek(0)
            said = output.read()
        expect(code == 0 and "Outcome.STOPPED" in said and "with a checkpoint" in said, said)
        summary = run.summary()
        expect(summary["outcome"] == "stopped" and summary["steps"] >= 20 and os.path.isdir(
            run.path("checkpoints", f"step-{summary['steps']}")), f"{summary}\n{said}")
        shutil.rmtree(folder)


def refused():
    """Impossible settings are refused in one line, with exit code 2."""
    for args, program, words in (
            (["--sync", "asp"], [LINEAR, "10"], "cannot be combined with parameter servers"),
            (["--backend", "mpi"], [LINEAR, "10"], "combined with the backends mpi and nccl"),
            (["--device", "cuda"], [LINEAR, "10"], "device cuda is for the networks of mayfly"),
            (["--model", "resnet20"], [LINEAR, "10"], "--model is for the networks of mayfly"),
            (["--chaos", "hang@step=3:for=100"], [LINEAR, "10"], "but not hung"),
            ([], [LINEAR, "0"], "steps must be at least 1")):
        run = Run(QUIET + args, program=program)
        code = run.wait()
        lines = run.output().strip().splitlines()
        expect(code == 2 and words in lines[-1], f"{args} {program}: {code} {lines}")
        run.remove()
    for program in (LINEAR, LINEAR + "-cpp"):
        done = subprocess.run([program, "10"], capture_output=True, text=True, timeout=60)
        expect(done.returncode == 2 and "no coordinator is named: start the program with `mayfly "
               "run" in done.stderr, done.stderr)
    done = subprocess.run([mayfly_run.BINARY, "run"], capture_output=True, text=True, timeout=60)
    expect(done.returncode == 2 and "run expects a program" in done.stderr, done.stderr)


def handles():
    """A second job of a process, and a second start of one, are refused in words: they used to end
    the process with an internal error. What failed can be closed and tried again. Notes have a kind
    of their own: one that was called as an event of ours made the run unreadable. One from before
    the start, which was lost, is kept."""
    run = trained([PYTHON, "-B", os.path.join(HERE, "handles_program.py")], 1)[3]
    expect("refused in words" in run.logs(), run.logs())
    notes = [(one["of"], one["detail"]) for one in run.events("note")]
    expect(notes == [(of, "of its own: ?") for of in ("early", "evaluation", "checkpoint",
                                                            "started")],
           notes)
    expect(not run.events("evaluation"), run.events("evaluation"))
    run.remove()


def other_weights():
    """Workers that begin with other weights are refused, and told what to do."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "50", "unseeded"])
    code = run.wait()
    text = run.logs()
    expect("seed the model alike on all workers" in text, text)
    expect(code in (0, 2), f"{code}\n{text}")
    run.remove()


def leaves_early():
    """A worker that asks to leave before it is a member leaves once it is one. It used to stay."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2", "--chaos", "join@step=20"], timeout=120,
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "800",
                       "leaves_early"])
    summary = run.finish()
    expect(summary["outcome"] == "done" and summary["steps"] == 800, f"{summary}\n{run.logs()}")
    [left] = run.events("left")
    expect("its time is over before it begins" in str(left) and "Outcome.DRAINED" in run.logs(),
           f"{left}\n{run.logs()}")
    run.remove()


def slots():
    """Each worker on a host has a number of its own there, and one that joins gets that of one that
    was lost. Programs could not choose a GPU by what they were told."""
    python_with("numpy")
    run = trained([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "400", "slots"], 2,
                  chaos="kill@step=20:worker=0,join@step=60")[3]
    found = []
    for number in range(3):
        with open(run.path("logs", f"worker-{number}.log"), encoding="utf-8") as file:
            found += re.findall("slot (.*)", file.read())
    expect(found == ["0", "1", "0"], f"{found}\n{run.logs()}")
    run.remove()


def raises():
    """An exception of the program is recorded, and the other workers take over its work."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100", "raises"])
    summary = run.finish()
    expect(summary["outcome"] == "done" and summary["steps"] == 100, f"{summary}\n{run.logs()}")
    failed = run.events("program_failed")
    expect(len(failed) == 1 and "ZeroDivisionError" in failed[0]["detail"],
           f"{failed}\n{run.logs()}")
    [lost] = run.events("lost")
    expect(failed[0]["member"] == lost["member"], f"{failed}, {lost}")
    expect(f"the program of worker {lost['member']} failed in {failed[0]['at']}: "
           "ZeroDivisionError: " in run.output(), run.output())
    run.remove()


def lingers():
    """A worker whose program fails is lost at once, also if the program has more to do before it
    ends. The others used to wait for that."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100", "lingers"])
    summary = run.finish()
    expect(summary["outcome"] == "done" and summary["steps"] == 100, f"{summary}\n{run.logs()}")
    [failed], [lost] = run.events("program_failed"), run.events("lost")
    expect(failed["member"] == lost["member"] and "ZeroDivisionError" in failed["detail"], failed)
    expect(lost["time"] - failed["time"] < 4, f"{failed} {lost}")
    expect("its last words" in run.logs(), run.logs())
    run.remove()


def poisoned():
    """A microbatch that fails on two workers ends the job, and its samples are named."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "4"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100", "poisoned"])
    code = run.wait()
    summary = run.summary()
    expect(code == 1 and summary["outcome"] == "failed", f"{code} {summary}\n{run.logs()}")
    first, second = run.events("program_failed")[:2]
    expect(first["at"] == second["at"] and first["member"] != second["member"], run.output())
    expect(17 in first["samples"] and len(first["samples"]) == 4, first)
    expect(f"failed in {first['at']} on worker {first['member']} and on worker "
           f"{second['member']}" in summary["detail"], summary)
    expect("17" in summary["detail"] and "sample 17 cannot be read" in summary["detail"], summary)
    run.remove()


def infinite():
    """A buffer that is infinite, such as a mask, is a constant like others, and nothing is taken
    from a microbatch of weight 0. Both ended the job as if it had diverged. What cannot be added is
    named."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py")]
    alone = trained([*program, "40", "infinite"], 1)
    three = trained([*program, "40", "infinite"], 3)
    expect(alone[1] == three[1], three[3].logs())
    for how, words in (("unbounded", "the change of the buffer lowest in this microbatch is "),
                       ("no_metric", "the metric error in this microbatch is infinite or NaN")):
        run = Run(QUIET + ["--workers", "1"], program=[*program, "40", how])
        code = run.wait()
        expect(code != 0 and words in run.logs(), f"{how}: {code}\n{run.logs()}")
        run.remove()
    alone[3].remove()
    three[3].remove()


def wrong_arrays():
    """Arrays that cannot be trained, more samples than C can count, gradients that are not those of
    the parameters, and arrays that the program has replaced by others are refused by name. They
    used to be ignored, or to end the process, or memory that was freed was trained. A number may be
    the gradient of an array without dimensions."""
    python_with("numpy")
    for how, words in (
            ("read_only", "array bias (type float32) must be contiguous and writable"),
            ("swapped", "array bias (type >f4) must be contiguous and writable"),
            ("huge", "train_samples is 18446744073709551872, which no job can have"),
            ("listed", "bias is no array of NumPy's, but of the type list"),
            ("number", "the gradient of bias (float64[]) is not a contiguous array of float32"),
            ("misspelt", "a gradient of bais, which is none of the parameters"),
            ("lacks", "bias has no gradient; None stands for zeros"),
            ("shaped", "the gradient of weight (float32[2, 4]) is not a contiguous array of "
                       "float32 with the parameter's shape, [8]"),
            ("replaces", 'parameters["bias"] is another array than when the job was made'),
            ("replaces_state", 'state["velocity.bias"] is another array than when the job')):
        run = Run(QUIET + ["--workers", "1"], program=[
            PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "40", how])
        code = run.wait()
        expect(code != 0 and words in run.logs(), f"{how}: {code}\n{run.logs()}")
        run.remove()
    for how, words in (("retries", "refused: array bias"),  # another job can be made afterwards
                       ("scalar", "Outcome.DONE")):
        run = Run(QUIET + ["--workers", "1"], program=[
            PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "40", how])
        summary = run.finish()
        expect(summary["steps"] == 40 and words in run.logs(), run.logs())
        run.remove()


def handlers():
    """A program's own handler of SIGTERM is called beside the leave of its worker, and after the
    loop signals have the meaning of before. They used to end the program."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"], timeout=120,
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "300", "handlers"])
    summary = run.finish()
    expect(summary["outcome"] == "done" and len(run.events("left")) == 1, run.logs())
    lines = sorted(re.findall(r"Outcome\.\w+|the loop, told \d", run.logs()))
    expect(lines == ["Outcome.DONE", "Outcome.DRAINED", "the loop, told 1", "the loop, told 2"],
           f"{lines}\n{run.logs()}")
    run.remove()


def fails_late():
    """If a program fails after its loop, the job is done, and the program's exit code is 1."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "30", "fails_late"])
    code = run.wait()
    expect(code == 1 and run.summary()["outcome"] == "done", f"{code} {run.output()}")
    expect("the program of local worker 1 failed after the job's end (exit code 1): "
           "FileNotFoundError: " in run.output(), run.output())
    run.remove()


def stays():
    """A program that goes on after the job's end can be told to end; the job has its summary."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "30", "stays"])
    run.wait_for("the loop's end", lambda: run.logs().count("Outcome.DONE") == 2)
    run.process.terminate()
    code = run.wait()
    expect(code == 1 and run.summary()["outcome"] == "done", f"{code} {run.logs()}")
    expect(time.monotonic() - run.started < 60, "the programs were waited for")
    expect(not os.path.exists(run.path("coordinator")), "the address was left behind")
    run.remove()


def breaks_at_the_end():
    """A loop that breaks in the step in which its worker leaves, as docs/library.md says that it
    may, has ended well. It was taken for one that had ended too early, and had no outcome."""
    breaking = """if True:
        from types import SimpleNamespace
        import mayfly
        from mayfly import _abi, _job
        class Core:
            outcome = None
            tasks = [SimpleNamespace(kind=_abi.MICROBATCH, step=3, number=0, seed=0, samples=[],
                                     epochs=[], sample_count=0),
                     *2 * [SimpleNamespace(kind=_abi.END, step=3, outcome=_abi.DRAINED)]]
            closed_on_failure = _job.Core.closed_on_failure
            def start(self):
                pass
            def next(self):
                return self.tasks.pop(0)
            def take_evaluation(self):
                return None
            def ended(self, task):
                self.outcome = mayfly.Outcome(task.outcome)
        class Job(_job.BaseJob):
            def _step_of(self, task):
                return _job.BaseStep(self, task)
        _job.Core = Core
        job = Job()
        for step in job.steps():
            for microbatch in step.microbatches():
                step._at_hand = None  # it has a result
            if not step.updates:
                break
        print(job.outcome)
        Core._open = None"""
    done = subprocess.run([PYTHON, "-B", "-c", breaking], capture_output=True, text=True,
                          timeout=30, env=environment_alone())
    expect(done.stdout.strip() == "Outcome.DRAINED" and not done.stderr, done.stdout + done.stderr)


def leaves_at_the_end():
    """job.leave() of another thread, or of a handler of a signal, in the moment when the loop ends
    finds that there is no job any more. It used the memory that was being freed."""
    python_with("numpy")
    closing = """if True:
        import ctypes, threading
        import mayfly
        from mayfly import _abi, _core
        class Library:
            def mf_leave(self, handle, reason):
                leaving.set()
                closing.wait(0.2)
                seen.append(("leaves", bool(core._handle)))
                return _abi.OK if handle else _abi.REFUSED
            def mf_error(self, handle):
                return b"there is no job"
            def mf_close(self, handle):
                closing.set()
                seen.append(("closes", bool(core._handle)))
                try:
                    core.leave("a signal has come")
                except mayfly.Refused as error:
                    seen.append(str(error))
        leaving, closing, seen = threading.Event(), threading.Event(), []
        _abi.load = Library
        _core.Core._connect = lambda self: setattr(self, "_handle", ctypes.c_void_p(1))
        core = _core.Core()
        other = threading.Thread(target=core.leave, args=["the other thread"])
        other.start()
        leaving.wait()
        core.close()
        other.join()
        print(seen)"""
    done = subprocess.run([PYTHON, "-B", "-c", closing], capture_output=True, text=True, timeout=30,
                          env=environment_alone())
    expect(done.stdout.strip() == "[('leaves', True), ('closes', False), ('leaves', False), "
           "'there is no job']", done.stdout + done.stderr)


def of_a_script():
    """A program that a shell has started has all that one has which is started alone: its bits when
    others are killed and leave, and its end with the launcher."""
    undisturbed = trained([LINEAR, "200"], 1)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    script = os.path.join(folder, "train.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write('"$@"\nresult=$?\necho "the script goes on"\nexit $result\n')
    summary, digests, _, run = trained(["sh", script, LINEAR, "200"], 3, WAITING, changes(40, 90))
    expect(digests == undisturbed[1], f"{summary}\n{run.logs()}")
    counts = {kind: len(run.events(kind)) for kind in ("lost", "left", "joined", "restart")}
    expect(counts == {"lost": 1, "left": 1, "joined": 5, "restart": 0}, f"{counts}\n{run.logs()}")
    expect("the script goes on" in run.logs(), run.logs())
    run.remove()
    run = Run(QUIET + ["--workers", "2"], program=["sh", script, LINEAR, "100000", folder])
    run.wait_for_step(20)
    run.stop_hard()
    expect_gone(f"{LINEAR}\0100000\0{folder}", 5, run.logs())
    run.remove()
    shutil.rmtree(folder)
    undisturbed[3].remove()


def resumed_otherwise():
    """The job reports how a program differs from the one of the run that it resumes."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py")]
    run = Run(QUIET + ["--workers", "2"], program=program + ["30"])
    run.finish()
    again = Run(QUIET + ["--workers", "2", "--resume", run.run_dir],
                program=program + ["40", "small"])
    again.finish()
    expect("unlike in the run that it resumes: microbatch 2 (was 4)" in again.output(),
           again.output())
    again.remove()
    run.remove()


def other_arrays():
    """A state whose arrays are not those of the program is refused. A longer one used to be written
    beyond the program's array."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py")]
    run = Run(QUIET + ["--workers", "1"], program=program + ["30"])
    run.finish()
    for how, words in (("narrow", "the array velocity.weight of the state is float32[4] in this "
                                  "program, and float32[8] in the state that has come"),
                       ("renamed", "the array momentum.bias of the state is float32[1] in this "
                                   "program, and absent in the state that has come")):
        again = Run(QUIET + ["--workers", "1", "--resume", run.run_dir],
                    program=program + ["40", how])
        code = again.wait()
        expect(code != 0 and words in again.logs(), f"{code}\n{again.logs()}")
        again.remove()
    run.remove()


def ctrl_c():
    """Ctrl-C stops the job with a checkpoint, as with the built-in networks."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100000"]
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    with open(os.path.join(folder, "output.txt"), "wb") as output:
        process = subprocess.Popen(
            [mayfly_run.BINARY, "run", "--run-dir", os.path.join(folder, "run"), "--workers", "2",
             *QUIET, "--", *program], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True)
    run = Run.attach(folder, process, 120)
    run.wait_for_step(30)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    code = run.wait()
    summary = run.summary()
    expect(code == 3 and summary["outcome"] == "stopped", f"{code} {summary}\n{run.logs()}")
    newest = os.path.join(folder, "run", "checkpoints", f"step-{summary['steps']}")
    expect(os.path.isdir(newest), run.logs())
    run.remove()


def same_interface():
    """The Python package declares the functions and structures of mayfly.h as they are."""
    header = os.path.join(PACKAGE, "..", "include", "mayfly", "mayfly.h")
    sys.path.insert(0, PACKAGE)
    from mayfly import _abi
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    declared = {name: len([word for word in arguments.split(",") if word.strip() != "void"])
                for name, arguments in re.findall(r"MF_API[^;]*?\b(mf_\w+)\(([^)]*)\);", text)}
    ours = {name: len(arguments) for name, (_, arguments) in _abi.FUNCTIONS.items()}
    expect(declared == ours, f"{declared} {ours}")
    structures = {"mf_tensor": _abi.Tensor, "mf_options": _abi.Options, "mf_task": _abi.Task,
                  "mf_loaded_state": _abi.LoadedState, "mf_upcoming": _abi.Upcoming,
                  "mf_evaluation": _abi.EvaluationResult}
    lines = [f'printf("{name} %zu\\n", sizeof({name}));' for name in structures]
    for name, structure in structures.items():
        lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
                  for field, _ in structure._fields_]
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    source = os.path.join(folder, "sizes.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(f'#include "{header}"\n#include <stdio.h>\nint main(void) {{\n'
                   + "\n".join(lines) + "\nreturn 0;\n}\n")
    program = os.path.join(folder, "sizes")
    subprocess.run(["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", source, "-o",
                    program], check=True)
    said = dict(line.split() for line in subprocess.run(
        [program], capture_output=True, text=True, check=True).stdout.splitlines())
    for name, structure in structures.items():
        expect(int(said[name]) == _abi.ctypes.sizeof(structure), name)
        for field, _ in structure._fields_:
            expect(int(said[f"{name}.{field}"]) == getattr(structure, field).offset,
                   f"{name}.{field}")
    shutil.rmtree(folder)


def forks():
    """A child that ends is not the worker's end, nor is a signal to it."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100"]
    plain = trained(program, 1)
    summary, digests, _, run = trained([*program, "forks"], 2)
    expect(digests == plain[1], f"{summary}\n{run.logs()}")
    expect(not run.events("program_failed") and not run.events("lost"), run.logs())
    run.remove()
    plain[3].remove()


def checked():
    """job.check() names the parameter of a layer that computes something else each time."""
    python_with("torch")
    program = [PYTHON, "-B", os.path.join(HERE, "torch_program.py")]
    run = trained([*program, "checked", "2"], 1)[3]
    run.remove()
    run = Run(QUIET, program=[*program, "random", "2"], timeout=120)
    code = run.wait()
    text = run.logs()
    expect(code == 2 and "the gradient of 0.weight is another one each time" in text,
           f"{code}\n{text}")
    run.remove()


def torch_reference():
    """What a job computes is what plain PyTorch computes that adds up microbatches, but for the
    rounding of sums."""
    python_with("torch")
    run = trained([PYTHON, "-B", os.path.join(HERE, "torch_reference.py"), "30"], 1)[3]
    difference = float(re.search(r"difference (\S+)", run.logs()).group(1))
    expect(difference < 1e-4, f"{difference}\n{run.logs()}")
    run.remove()


def libtorch():
    """The example in C++ with PyTorch's own interface: the same bits as one worker's."""
    include = "/usr/include/torch/csrc/api/include"
    if not os.path.exists(include + "/torch/torch.h"):
        print("skipped: no libtorch (scripts/setup oracle)")
        sys.exit(mayfly_run.SKIP)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    program = os.path.join(folder, "network")
    built = os.path.dirname(os.path.abspath(mayfly_run.BINARY))
    source = os.path.join(HERE, "..", "..", "..")
    subprocess.run(["g++", "-std=c++20", "-w", "-I" + os.path.join(source, "library", "include"),
                    "-I" + include, os.path.join(source, "examples", "library", "network.cpp"),
                    "-o", program, os.path.join(built, "libmayfly.so.0"), "-ltorch",
                    "-ltorch_cpu", "-lc10"], check=True, timeout=280)
    expect_same_bits([program, "120"], 30, 60)
    shutil.rmtree(folder)


def changed_example(folder, name, old, new):
    """The path of the example in C++, built with `new` in place of `old` in its text."""
    source = os.path.join(HERE, "..", "..", "..")
    with open(os.path.join(source, "examples", "library", "linear.cpp"), encoding="utf-8") as file:
        text = file.read()
    expect(text.count(old) == 1, f"the example has not this once: {old}")
    program = os.path.join(folder, name)
    with open(program + ".cpp", "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    built = os.path.dirname(os.path.abspath(mayfly_run.BINARY))
    subprocess.run(["g++", "-std=c++20", "-w", "-I" + os.path.join(source, "library", "include"),
                    program + ".cpp", "-o", program, os.path.join(built, "libmayfly.so.0")],
                   check=True, timeout=120)
    return program


def failed_calls():
    """The loop in C++ ends when a result is refused, and says that. A call that fails and is not
    the loop's changes nothing: an update used to be left out without a word."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    update = "for (std::size_t k = 0; step->updates()"
    noted = 'job.note("not a kind", "");\n    '
    plain = trained([changed_example(folder, "plain", update, update), "40"], 1)
    noting = trained([changed_example(folder, "noting", update, noted + update), "40"], 1)
    expect(noting[1] == plain[1], f"other bits\n{noting[3].logs()}")
    result = "compute(parameters, microbatch->samples, gradient)"
    program = changed_example(folder, "refused", result + ");",
                              result + ", 0, step->number() == 3 ? -1 : 1);")
    run = Run(QUIET + ["--workers", "1"], program=[program, "40"])
    code = run.wait()
    expect(code != 0 and "linear: the weight of a microbatch must be" in run.logs(),
           f"{code}\n{run.logs()}")
    given = "step->add({gradient.data()},"
    program = changed_example(folder, "many", given, "step->add({gradient.data(), nullptr},")
    many = Run(QUIET + ["--workers", "1"], program=[program, "40"])
    code = many.wait()
    expect(code != 0 and "linear: a result has 2 gradients, and the job has 1 param" in many.logs(),
           f"{code}\n{many.logs()}")
    for one in (run, many, noting[3], plain[3]):
        one.remove()
    shutil.rmtree(folder)


def untaken():
    """A worker whose program does not load the optimizer's tensors of a received state reports
    that, and the others go on. It used to be evicted for wrong weights."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    program = changed_example(
        folder, "untaken", "std::memcpy(velocity.data(), state.tensors[0].data, sizeof velocity);",
        "")
    run = trained([program, "4000"], 2, chaos="join@step=40")[3]
    words = "has not taken the tensor velocity of the optimizer as it is"
    failed = run.events("program_failed")
    expect(len(failed) == 1 and words in failed[0]["detail"], run.logs())
    expect(not run.events("corrupted"), run.logs())
    run.remove()
    shutil.rmtree(folder)


def other_optimizer():
    """The examples refuse a checkpoint of another optimizer. They read beyond its tensors."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    momentum = 'momentum{"velocity", MF_F32, {kInputs'
    run = trained([changed_example(folder, "narrow", momentum + " + 1}", momentum + "}"), "20"],
                  1)[3]
    for program in (LINEAR, LINEAR + "-cpp"):
        again = Run(QUIET + ["--workers", "1", "--resume", run.run_dir], program=[program, "40"])
        code = again.wait()
        expect(code != 0 and "the state that has come has another optimizer" in again.logs(),
               f"{program}: {code}\n{again.logs()}")
        again.remove()
    run.remove()
    shutil.rmtree(folder)


def interface():
    """The symbols and sizes of structures on which earlier built programs rely have not changed."""
    with open(os.path.join(HERE, "interface.txt"), encoding="utf-8") as file:
        known = {line for line in file.read().splitlines() if not line.startswith("#")}
    library = os.path.join(os.path.dirname(os.path.abspath(mayfly_run.BINARY)), "libmayfly.so.0")
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout
    symbols = {line.split()[2].split("@")[0] for line in shown.splitlines() if " T " in line}
    others = {line for line in shown.splitlines() if " T " not in line and "MAYFLY_0" not in line}
    sys.path.insert(0, PACKAGE)
    from mayfly import _abi
    structures = {"mf_tensor": _abi.Tensor, "mf_options": _abi.Options, "mf_task": _abi.Task,
                  "mf_loaded_state": _abi.LoadedState, "mf_upcoming": _abi.Upcoming,
                  "mf_evaluation": _abi.EvaluationResult}
    sizes = {f"{name} {_abi.ctypes.sizeof(kind)}" for name, kind in structures.items()}
    expect(symbols | sizes == known and not others,
           f"new: {sorted((symbols | sizes) - known)}, gone: {sorted(known - symbols - sizes)}, "
           f"others: {others}")


def torch_cnn():
    python_with("torch")
    expect_same_bits([PYTHON, "-B", os.path.join(HERE, "torch_program.py"), "cnn", "40"],
                     8, 20)


def mirrored():
    """Tensors that are used by copies, as those on a GPU are, get the bits of those that are used
    where they are, also if they are loaded between the making of the job and the loop; and those
    that are not contiguous can be trained."""
    python_with("torch")
    for network in ("cnn", "transformer", "loaded"):
        program = [PYTHON, "-B", os.path.join(HERE, "torch_program.py")]
        plain = trained([*program, network, "20"], 1)
        by_copies = "mirrored_" + network
        _, digests, _, run = trained([*program, by_copies, "20"], 3, WAITING,
                                     changes(5, 10))
        expect(digests == plain[1], f"{by_copies}: other bits\n{run.logs()}")
        run.remove()
        plain[3].remove()
    for laid_out in ("channels_last", "channels_last_adamw"):
        expect_same_bits([PYTHON, "-B", os.path.join(HERE, "torch_program.py"), laid_out, "20"],
                         5, 10)


def torch_transformer():
    python_with("torch")
    expect_same_bits([PYTHON, "-B", os.path.join(HERE, "torch_program.py"), "transformer", "40"],
                     8, 20)


if __name__ == "__main__":
    sys.exit(mayfly_run.main({
        "c_program": c_program, "cpp_program": cpp_program, "audited": audited, "arrays": arrays,
        "sizes": sizes, "many_tensors": many_tensors, "own_metrics": own_metrics,
        "resumed": resumed,
        "resumed_otherwise": resumed_otherwise, "poisoned": poisoned, "mirrored": mirrored,
        "fails_late": fails_late,
        "same_interface": same_interface, "coordinator_restarted": coordinator_restarted,
        "under_mpirun": under_mpirun, "alone": alone, "alone_twice": alone_twice,
        "alone_refused": alone_refused, "alone_ends_early": alone_ends_early,
        "alone_again": alone_again, "alone_killed": alone_killed,
        "notebook": notebook, "alone_elsewhere": alone_elsewhere,
        "alone_resumed": alone_resumed, "absent_token": absent_token,
        "refused": refused, "slots": slots,
        "other_weights": other_weights, "raises": raises, "lingers": lingers, "ctrl_c": ctrl_c,
        "forks": forks,
        "checked": checked, "torch_cnn": torch_cnn, "torch_reference": torch_reference,
        "torch_transformer": torch_transformer,
        "weighted": weighted, "speaks": speaks, "stops_early": stops_early, "misused": misused,
        "other_text": other_text,
        "random_evaluation": random_evaluation, "tied_weights": tied_weights,
        "kept_state": kept_state, "large_extra": large_extra,
        "alone_stopped": alone_stopped, "libtorch": libtorch, "untaken": untaken,
        "other_optimizer": other_optimizer,
        "failed_calls": failed_calls,
        "interface": interface, "half": half, "kept_gradients": kept_gradients,
        "killed_reader": killed_reader, "abandoned_readers": abandoned_readers, "normed": normed,
        "handlers": handlers, "infinite": infinite, "wrong_arrays": wrong_arrays,
        "replaced_buffer": replaced_buffer, "moved_parameters": moved_parameters,
        "copied_state": copied_state, "other_optimizers": other_optimizers,
        "frozen_layer": frozen_layer, "empty_parts": empty_parts,
        "random_collate": random_collate, "random_updates": random_updates,
        "other_samples": other_samples, "diverged": diverged, "gained_parts": gained_parts,
        "repeated_evaluation": repeated_evaluation, "tried_again": tried_again,
        "many_sums": many_sums, "other_arrays": other_arrays,
        "handles": handles, "leaves_early": leaves_early, "stays": stays,
        "of_a_script": of_a_script, "leaves_at_the_end": leaves_at_the_end,
        "breaks_at_the_end": breaks_at_the_end}))
