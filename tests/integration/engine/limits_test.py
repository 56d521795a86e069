"""Goal: a process works, or ends with one clear line, if it is started with closed standard
descriptors, system limits, files that are not regular, or a pipe whose reader has ended.
Method: a shell closes or limits something and then executes the binary.
"""
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time

import mayfly_run
from bad_input_test import refused
from mayfly_run import SMALL_JOB, Failure, Run, expect

JOB = SMALL_JOB + ["--steps", "6", "--workers", "1", "--threads", "1"]


def by_shell(script, folder, args):
    """The words of a shell command that runs `script` and then executes `mayfly train ARGS`."""
    return ["sh", "-c", script + '; exec "$@"', "sh", mayfly_run.BINARY, "train", "--run-dir",
            os.path.join(folder, "run")] + args


def started_by_shell(script, args, timeout=120):
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    words = by_shell(script, folder, args)
    with open(os.path.join(folder, "output.txt"), "wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
    return Run.attach(folder, process, timeout)


def closed_descriptors():
    """Any of the three standard descriptors may be closed: the result of the job is the same, and
    no output is written into a file that got the descriptor's number."""
    plain = Run(JOB)
    digest = plain.finish()["final_digest"]
    plain.remove()
    for count in (1, 2, 3):
        for closed in itertools.combinations((0, 1, 2), count):
            run = started_by_shell("exec " + " ".join(f"{fd}>&-" for fd in closed), JOB)
            expect(run.finish()["final_digest"] == digest, f"without {closed}: other bits")
            with open(run.path("view.log.lock")) as f:
                lock = f.read()
            expect(lock.strip().isdigit(), f"without {closed}: view.log.lock holds {lock!r}")
            expect(all("kind" in line for line in run.lines("events.jsonl")), f"without {closed}")
            run.remove()


def file_size_limit():
    """A limit for the size of files acts like a full disk: no process is killed, and the reason is
    printed."""
    steps = ["--steps", "12", "--workers", "2", "--checkpoint-every", "5"]
    run = started_by_shell("ulimit -f 16", JOB + steps)  # blocks of 512 bytes
    code = run.wait()
    text = run.output()
    expect(code in (0, 1), f"exit code {code}\n{run.logs()}")
    expect("signal" not in text, text)
    expect("File too large" in text, text)
    expect("12 steps" in text, f"training did not go on\n{text}")
    run.remove()
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    done = subprocess.run(by_shell("ulimit -f 0", folder, JOB + steps), capture_output=True,
                          text=True, timeout=60)  # a pipe, because files cannot get any bytes
    lines = (done.stdout + done.stderr).splitlines()
    expect(done.returncode in (1, 2) and len(lines) == 1 and "File too large" in lines[0],
           f"exit code {done.returncode}, said {lines}")
    expect(not os.listdir(folder), f"left behind: {os.listdir(folder)}")
    shutil.rmtree(folder)


def lost_output():
    """A command whose output cannot be written fails. If the reason is a closed pipe it prints no
    error."""
    long, short = ["train", "--help-all"], ["token"]
    for words in (long, short):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([mayfly_run.BINARY] + words, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
        lines = done.stderr.splitlines()
        expect(done.returncode == 1 and len(lines) == 1 and "output is not complete" in lines[0],
               f"full, {words}: exit code {done.returncode}, said {lines}")
        expect(words == long or "No space left on device" in lines[0], lines)
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([mayfly_run.BINARY] + words, stdout=writer, stderr=subprocess.PIPE,
                              text=True, timeout=60)
        os.close(writer)
        expect(done.returncode == 1 and done.stderr == "",
               f"closed, {words}: exit code {done.returncode}, said {done.stderr}")


def few_descriptors():
    """A low soft limit of descriptors has no effect if the hard limit is higher. If the hard limit
    keeps some workers from connecting, the job prints why it does not begin."""
    run = started_by_shell("ulimit -S -n 24", JOB + ["--workers", "8"])
    run.finish()
    run.remove()
    run = started_by_shell("ulimit -n 24", JOB + ["--workers", "8"])
    while "ulimit -n" not in run.output():
        expect(run.process.poll() is None, f"ended without a word\n{run.logs()}")
        if time.monotonic() - run.started > run.timeout:
            raise Failure(f"nothing said\n{run.logs()}")
        time.sleep(0.05)
    expect("the limit is 24" in run.output(), run.output())
    mayfly_run.kill(run.process.pid, signal.SIGKILL)
    run.remove()


def pipes_and_loops():
    """The program does not wait for a named pipe without a writer, and refuses circular links."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    pipe, loop = os.path.join(folder, "pipe.tar"), os.path.join(folder, "loop")
    os.mkfifo(pipe)
    os.symlink("loop", loop)
    for flag in ("--config", "--init-from", "--token-file"):
        refused(["train"] + JOB + [flag, pipe], "pipe.tar is not a regular file")
    for flag in ("--config", "--token-file", "--run-dir"):
        refused(["train"] + JOB + [flag, loop], "loop", "Too many levels of symbolic links")
    run = Run(JOB)
    run.finish()
    checkpoint = run.path("checkpoints", "step-6")
    for name in os.listdir(checkpoint):
        path = os.path.join(checkpoint, name)
        os.rename(path, path + ".good")
        os.mkfifo(path)
        for words in (["digest", checkpoint], ["train"] + JOB + ["--resume", checkpoint]):
            refused(words, f"{name} is not a regular file")
        os.rename(path + ".good", path)
    run.remove()
    shutil.rmtree(folder)


def names_and_addresses():
    job = ["train"] + JOB
    refused(job + ["--run-dir", "L\udce4ufe"], "run_dir is not valid UTF-8")
    for host in ("0.0.0.0", "::", "[::]"):
        refused(job + ["--bind-host", host], f"--bind-host {host}: ")
        refused(["worker", "--coordinator", "127.0.0.1:9", "--bind-host", host],
                f"--bind-host {host}: ")
    run = Run(JOB + ["--bind-host", "[::1]"])
    code = run.wait()
    if "annot assign requested address" in run.output():
        print("skipped part: this machine has no ::1")
    else:
        expect(code == 0, f"[::1]\n{run.logs()}")
    run.remove()


def token_for_everybody():
    run = Run(JOB + ["--steps", "1"])
    run.finish()
    token = run.path("token")
    expect(os.stat(token).st_mode & 0o777 == 0o600, "our own is open to others")
    os.chmod(token, 0o644)
    for words in (["train"] + JOB, ["worker", "--coordinator", "127.0.0.1:9", "--data",
                                    "procedural:512"], ["status", "127.0.0.1:9"]):
        refused(words + ["--token-file", token], f"chmod 600 {token}")
    run.remove()


def deep_keys():
    deep = ".".join("a" * 50_000)
    for text, line in ((deep + " = 1\n", 1), (f"lr = 0.1\n[{deep}]\n", 2)):
        refused(["train", "--config", "k.toml"], f"k.toml line {line}: ", given={"k.toml": text})


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "closed_descriptors": closed_descriptors,
        "file_size_limit": file_size_limit,
        "lost_output": lost_output,
        "few_descriptors": few_descriptors,
        "pipes_and_loops": pipes_and_loops,
        "names_and_addresses": names_and_addresses,
        "token_for_everybody": token_for_everybody,
        "deep_keys": deep_keys}))
