"""Goal: before a job is started, `mayfly cloud doctor` names missing credentials, projects, zones,
machine types, images, quotas and permissions. It changes nothing.
Method: the program runs against the fake cloud, with one error at a time.
"""
import os
import subprocess
import sys

import mayfly_run
from fake_cloud_process import FakeCloud
from mayfly_run import expect

CLOUD = FakeCloud()
AT = CLOUD.addresses
GCE = {"project": AT["project"], "zone": "zone-a", "endpoint": AT["gce"]}
EC2 = {"region": AT["region"], "image": "ami-1", "endpoint": AT["ec2"]}


def doctor(provider, options, offers, **environment):
    """Runs the doctor; returns (exit code, lines of its output)."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    keep.update(SSL_CERT_FILE=AT["ca_file"], GOOGLE_APPLICATION_CREDENTIALS=AT["key_file"],
                AWS_ACCESS_KEY_ID=AT["access_key"], AWS_SECRET_ACCESS_KEY=AT["secret_key"])
    keep.update(environment)
    words = " ".join(f"{name}={value}" for name, value in options.items())
    done = subprocess.run([mayfly_run.BINARY, "cloud", "doctor", "--cloud-provider", provider,
                           "--cloud-options", words, "--cloud-offers", offers],
                          env=keep, capture_output=True, text=True, timeout=100)
    expect(not any(secret in done.stdout + done.stderr
                   for secret in (AT["secret_key"], "PRIVATE KEY", "ya29.")), "a secret is shown")
    return done.returncode, done.stdout.splitlines()


def expect_missing(found, *words):
    code, lines = found
    missing = [line for line in lines if line.startswith("missing")]
    expect(code == 1 and len(missing) == 1 and all(word in missing[0] for word in words),
           f"one thing is missing, {words}: {code} {lines}")


def expect_fine(found, *words):
    code, lines = found
    expect(code == 0 and lines and all(line.startswith("ok") for line in lines), f"{code} {lines}")
    text = "\n".join(lines)
    expect(all(word in text for word in words), f"{words} were looked at: {lines}")


def gce():
    offers = "n1-standard-8@zone-a:spot=0.1,n1-standard-8@zone-b:on_demand=0.3"
    expect_fine(doctor("gce", GCE, offers), "token", "zone-b", "n1-standard-8 in zone-a",
                "debian-12", "CPUS 4 of 24", "list servers")
    expect_missing(doctor("gce", {**GCE, "image": "global/images/none"}, offers), "images/none")
    expect_missing(doctor("gce", GCE, "huge@zone-a:spot=0.1"), "huge")
    expect_missing(doctor("gce", GCE, "n1-standard-8@zone-x:spot=0.1"), "zone-x")
    CLOUD.control("set", quotas={"CPUS": [24, 24], "PREEMPTIBLE_CPUS": [0, 0]})
    expect_missing(doctor("gce", GCE, "n1-standard-8@zone-a:spot=0.1"), "no quota left",
                   "CPUS 24 of 24")
    CLOUD.control("reset")
    expect_missing(doctor("gce", GCE, offers, GOOGLE_APPLICATION_CREDENTIALS="/no/such/file"),
                   "/no/such/file")


def ec2():
    offers = "p3.2xlarge@zone-a:spot=0.9"
    expect_fine(doctor("ec2", EC2, offers), "keys from", "list servers",
                "start p3.2xlarge with ami-1")
    expect_missing(doctor("ec2", {**EC2, "image": "ami-none"}, offers), "ami-none")
    expect_missing(doctor("ec2", EC2, "huge@zone-a:spot=0.1"), "huge")
    code, lines = doctor("ec2", EC2, offers, AWS_SECRET_ACCESS_KEY="another")
    expect(code == 1 and "AuthFailure" in "".join(lines), f"{code} {lines}")
    made = [m for m in CLOUD.control("machines")]
    expect(not made, f"the doctor makes machines: {made}")


if __name__ == "__main__":
    sys.exit(mayfly_run.main({"gce": gce, "ec2": ec2}))
