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
    """The --chaos of these steps: after each a worker is killed or told to leave, in turn, and a
    new one joins. The plan names the workers, because a leaving worker may still run when the next
    worker is chosen."""
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
        # A worker that loads a state wrongly is evicted, so the digests of the job do not show it.
        expect(not run.events("corrupted"), f"{plan}: a state was taken wrongly\n{run.logs()}")
        run.remove()
    alone[3].remove()


CHANGES = (40, 90, 130)


def c_program():
    expect_same_bits([LINEAR, "400"], *CHANGES)


def cpp_program():
    expect_same_bits([LINEAR + "-cpp", "400"], *CHANGES)


def audited():
    """In every third step a second worker computes one microbatch again, with the same loop. That
    changes no bit of the job. A program whose results differ each time is detected in step 1."""
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


def shuffled():
    """The dictionaries of a NumPy program may have another order on each worker, and another one
    after some steps. The worker used to be refused or evicted, or its gradients were exchanged."""
    python_with("numpy")
    expect_same_bits([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "160", "shuffled"],
                     *CHANGES)


def sizes():
    python_with("numpy")
    run = trained([PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "5", "sizes"], 1)[3]
    run.remove()


def many_tensors():
    """A model of 1,500 tensors, as large networks have. The fingerprints of its workers used to be
    cut off after 32 KiB, and no worker was admitted."""
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
    """A job that is stopped with two workers and resumed with three has the bits of a job that was
    not stopped."""
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
    expect(shown.returncode == 2 and "belongs to a user's program" in shown.stderr, shown.stderr)
    for one in (run, undisturbed[3], again):
        one.remove()


def coordinator_restarted():
    """Programs that no launcher started, as on other machines, train on while they have no
    coordinator."""
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
    expect(codes[:2] == [0, 0], f"{codes}")  # the third may connect when the job is over
    run.remove()
    undisturbed[3].remove()


def under_mpirun():
    """Each rank of `mpirun mayfly run` is a worker, and the job continues after the loss of one."""
    mpi_launch.skip_without_mpirun()
    undisturbed = trained([LINEAR, "4000"], 1)
    run = mpi_launch.start(3, QUIET, program=[LINEAR, "4000"])
    run.wait_for_step(500)
    mpi_launch.kill_rank(run, 2)  # its program ends with it
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
    # A coordinator that takes long, as with a large checkpoint, is waited for. The program used to
    # be refused after half a minute.
    slow = slow_program(folder)
    late = ("import runpy, sys; from mayfly import _alone; _alone.SAY_AFTER_SECONDS = 0.1; "
            "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])")
    done = subprocess.run([PYTHON, "-B", "-c", late, os.path.join(HERE, "arrays_program.py"), "20"],
                          cwd=folder, env=environment_alone(MAYFLY_PROGRAM=slow),
                          capture_output=True, text=True, timeout=120)
    expect("waiting for the coordinator in runs/" in done.stderr and "Outcome.DONE" in done.stdout,
           done.stdout + done.stderr)
    shutil.rmtree(folder)


def slow_program(folder):
    """The program mayfly, which begins half a second late."""
    slow = os.path.join(folder, "slow")
    with open(slow, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nsleep 0.5\nexec {os.path.abspath(mayfly_run.BINARY)} "$@"\n')
    os.chmod(slow, 0o755)
    return slow


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
    """Expects that within so many seconds no process has `word` in its command. Kills the processes
    that still have it then."""
    deadline = time.monotonic() + within
    while processes_with(word) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = processes_with(word)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    expect(not left, f"{left} still run after {within} s\n{text}")


def alone_refused():
    """If a program is refused, or is ended before its loop, its coordinator ends, too. The
    coordinator used to run for ever."""
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
        expect_gone(folder, 2, args)  # the coordinator has the other end of the pipe
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
    """If a program that runs alone cannot load the state from which it resumes, it ends with the
    reason. It used to wait for its coordinator, which waited for a worker."""
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
    """A program that runs alone ends at once if it leaves its loop or an exception ends the loop,
    and its job has a summary. It used to hang for ten seconds without output, and the job had no
    summary."""
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
    """A program that runs alone may have one job after the other, each with a coordinator. The
    second job used to look for the coordinator of the first, and to fail after a minute. A job that
    is over still has its seed, which used to be 0 then."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    said = begin_alone(folder, "20", "again", MAYFLY_SEED="7").communicate(timeout=90)[0]
    runs = os.listdir(os.path.join(folder, "runs"))
    expect("again Outcome.DONE" in said and len(runs) == 2, f"{runs}\n{said}")
    expect("the seed was 7\n" in said, said)
    shutil.rmtree(folder)


def alone_killed():
    """The coordinator of a program that runs alone ends when the program is killed, in its loop or
    before, unless it has other workers. It used to wait for a worker, for ten minutes or for
    ever."""
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
    """A job whose loop has not begun can be closed and made anew. A job whose loop ends with an
    exception, which the notebook catches, is over: its coordinator ends although the process goes
    on. The coordinator used to wait for the worker, lastly if job.steps() itself had raised it."""
    python_with("numpy")
    for how, named in (("raises", "ZeroDivisionError"), ("leaves", "Refused")):
        notebook_in_which_the_loop(how, named)


def notebook_in_which_the_loop(how, named):
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    cells = """if True:
        import gc, os, sys, time, weakref
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
                    if step.number == 20 and os.environ["HOW"] == "leaves":
                        break
                    step.add({"weight": weight}, 1 / (step.number < 30))
        except (ZeroDivisionError, mayfly.Refused) as error:
            print("failed", job.outcome, type(error).__name__, flush=True)
        try:
            made()
        except mayfly.Refused as error:
            print("refused:", error, flush=True)
        kept = weakref.ref(weight)
        del job, weight, step, microbatch
        gc.collect()
        print("kept:", kept() is not None, flush=True)
        time.sleep(60)"""
    name = os.path.basename(folder)
    process = subprocess.Popen([PYTHON, "-B", "-c", cells], cwd=folder, text=True,
                               env=environment_alone(NAME_OF_RUN=name, HOW=how),
                               stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = ""
    while "kept:" not in said and process.poll() is None:
        said += process.stdout.readline()
    expect_gone(f"runs/{name}", 10, said)
    process.kill()
    process.wait()
    expect(said.count("call its close() if its loop has not begun") == 2, said)
    expect("kept: True" in said, "the library may use memory that the program has freed\n" + said)
    expect(said.index("refused") < said.index(f"failed None {named}") < said.rindex("refused"),
           said)
    shutil.rmtree(folder)


def joined_in(run_dir):
    """The number of workers that have joined the job of this run directory."""
    with open(os.path.join(run_dir, "events.jsonl"), encoding="utf-8") as file:
        return sum(json.loads(line)["kind"] == "joined" for line in file)


def alone_twice():
    """Two programs that start at the same moment have separate jobs, and a program that names the
    run directory of a running job is refused. Such programs used to become one job without a
    message."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    slow = slow_program(folder)
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


def moves():
    """A program may change its working folder before its job is made, and again before the loop. It
    used to look there for the job's token, and to write its checkpoints there."""
    python_with("numpy")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    inner = os.path.join(folder, "elsewhere", "inner")
    os.makedirs(inner)
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "40", "moves", inner]
    command = [os.path.abspath(mayfly_run.BINARY), "run", "--run-dir", "run", *QUIET]
    for words, made in (([*command, "--workers", "2", "--", *program], []), (program, ["runs"])):
        done = subprocess.run(words, cwd=folder, env=environment_alone(), capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=120)
        expect(done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}")
        found = sorted(os.listdir(os.path.dirname(inner)))
        expect(found == ["inner", *made] and os.listdir(inner) == [], f"{words} {found}")
    expect(os.listdir(os.path.join(folder, "run", "checkpoints")), "there is no checkpoint")
    shutil.rmtree(folder)


def absent_token():
    """If the token file or the job file does not exist, the program ends with an error that names
    the file, also if the name is not UTF-8. It does not begin a new job instead."""
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
    """Runs the program; returns (run, the lines that the workers wrote, by name of the file)."""
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
    """Means over only the valid samples: the result of plain PyTorch but for rounding, and the same
    bits with three workers."""
    alone, written = used("weighted", 1)
    three, _ = used("weighted", 3)
    expect(float(written["difference"][0]) < 1e-5, written["difference"])
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    alone.remove()
    three.remove()


def speaks():
    """In each step one worker writes the loss; any other worker would write the same value."""
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
    """mayfly.torch.load() returns weights that two layers share under the names of both, and the
    extra parts."""
    run, written = used("tied", 1)
    expect(written.get("loaded") == ["yes"], f"{written}")
    run.remove()


def kept_gradients():
    """A gradient belongs to the program: neither the next step nor the end of the loop changes it,
    and adding to it after the loop changes nothing else. Gradients used to be in memory of the
    library, which was overwritten and then freed."""
    run, written = used("keeps", 2)
    expect([int(line) >= 160 for line in written["kept"]] == [True, True], f"{written}")
    run.remove()


def normed():
    """A model may have a computed tensor, such as the weight of weight_norm. A job with such a
    model used to fail when it was made, because the model cannot be copied."""
    alone, _ = used("normed", 1)
    three, _ = used("normed", 3)
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    alone.remove()
    three.remove()


def killed_reader():
    """If a process that reads ahead is killed, the program itself reads the samples. The loop used
    to wait for them for ever."""
    plain, _ = used("read", 1)
    killed, written = used("killed", 1)
    expect(len(written["killed"]) == 1 and "was ended from outside" in killed.logs(),
           killed.logs())
    expect(mayfly_run.digests(killed) == mayfly_run.digests(plain), killed.logs())
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    process = begin_alone(folder, "killed", folder, program="torch_usage.py")
    process.wait(60)  # it ends its other readers; their SIGTERM must not stop the job
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
    """The gradients of 16-bit parameters are summed in 32 bits, and the sums are the same for any
    number of workers."""
    alone, _ = used("half", 1, "200")
    three, _ = used("half", 3, "200")
    expect(mayfly_run.digests(alone) == mayfly_run.digests(three), three.logs())
    losses = [m["loss"] for m in three.metrics()]
    expect(sum(losses[-20:]) < 0.8 * sum(losses[:20]), f"{losses}")
    alone.remove()
    three.remove()


def random_evaluation():
    """Random numbers that a test set draws depend on the sample, not on the worker that evaluates
    it. The program's own sums are added over all workers."""
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
    """An evaluation may have sums for each of many classes. Their names used to be sent as one text
    that was too long for a message, so every worker, or the coordinator, aborted."""
    run, _ = used("classes", 2, "8")
    sums = {one["name"]: one["value"] for one in run.events("evaluation")[-1]["sums"]}
    expect(len(sums) == 150 and sums["intersection of class 149"] == 192 * 149, sums)
    run.remove()


def kept_state():
    """The other parts of the state are compared between workers, too, also NumPy scalars, of which
    only the type used to be compared. If a program does not load a part, the error of its worker
    names the part."""
    run, _ = used("extra", 2, "3000", ends=1)
    expect("states differ" in run.output(), run.logs())
    run.remove()
    run, _ = used("forgets", 2, "6000", args=["--chaos", "join@step=20"])
    words = "has not adopted the tensor mayfly.hash.extra.kept of the optimizer unchanged"
    failed = run.events("program_failed")
    expect(len(failed) == 1 and words in failed[0]["detail"], run.logs())
    run.remove()


def large_extra():
    """Little memory is reserved for the growth of large extra parts, such as mean weights, because
    a joining worker receives the reserve as well. Four times their size used to be reserved."""
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
    """A buffer that a module assigns anew, like the centre of DINO, is trained like the others. The
    library used to write on to the first memory of the buffer, which had been freed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    runs, written = zip(*[changed("replaces", 1), changed("replaces", 3, args=disturbed)])
    values = {line for one in written for line in one["center"]}
    expect(len(values) == 1 and str([0.0] * 8) not in values, values)
    expect_same_digests(runs)


def moved_parameters():
    """A program may replace the memory of parameters, by p.data or vector_to_parameters(): no bit
    changes. The library used to use the first memory, which had been freed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("plain", 1)[0], changed("moved", 1)[0],
                         changed("moved", 3, args=disturbed)[0]])


def copied_state():
    """An optimizer whose state_dict() makes copies trains like others. The library used to read
    these copies after their memory was freed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("plain", 1)[0], changed("copies", 1)[0],
                         changed("copies", 3, args=disturbed)[0]])


def other_optimizers():
    """An optimizer may have a state from the beginning (adagrad), no state, a state of another type
    than its parameters (nadam), or one of lists and dictionaries (nested). adagrad used to end the
    program. So did nested: its size was not reserved, and a joining worker could not load tensors
    without elements. nadam used to fail in a joining worker."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    for how in ("adagrad", "stateless", "nadam", "nested"):
        expect_same_digests([changed(how, 1)[0], changed(how, 3, args=disturbed)[0]])


def empty_parts():
    """A parameter or a buffer without elements, by which some models find their device, changes no
    result and is in the checkpoint. Such a model used to be refused."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    plain, alone = changed("plain", 1)[0], changed("empty_parts", 1)[0]
    losses = [[m["loss"] for m in run.metrics()] for run in (plain, alone)]
    expect(losses[0] == losses[1], losses)
    expect_same_digests([alone, changed("empty_parts", 3, args=disturbed)[0]])
    plain.remove()


def frozen_layer():
    """A layer that the program has put into eval mode is still in eval mode after an evaluation,
    also after the trial evaluation before the loop."""
    expect_same_digests([changed("frozen", 1)[0], changed("frozen", 2)[0]])


def random_collate():
    """The collate function may draw random numbers: the bits are the same for any number of workers
    and of processes that read ahead."""
    args = ["--eval-every-epochs", "1"]
    runs, written = zip(*[changed(how, workers, args=args) for how in ("mixed", "mixed_ahead")
                          for workers in (1, 3)])
    found = {line for one in written for line in one["evaluations"]}
    expect(len(found) == 1, found)
    expect_same_digests(runs)


def random_updates():
    """An update may draw random numbers, as in SGLD or private training: all workers draw the same.
    The generators used to continue from each worker's last microbatch, so the states differed."""
    disturbed = [*WAITING, "--chaos", changes(8)]
    expect_same_digests([changed("noisy", 1)[0], changed("noisy", 3, args=disturbed)[0]])


def other_samples():
    """A sample may be a dictionary or a single tensor, also in an evaluation and in job.check()."""
    for how in ("dictionary", "tensor"):
        changed(how, 1)[0].remove()


def diverged():
    """If a job fails, its program ends with the reason, and not with a later error about the
    missing loss."""
    run, _ = changed("diverges", 2, ends=1)
    expect("MayflyError: " in run.logs() and "TypeError" not in run.logs(), run.logs())
    run.remove()


def repeated_evaluation():
    """An evaluation that is repeated, because a worker was lost after it, is recorded once."""
    run, written = changed("killed", 3, args=["--eval-every-epochs", "1"])
    expect(written["steps"] == [str([6, 12, 18, 24])] * 2, f"{written}\n{run.logs()}")
    run.remove()


def gained_parts():
    """A program that resumes a run may have a scheduler and extra parts that the run did not have:
    they keep their initial state, and a line of the log reports it."""
    before, _ = changed("plain", 1)
    again, _ = changed("gains", 2, "40", args=["--resume", before.run_dir])
    for name in ("the scheduler", "the extra part kept"):
        expect(f"the received state has nothing for {name}, which keeps its initial state"
               in again.logs(), again.logs())
    again.remove()
    before.remove()


def tried_again():
    """After a job was refused, the same process can make another one, with or without a
    launcher."""
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
    """Each misuse ends the program with one line about the error: exit code 2 if the job could not
    begin, 1 if it failed later."""
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
            ("thaws", 1, "first.weight was frozen when the job was made, and requires a gradient"),
            ("renewed", 1, "the parameter last.weight was replaced by another one"),
            ("filled", 1, "extremes was float32[0, 2] on cpu when the job was made, and is"),
            ("converted", 1, "was float32[8, 6] on cpu when the job was made, and is float64"),
            ("stream", 2, "data has no length or no index"),
            ("loader", 2, "data is a DataLoader; give the job its data set"),
            ("renorm", 2, "the layer words has a max_norm: it would change its weights"),
            ("share", 2, "correct is 0.5, and not a number of correct predictions"),
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
    """Notes and the error of a program are recorded, also if their text is not UTF-8. Such a text
    used to be lost, and with it the reason for the job's failure."""
    run, _ = changed("surrogate", 1, ends=1)
    notes = {(one["of"], one["detail"]) for one in run.events("note")}
    expect(notes == {("read", "of ?")}, f"{notes}\n{run.logs()}")
    failed = [one["detail"] for one in run.events("program_failed")]
    expect("ValueError: no file ?" in "".join(failed), f"{failed}\n{run.logs()}")
    run.remove()


def alone_stopped():
    """Ctrl-C or SIGTERM to a program that runs alone stops its job with a checkpoint."""
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


def stopped_while_it_prints():
    """Ctrl-C also stops the job with a checkpoint if it interrupts a print() to the same file. It
    used to raise "reentrant call" in the program, which then ended without a checkpoint."""
    printing = """if True:
        import io, signal, sys
        from mayfly import _alone
        class Stream(io.RawIOBase):
            def writable(self):
                return True
            def write(self, data):
                if not stopped:
                    signal.raise_signal(signal.SIGINT)
                return len(data)
        class Coordinator:
            def send_signal(self, number):
                stopped.append(number.name)
        stopped = []
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(Stream()))
        _alone.StopSignals(Coordinator()).begin()
        print("a line of the program", file=sys.stderr, flush=True)
        print(stopped)"""
    done = subprocess.run([PYTHON, "-B", "-c", printing], capture_output=True, text=True,
                          timeout=30, env=environment_alone())
    expect(done.stdout.strip() == "['SIGINT']" and "stopping with a checkpoint" in done.stderr,
           done.stdout + done.stderr)


def refused():
    """Impossible settings are refused in one line, with exit code 2."""
    for args, program, words in (
            (["--sync", "asp"], [LINEAR, "10"], "cannot be combined with parameter servers"),
            (["--backend", "mpi"], [LINEAR, "10"], "combined with the backends mpi and nccl"),
            (["--device", "cuda"], [LINEAR, "10"], "device cuda applies to the networks of mayfly"),
            (["--model", "resnet20"], [LINEAR, "10"], "--model names a network of mayfly"),
            (["--chaos", "hang@step=3:for=100"], [LINEAR, "10"], "but not hung"),
            ([], ["no-such-program"], "there is no program 'no-such-program' in PATH"),
            ([], [LINEAR, "0"], "steps must be at least 1")):
        run = Run(QUIET + args, program=program)
        code = run.wait()
        lines = run.output().strip().splitlines()
        expect(code == 2 and words in lines[-1], f"{args} {program}: {code} {lines}")
        expect(program[0] == LINEAR or not os.path.exists(run.run_dir), f"{program}: a directory")
        run.remove()
    for program in (LINEAR, LINEAR + "-cpp"):
        done = subprocess.run([program, "10"], capture_output=True, text=True, timeout=60)
        expect(done.returncode == 2 and "no coordinator is named: start the program with `mayfly "
               "run" in done.stderr, done.stderr)
    done = subprocess.run([mayfly_run.BINARY, "run"], capture_output=True, text=True, timeout=60)
    expect(done.returncode == 2 and "run expects a program" in done.stderr, done.stderr)


def handles():
    """A second job of a process and a second mf_start() of a job are refused with a message; they
    used to end the process with an internal error. A job that failed to start can be closed, and
    another one opened. Notes are events of kind note: a note with the name of one of Mayfly's
    events used to make the run unreadable. A note from before the start used to be lost."""
    run = trained([PYTHON, "-B", os.path.join(HERE, "handles_program.py")], 1)[3]
    expect("refused in words" in run.logs(), run.logs())
    notes = [(one["of"], one["detail"]) for one in run.events("note")]
    expect(notes == [(of, "of its own: ?") for of in ("early", "evaluation", "checkpoint",
                                                            "started")],
           notes)
    expect(not run.events("evaluation"), run.events("evaluation"))
    run.remove()


def other_weights():
    """Workers that begin with different weights are refused, and the message tells the user to seed
    the model."""
    python_with("numpy")
    run = Run(QUIET + ["--workers", "2"],
              program=[PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "50", "unseeded"])
    code = run.wait()
    text = run.logs()
    expect("seed the model alike on all workers" in text, text)
    expect(code in (0, 2), f"{code}\n{text}")
    run.remove()


def leaves_early():
    """A worker that asks to leave before it is a member leaves as soon as it is one. The request
    used to be lost."""
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
    """Each worker has a number that no other worker on its host has, so that a program can choose a
    GPU by it. A worker that joins gets the number of a lost one."""
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
    """If a worker's program fails, the worker is lost at once, although the process runs on for a
    while. The other workers used to wait until it ended."""
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
    """If a microbatch fails on two workers, the job ends, and the error names its samples."""
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
    """A buffer with infinite values, such as a mask, may be constant, and metrics and buffers of a
    microbatch of weight 0 are ignored. Both used to end the job as if it had diverged. The error
    about a value that cannot be summed names it."""
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
    """An error names each array that cannot be trained, each gradient that does not fit the
    parameters, each array that the program has replaced, and a number of samples beyond 64 bits.
    They used to be ignored or to end the process, or the library trained freed memory. A number may
    be the gradient of an array without dimensions."""
    python_with("numpy")
    for how, words in (
            ("read_only", "array bias (type float32) must be contiguous and writable"),
            ("swapped", "array bias (type >f4) must be contiguous and writable"),
            ("huge", "train_samples is 18446744073709551872, which no job can have"),
            ("listed", "bias is not a NumPy array, but of the type list"),
            ("number", "the gradient of bias (float64[]) is not a contiguous array of float32"),
            ("misspelt", "a gradient of bais, which is not a parameter"),
            ("lacks", "bias has no gradient; None stands for zeros"),
            ("shaped", "the gradient of weight (float32[2, 4]) is not a contiguous array of "
                       "float32 with the parameter's shape, [8]"),
            ("replaces", 'parameters["bias"] was replaced by another array after the job'),
            ("replaces_state", 'state["velocity.bias"] was replaced by another array after the')):
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
    """If the program has a handler of SIGTERM, the signal calls it, and the worker leaves, too.
    After the loop, signals have the effect that they had before the job. They used to end the
    program."""
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
    """SIGTERM to the launcher ends programs that go on after the job's end; the job's summary is
    already written."""
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
    """A program may break from its loop in the step in which its worker leaves (docs/library.md).
    That used to be treated as an early end, and the job had no outcome."""
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
            def __init__(self, job):
                pass
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
                step._current = None  # it has a result
            if not step.updates:
                break
        print(job.outcome)
        Core._open = None"""
    done = subprocess.run([PYTHON, "-B", "-c", breaking], capture_output=True, text=True,
                          timeout=30, env=environment_alone())
    expect(done.stdout.strip() == "Outcome.DRAINED" and not done.stderr, done.stdout + done.stderr)


def leaves_at_the_end():
    """If another thread or a signal handler calls job.leave() while the loop ends, the call is
    refused because there is no job any more. It used to use memory that was being freed."""
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


def interrupted_at_the_end():
    """If Ctrl-C interrupts the wait for the coordinator after the loop, as in a notebook while the
    last checkpoint is copied, another job can be made. It used to be refused for good."""
    python_with("numpy")
    closing = """if True:
        import ctypes, os
        from mayfly import _abi, _core
        class Library:
            def mf_close(self, handle):
                pass
        class Coordinator:
            def wait(self, patience):
                raise KeyboardInterrupt
        def connect(core):
            core._handle = ctypes.c_void_p(1)
            core._coordinator, core._environment = Coordinator(), {"MAYFLY_COORDINATOR": None}
            os.environ["MAYFLY_COORDINATOR"] = "here:1"
        _abi.load = Library
        _core.Core._connect = connect
        for count in range(2):
            try:
                _core.Core().close()
            except KeyboardInterrupt:
                print(count, os.environ.get("MAYFLY_COORDINATOR"))"""
    done = subprocess.run([PYTHON, "-B", "-c", closing], capture_output=True, text=True, timeout=30,
                          env=environment_alone())
    expect(done.stdout == "0 None\n1 None\n", done.stdout + done.stderr)


def of_a_script():
    """A program that a shell script starts behaves like one that the launcher starts itself: the
    same bits when workers are killed, leave and join, and it ends together with the launcher."""
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
    """A job that resumes a run reports which settings of its program differ from that run."""
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
    """A state whose arrays differ from those of the program in name or shape is refused. A longer
    array used to be written beyond the end of the program's array."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py")]
    run = Run(QUIET + ["--workers", "1"], program=program + ["30"])
    run.finish()
    for how, words in (("narrow", "the array velocity.weight of the state is float32[4] in this "
                                  "program, and float32[8] in the state that was received"),
                       ("renamed", "the array momentum.bias of the state is float32[1] in this "
                                   "program, and absent in the state that was received")):
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
    """The Python package declares the functions and structures as mayfly.h does."""
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
    """A program may fork: the end of its child is not reported as the end of the worker."""
    python_with("numpy")
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "100"]
    plain = trained(program, 1)
    summary, digests, _, run = trained([*program, "forks"], 2)
    expect(digests == plain[1], f"{summary}\n{run.logs()}")
    expect(not run.events("program_failed") and not run.events("lost"), run.logs())
    run.remove()
    plain[3].remove()


def checked():
    """job.check() names the parameter whose gradient differs each time it is computed."""
    python_with("torch")
    program = [PYTHON, "-B", os.path.join(HERE, "torch_program.py")]
    run = trained([*program, "checked", "2"], 1)[3]
    run.remove()
    run = Run(QUIET, program=[*program, "random", "2"], timeout=120)
    code = run.wait()
    text = run.logs()
    expect(code == 2 and "the gradient of 0.weight differs each time" in text,
           f"{code}\n{text}")
    run.remove()


def torch_reference():
    """Apart from the rounding of sums, a job computes the same as a loop of plain PyTorch that adds
    up the gradients of microbatches."""
    python_with("torch")
    run = trained([PYTHON, "-B", os.path.join(HERE, "torch_reference.py"), "30"], 1)[3]
    difference = float(re.search(r"difference (\S+)", run.logs()).group(1))
    expect(difference < 1e-4, f"{difference}\n{run.logs()}")
    run.remove()


def libtorch():
    """The example that uses PyTorch's C++ interface has the same bits with several workers as with
    one."""
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
    """Builds the C++ example with `new` in place of `old` in its text; returns the program's
    path."""
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
    """If a result is refused, the loop in C++ ends, and the program prints the reason. A failed
    call outside the loop, here job.note(), changes nothing; an update used to be skipped without a
    message."""
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
    """If a program does not load the optimizer's tensors of a received state, its worker reports
    that, and the others go on. The worker used to be evicted for wrong weights."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    program = changed_example(
        folder, "untaken", "std::memcpy(velocity.data(), state.tensors[0].data, sizeof velocity);",
        "")
    run = trained([program, "4000"], 2, chaos="join@step=40")[3]
    words = "has not adopted the tensor velocity of the optimizer unchanged"
    failed = run.events("program_failed")
    expect(len(failed) == 1 and words in failed[0]["detail"], run.logs())
    expect(not run.events("corrupted"), run.logs())
    run.remove()
    shutil.rmtree(folder)


def other_optimizer():
    """The examples refuse a checkpoint of another optimizer. They used to read beyond the end of
    its tensors."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    momentum = 'momentum{"velocity", MF_F32, {kInputs'
    run = trained([changed_example(folder, "narrow", momentum + " + 1}", momentum + "}"), "20"],
                  1)[3]
    for program in (LINEAR, LINEAR + "-cpp"):
        again = Run(QUIET + ["--workers", "1", "--resume", run.run_dir], program=[program, "40"])
        code = again.wait()
        expect(code != 0 and "the received state has another optimizer" in again.logs(),
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
    """If the library uses copies of the tensors, as for a GPU, the bits are the same as without
    copies, also if the program loads weights between making the job and the loop. Tensors that are
    not contiguous can be trained."""
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
        "forks": forks, "moves": moves,
        "checked": checked, "torch_cnn": torch_cnn, "torch_reference": torch_reference,
        "torch_transformer": torch_transformer,
        "weighted": weighted, "speaks": speaks, "stops_early": stops_early, "misused": misused,
        "other_text": other_text,
        "random_evaluation": random_evaluation, "tied_weights": tied_weights,
        "kept_state": kept_state, "large_extra": large_extra,
        "alone_stopped": alone_stopped, "stopped_while_it_prints": stopped_while_it_prints,
        "libtorch": libtorch, "untaken": untaken,
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
        "breaks_at_the_end": breaks_at_the_end,
        "interrupted_at_the_end": interrupted_at_the_end, "shuffled": shuffled}))
