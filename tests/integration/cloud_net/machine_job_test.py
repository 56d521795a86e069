"""Goal: the startup script alone makes a new machine a worker. The machine fetches the bundle,
checks its hash, joins the job, reacts to notices, and shuts down when its worker has ended. A wrong
bundle is not run.
Method: machines of the fake Compute Engine run examples/cloud/start_worker.sh as processes. One
machine gets a notice, another one vanishes. The job must have the bits of an undisturbed run.
"""
import hashlib
import json
import os
import ssl
import tempfile
import time
import urllib.request

import mayfly_run
from cluster import Cluster
from fake_cloud_job import bundle_of
from fake_cloud_process import FakeCloud
from mayfly_run import SMALL_JOB, Run, expect

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
JOB = SMALL_JOB + ["--steps", "120", "--threads", "1"]
SLOW = ["--inject", "slow=4x"]  # machines start, get notices and end while the job goes on


def bundle_and_digest():
    path = bundle_of(mayfly_run.BINARY)
    with open(path, "rb") as f:
        return path, hashlib.sha256(f.read()).hexdigest()


def startup_script(bundle, digest, endpoint, token):
    with open(os.path.join(ROOT, "examples", "cloud", "start_worker.sh")) as f:
        lines = f.read().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("bundle_url="):
            lines[number] = f"bundle_url=file://{bundle}\n"
        elif line.startswith("bundle_sha256="):
            lines[number] = f"bundle_sha256={digest}\n"
    return ("".join(lines).replace("{coordinator}", endpoint).replace("{token}", token)
            .replace("{worker_args}", " ".join(JOB + SLOW)))


def insert(cloud, name, script):
    """Creates a machine like any client of Compute Engine."""
    token = cloud.control("token")["access_token"]
    base = f"{cloud.addresses['gce']}/compute/v1/projects/{cloud.addresses['project']}/zones/zone-a"
    context = ssl.create_default_context(cafile=cloud.addresses["ca_file"])

    def post(path, body):
        request = urllib.request.Request(base + path, data=json.dumps(body).encode(), headers={
            "Authorization": "Bearer " + token, "Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())

    operation = post("/instances", {
        "name": name, "machineType": "zones/zone-a/machineTypes/small",
        "disks": [{"initializeParams": {"sourceImage": "debian-12"}}],
        "networkInterfaces": [{}],
        "metadata": {"items": [{"key": "startup-script", "value": script}]}})
    while operation["status"] != "DONE":
        operation = post(f"/operations/{operation['name']}/wait", {})


def state_of(cloud, name):
    return {m["name"]: m["state"] for m in cloud.control("machines")}[name]


def wait_gone(cloud, name):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        cloud.control("collect")
        if state_of(cloud, name) in ("stopped", "gone"):
            return
        time.sleep(0.02)
    raise mayfly_run.Failure(f"{name} does not end")


def undisturbed_digest():
    run = Run(JOB + ["--workers", "1"])
    expect(run.wait() == 0, run.logs())
    digest = run.summary()["final_digest"]
    run.remove()
    return digest


def start(folder):
    cloud = FakeCloud("--run-startup", "--folder", os.path.join(folder, "cloud"))
    cluster = Cluster(folder, JOB + SLOW, timeout=250)
    coordinator = cluster.start_coordinator(3)
    with open(cluster.token_file) as f:
        token = f.read().strip()
    return cloud, cluster, coordinator, token


def job():
    folder = tempfile.mkdtemp(prefix="mayfly-machine-")
    cloud, cluster, coordinator, token = start(folder)
    script = startup_script(*bundle_and_digest(), cluster.endpoint(), token)
    for name in ("one", "two", "three", "four"):
        insert(cloud, name, script)
    cluster.run.wait_for_step(20)
    cloud.control("notice", machine="one", kind="preempt")
    wait_gone(cloud, "one")
    cluster.run.wait_for_step(cluster.run.last_step() + 5)
    cloud.control("vanish", machine="two")
    code = cluster.wait_for_end(coordinator, "the job does not end")
    expect(code == 0, f"the job ends with {code}\n{cluster.logs()}")
    for name in ("three", "four"):
        wait_gone(cloud, name)
    summary = cluster.run.summary()
    redone = [r["redone_microbatches"] for r in summary["recoveries"] if r["cause"] == "leave"]
    expect(redone == [0], f"a notice costs work: {summary['recoveries']}")
    expect(summary["final_digest"] == undisturbed_digest(), "other bits than an undisturbed run")
    cluster.stop_hard()
    cloud.stop()


def wrong_bundle():
    folder = tempfile.mkdtemp(prefix="mayfly-machine-")
    cloud, cluster, _, token = start(folder)
    bundle = os.path.join(folder, "bundle.tar.gz")
    with open(bundle, "wb") as f:
        f.write(b"something else")
    insert(cloud, "one", startup_script(bundle, "0" * 64, cluster.endpoint(), token))
    wait_gone(cloud, "one")
    with open(os.path.join(folder, "cloud", "one.log")) as f:
        log = f.read()
    expect("computed checksum did NOT match" in log and "one: shutdown" in log, log)
    cluster.stop_hard()
    cloud.stop()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"job": job, "wrong_bundle": wrong_bundle}))
