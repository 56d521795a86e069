"""Goal: hosts that get images from each other's stores (--store-peers) train to the same bits, and
read no image from storage that one of them keeps. The loss of a host only costs time.
Method: workers with separate stores, as on several hosts. Workers are told to leave or killed, and
others join. The test checks digests, hashes of samples, the bytes read according to members.jsonl,
and the access times of the files.
"""
import os
import random
import shutil
import signal

import mayfly_run
from mayfly_run import expect, expect_refused
from store_hosts import (BATCH, IMAGES, LATE, STEPS, Accesses, Hosts, job_on, made_set, reference,
                         wait_for_second_copies, spares_storage)


def read_per_microbatch(run):
    """The bytes that each member read from storage, from its last line in members.jsonl."""
    return {line["member"]: line["stages"]["bytes"] for line in run.lines("members.jsonl")
            if "stages" in line}


def kept_elsewhere():
    folder, size = made_set()
    wanted = reference(folder)
    last = {}
    for words in (["--store-peers"], []):
        hosts = Hosts(folder, job_on(folder), 2, ["--store", f"{int(0.6 * size)}B", *words])
        run = hosts.cluster.run
        digest = run.finish()["final_digest"]
        expect((digest, [record["sample_hash"] for record in run.metrics()]) == wanted, words)
        last[len(words)] = max(read_per_microbatch(run).values())
        hosts.end()
    whole = 4 * size / IMAGES
    expect(last[1] < 0.5 * last[0], f"of {whole} bytes {last[1]} are still read from storage")
    expect(last[0] > 0.2 * whole, f"without --store-peers {last[0]} of {whole} bytes are read")
    shutil.rmtree(folder)


def killed():
    folder, size = made_set()
    wanted = reference(folder)
    choice = random.Random(int(os.environ.get("MAYFLY_TEST_SEED", "1")))
    hosts = Hosts(folder, job_on(folder), 3, ["--store", f"{int(0.4 * size)}B", "--store-peers"])
    run = hosts.cluster.run
    for _ in range(6):
        begun = run.last_step()
        run.wait_for_step(min(begun + choice.randrange(5, 50), STEPS - 1))
        if run.last_step() > STEPS - 60:
            break
        worker = choice.choice([worker for worker in hosts.cluster.workers if worker.alive()])
        worker.signal(choice.choice([signal.SIGKILL, signal.SIGTERM]))
        hosts.start()
    summary = run.finish()
    samples = [record["sample_hash"] for record in run.metrics()]
    expect((summary["final_digest"], samples) == wanted, f"other bits or samples: {summary}")
    expect(summary["membership_changes"] >= 2, "nobody was lost")
    hosts.end()
    shutil.rmtree(folder)


def left():
    def leave(hosts):
        worker = hosts.cluster.workers[1]
        worker.signal(signal.SIGTERM)
        code = hosts.cluster.wait_for_end(worker, "the worker that was told to leave is there")
        expect(code == 0, worker.output())
    spares_storage(0.6, leave)


def lost():
    spares_storage(1.2, lambda hosts: hosts.cluster.workers[1].kill(),
                   before=wait_for_second_copies)


def lost_with_two():
    """One of two workers of a host leaves. Then another host is lost with both of its workers."""
    def change(hosts):
        hosts.cluster.workers[0].signal(signal.SIGTERM)
        hosts.cluster.wait_for(lambda: hosts.cluster.run.last_members() == 5, "it stays")
        for worker in hosts.cluster.workers[2:4]:
            worker.kill()
    spares_storage(1.2, change, before=wait_for_second_copies, workers_each=2)


def joined():
    """A host that joins reads no image that other hosts keep."""
    def join(hosts):
        hosts.start()
        hosts.cluster.wait_for(lambda: hosts.cluster.run.last_members() == 4, "nobody joins")
    spares_storage(0.6, join)


def offered():
    """A joining host keeps the images for which the first host has no room."""
    folder, size = made_set()
    wanted = reference(folder)
    hosts = Hosts(folder, job_on(folder) + ["--inject", "slow=4x"], 1,
                  ["--store", f"{int(0.1 * size)}B", "--store-peers"])
    hosts.cluster.job += ["--store", f"{int(1.2 * size)}B"]
    hosts.start()
    run = hosts.cluster.run
    hosts.cluster.wait_for(lambda: run.last_members() == 2, "nobody joins")
    run.wait_for_step(run.last_step() + 3 * IMAGES // BATCH)
    accesses = Accesses(folder)
    expect(run.last_step() < STEPS - 2 * IMAGES // BATCH, f"only at step {run.last_step()}")
    digest = run.finish()["final_digest"]
    expect((digest, [record["sample_hash"] for record in run.metrics()]) == wanted, digest)
    read = accesses.read()
    expect(read <= LATE, f"{read} of {IMAGES} images were read from storage again")
    hosts.end()
    shutil.rmtree(folder)


def refused():
    folder, _ = made_set()
    expect_refused(job_on(folder), [
        (["--store-peers"], "store_peers needs store"),
        (["--store-peers", "--store", "1MB", "--sync", "bsp"], "works with all-reduce")])
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"kept_elsewhere": kept_elsewhere, "killed": killed,
                                      "left": left, "lost": lost,
                                      "lost_with_two": lost_with_two,
                                      "joined": joined, "offered": offered,
                                      "refused": refused}))
