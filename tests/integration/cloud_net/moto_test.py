"""Goal: Mayfly's EC2 provider works with an independent imitation of EC2: moto, which checks
signatures against the keys that it has issued, and answers in AWS's XML.
Method: the doctor, a job that requests and releases servers, and a wrong secret. Skipped if
moto_server is not installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import mayfly_run
from mayfly_run import SKIP, Run, expect

REGION = "us-east-1"
IMAGE = "ami-12c6146b"  # one that moto has
POLICY = ('{"Version": "2012-10-17", "Statement": '
          '[{"Effect": "Allow", "Action": "*", "Resource": "*"}]}')
PATIENCE_S = 60


class Moto:
    CALLS_WITHOUT_KEYS = 3

    def __init__(self):
        self.log = tempfile.NamedTemporaryFile(prefix="mayfly-moto-")
        self.process = subprocess.Popen(
            ["moto_server", "-H", "127.0.0.1", "-p", "0"], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log,
            env=dict(os.environ, INITIAL_NO_AUTH_ACTION_COUNT=str(self.CALLS_WITHOUT_KEYS)))
        self.endpoint = self._wait_for(r"Running on (http://127\.0\.0\.1:[0-9]+)")
        self._iam("CreateUser", UserName="mayfly")
        self._iam("PutUserPolicy", UserName="mayfly", PolicyName="all", PolicyDocument=POLICY)
        answer = self._iam("CreateAccessKey", UserName="mayfly")
        self.keys = {"AWS_ACCESS_KEY_ID": re.search("<AccessKeyId>(.*?)<", answer).group(1),
                     "AWS_SECRET_ACCESS_KEY": re.search("<SecretAccessKey>(.*?)<", answer).group(1)}

    def _wait_for(self, pattern):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with open(self.log.name, errors="replace") as f:
                found = re.search(pattern, f.read())
            if found:
                return found.group(1)
            time.sleep(0.05)
        with open(self.log.name, errors="replace") as f:
            raise mayfly_run.Failure(f"moto does not start\n{f.read()}")

    def _iam(self, action, **form):
        form = {"Action": action, "Version": "2010-05-08", **form}
        request = urllib.request.Request(
            self.endpoint, data=urllib.parse.urlencode(form).encode(), headers={
                "Content-Type": "application/x-www-form-urlencoded", "Authorization":
                "AWS4-HMAC-SHA256 Credential=first/20260101/us-east-1/iam/aws4_request, "
                "SignedHeaders=host, Signature=none"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return answer.read().decode()

    def stop(self):
        self.process.kill()
        self.process.wait()


def cloud_words(moto):
    return ["--cloud-provider", "ec2", "--cloud-offers", "t3.micro@us-east-1a:spot=0.1",
            "--cloud-options", f"region={REGION} image={IMAGE} endpoint={moto.endpoint}"]


def cloud(moto, *verb, **changed):
    done = subprocess.run([mayfly_run.BINARY, "cloud", *verb, *cloud_words(moto)],
                          env=dict(os.environ, **{**moto.keys, **changed}), capture_output=True,
                          text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


def job(moto, folder):
    """A job that no worker ever joins, because its servers exist only in moto."""
    startup = os.path.join(folder, "startup")
    with open(startup, "w") as f:
        f.write("#!/bin/sh\n")
    with open(os.path.join(folder, "output.txt"), "wb") as output:
        process = subprocess.Popen(
            [mayfly_run.BINARY, "coordinator", "--bind-host", "127.0.0.1",
             "--run-dir", os.path.join(folder, "run"),
             "--workers", "2", "--data", "procedural:512", "--cloud-startup", startup]
            + cloud_words(moto), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, env=dict(os.environ, **moto.keys))
    return Run.attach(folder, process, PATIENCE_S)


def is_event(run, kind, count):
    return sum(e["kind"] == kind for e in run.lines("events.jsonl")) >= count


def wait_for_events(run, kind, count):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        has_ended = run.process.poll() is not None
        if is_event(run, kind, count):
            return
        expect(time.monotonic() < deadline and not has_ended,
               f"no {count} of {kind}\n{run.logs()}")
        time.sleep(0.02)


def moto_understands_us():
    moto = Moto()
    code, text = cloud(moto, "doctor")
    expect(code == 0 and "t3.micro" in text, f"the doctor: {code} {text}")
    code, text = cloud(moto, "doctor", AWS_SECRET_ACCESS_KEY="another")
    expect(code == 1, f"a wrong secret is accepted: {text}")
    folder = tempfile.mkdtemp(prefix="mayfly-moto-")
    run = job(moto, folder)
    wait_for_events(run, "server_granted", 2)
    code, text = cloud(moto, "list", "run")
    expect(code == 0 and text.strip().endswith("2 servers"), f"the list: {code} {text}")
    run.command("stop")
    run.wait()
    expect(is_event(run, "server_ended", 2), f"not released\n{run.logs()}")
    code, text = cloud(moto, "list", "run")
    expect(code == 0 and text.strip().endswith("0 servers"), f"the list: {code} {text}")
    moto.stop()
    shutil.rmtree(folder, ignore_errors=True)


def usable():
    return shutil.which("moto_server") is not None and subprocess.run(
        ["moto_server", "-h"], capture_output=True, timeout=PATIENCE_S).returncode == 0


if __name__ == "__main__":
    if not usable():
        print("skipped: moto_server is not installed")
        raise SystemExit(SKIP)
    sys.exit(mayfly_run.main({"moto_understands_us": moto_understands_us}))
