"""Goal: with --tls, an attacker on the network between the hosts of a job can neither read nor
change its settings, weights and records. A worker or a command with a wrong token prints that.
Method: read: all packets on the bridges of the lab are recorded while a job runs, loses a host and
admits another one, which needs the state. The packets may contain none of the job's texts and
weights; those of the same job without --tls contain all of them. changed: a proxy between a
coordinator and its workers flips bits, so connections break, and the digest is that of an
undisturbed run. wrong_token: workers with another token, workers with a token that is not for TLS,
and a command.
"""
import os
import tempfile

import lab_of_hosts
import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, expect, lingering
from middle_man import ChangingProxy, Ear
from ssh_test import (LabRun, STEPS, lab_with_program, lose_a_host, nothing_is_left,
                      undisturbed)

CHANGES = 12
BYTES_BETWEEN = 30_000
# Parts of the settings and of the names of tensors.
TEXTS = [b"procedural", b"resnet20", b"layer1.0.conv1"]


def heard_in_a_job(digest, *more):
    """Runs a job that loses a host; returns all packets on the network and its last weights."""
    lab = lab_with_program(4)
    ear = Ear(lab, os.path.join(tempfile.mkdtemp(), "packets"))
    run = LabRun(lab, "h1,h2,h3", "--workers", "2", *lingering(6, 30), *more)
    left = lose_a_host(lab, run)
    run.ends_well(digest)
    ear.close()
    nothing_is_left(lab, left)
    with open(os.path.join(run.run_dir, "checkpoints/step-60/model.safetensors"), "rb") as file:
        weights = file.read()
    heard = ear.heard()
    lab.remove()
    return heard, weights


def pieces(weights):
    """Pieces of 32 bytes from all parts of the file."""
    return [weights[at:at + 32] for at in range(10_000, len(weights) - 32, len(weights) // 20)]


def read():
    digest = undisturbed()
    plain, weights = heard_in_a_job(digest)
    said = [text for text in TEXTS if text in plain]
    found = sum(piece in plain for piece in pieces(weights))
    print(f"in plain: {len(plain)} bytes, {said}, {found} pieces of the weights", flush=True)
    expect(said == TEXTS and found >= 15, "the ear hears what there is to hear")
    secret, weights = heard_in_a_job(digest, "--tls")
    print(f"with TLS: {len(secret)} bytes", flush=True)
    expect(len(secret) > 1_000_000, "the ear heard the job")
    for text in TEXTS:
        expect(text not in secret, f"{text} can be read")
    found = sum(piece in secret for piece in pieces(weights))
    expect(found == 0, f"{found} pieces of the weights can be read")


def cluster_with_tls(**options):
    return Cluster(tempfile.mkdtemp(), SMALL_JOB + STEPS + ["--threads", "1"], **options)


def changed():
    digest = undisturbed()
    cluster = cluster_with_tls(timeout=240)
    coordinator = cluster.start_coordinator(2, extra=["--tls", *lingering(6, 30)])
    proxy = ChangingProxy(cluster.ports["run"], BYTES_BETWEEN, CHANGES)
    for _ in range(2):
        cluster.start_worker(proxy.endpoint, extra=lingering(6, 30))
    cluster.wait_for_end(coordinator, "the job does not end")
    print(f"{proxy.changed} changed bytes of {proxy.passed} on {proxy.connections} connections",
          flush=True)
    expect(coordinator.process.returncode == 0, cluster.logs())
    expect(cluster.run.summary()["final_digest"] == digest, f"other bits\n{cluster.logs()}")
    expect(proxy.changed >= 3 and proxy.connections > 4, "nothing was changed")


def wrong_token():
    cluster = cluster_with_tls()
    coordinator = cluster.start_coordinator(1, extra=["--tls"])
    endpoint = cluster.endpoint()
    for name, words, told in (
            ("other", ["token", "--tls"], "wrong token"),
            ("plain", ["token"], "wrong token: this job's connections are encrypted")):
        token_file = os.path.join(cluster.folder, name)
        made = cluster.start_process("token-" + name, words + [token_file], None)
        expect(made.process.wait() == 0, made.output())
        worker = cluster.start_process(
            "worker-" + name, ["worker", "--coordinator", endpoint, "--token-file", token_file,
                               "--run-dir", cluster.run_dir(name)] + cluster.job, None)
        expect(worker.process.wait() == 2, worker.output())
        expect(told in worker.output(), worker.output())
    status = cluster.start_process(
        "status", ["status", endpoint, "--token-file",
                   os.path.join(cluster.folder, "other")], None)
    expect(status.process.wait() != 0 and "wrong token" in status.output(), status.output())
    refused = cluster.start_process(
        "refused", ["worker", "--coordinator", endpoint, "--tls", "--token-file",
                    os.path.join(cluster.folder, "plain"), "--run-dir", cluster.run_dir("refused")]
        + cluster.job, None)
    expect(refused.process.wait() == 2 and "mayfly token --tls" in refused.output(),
           refused.output())
    cluster.start_worker(endpoint)
    cluster.wait_for_end(coordinator, "the job does not end")
    expect(coordinator.process.returncode == 0, cluster.logs())
    for text in ("wrong token", "does not use TLS"):
        expect(text in coordinator.output(), coordinator.output())


def main():
    lack = lab_of_hosts.reason_to_skip()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({"read": read, "changed": changed, "wrong_token": wrong_token})


if __name__ == "__main__":
    raise SystemExit(main())
