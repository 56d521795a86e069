"""Goal: with any schedule of lost and sleeping workers, notices, joins, cut links and killed
coordinators, a job ends with the bits of the undisturbed run and with every sample used once.
Method: for each seed, a coordinator and workers run as separate processes, on the loopback
interface or (if the machine allows it) each on a separate host. Faults occur at random times,
sometimes several at once. At least one worker holds the newest state at any time. After every step
the digest must be the oracle's; every step must be recorded once, with the samples of the stream.

  MAYFLY_TEST_SEEDS=200 or FIRST:COUNT runs other seeds; the failing seed is printed.
"""
import os
import signal
import sys
import tempfile
import time

import mayfly_run
import network
import sample_ledger
from cluster import Cluster
from mayfly_run import SMALL_JOB, Failure, expect
from oracle import Oracle

STEPS = 60
SAMPLES, BATCH, MICROBATCH = 512, 16, 4
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1", "--ledger", "--silence-max-ms", "1500"]
COORDINATOR = 0
KINDS = ["kill", "kill", "coordinator", "coordinator", "join", "notice", "stop", "cut", "vanish"]
oracle = {}


def undisturbed():
    if not oracle:
        oracle.update(Oracle(JOB + ["--workers", "1"]).digests())
    return oracle


class Schedule:
    """The faults of one run, all drawn from the seed."""

    def __init__(self, seed, has_network):
        random = mayfly_run.rng(seed)
        self.random = random
        self.workers = random.choice([3, 3, 4])
        self.on_hosts = has_network and random.random() < 0.4
        kinds = [k for k in KINDS if self.on_hosts or k not in ("cut", "vanish")]
        self.faults = sorted((random.uniform(0.0, 0.85), random.choice(kinds))
                             for _ in range(random.randint(2, 5)))

    def __str__(self):
        where = "hosts" if self.on_hosts else "loopback"
        return f"{self.workers} workers on {where}, " + ", ".join(
            f"{kind}@{when:.2f}" for when, kind in self.faults)


class Play:
    """Plays one schedule on one cluster."""

    def __init__(self, schedule):
        self.schedule, self.random = schedule, schedule.random
        self.has_summary = False  # the coordinator was killed after it had written the summary
        hosts = network.Network(schedule.workers + 4) if schedule.on_hosts else None
        self.cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB, hosts, timeout=150)
        self.cluster.start_coordinator(schedule.workers, host=self.host(COORDINATOR))
        for _ in range(schedule.workers):
            self.join()
        # Workers that have work and have not been disturbed. One of them is never disturbed.
        self.untouched = list(self.cluster.workers)

    def host(self, number):
        return number if self.cluster.network is not None else None

    def join(self):
        number = len(self.cluster.workers) + 1
        if self.cluster.network is None or number < len(self.cluster.network.spaces) - 1:
            self.cluster.start_worker(self.cluster.endpoint(), host=self.host(number))

    def victim(self):
        """A worker that may be disturbed, or None if only one undisturbed worker is left."""
        if len(self.untouched) < 2:
            return None
        return self.untouched.pop(self.random.randrange(len(self.untouched)))

    def strike(self, kind):
        if kind == "join":
            self.join()
        elif kind == "coordinator":
            self.cluster.coordinators[-1].kill()
            if os.path.exists(self.cluster.run.path("summary.json")):
                self.has_summary = True  # the job is over; another coordinator would be refused
                return
            time.sleep(self.random.uniform(0, 0.8))
            self.cluster.start_coordinator(self.schedule.workers, host=self.host(COORDINATOR))
        else:
            victim = self.victim()
            if victim is not None:
                getattr(self, kind)(victim)

    def kill(self, victim):
        victim.signal(signal.SIGKILL)

    def notice(self, victim):
        victim.signal(signal.SIGTERM)

    def stop(self, victim):
        victim.signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.05, 2.5))
        victim.signal(signal.SIGCONT)

    def cut(self, victim):
        """Drops packets between the victim and another worker, in one or both directions."""
        other = self.random.choice(self.untouched)
        self.cluster.network.mute(victim.host, other.host)
        if self.random.random() < 0.5:
            self.cluster.network.mute(other.host, victim.host)
        if other in self.untouched and len(self.untouched) > 1:
            self.untouched.remove(other)

    def vanish(self, victim):
        self.cluster.network.pull_out(victim.host)
        if self.random.random() < 0.5:
            time.sleep(self.random.uniform(0.1, 3))
            self.cluster.network.heal()

    def run(self):
        for when, kind in self.schedule.faults:
            self.cluster.run.wait_for_step(max(1, int(when * STEPS)))
            time.sleep(self.random.uniform(0, 0.03))  # the fault begins at any point of the step
            if self.cluster.coordinators[-1].alive():
                self.strike(kind)
        return self.check()

    def check(self):
        cluster = self.cluster
        code = cluster.wait_for_end(cluster.coordinators[-1], "the job does not end")
        expect(code == 0 or self.has_summary, f"the coordinator ended with {code}")
        expect(cluster.run.summary()["outcome"] == "done", cluster.run.summary())
        by_step = mayfly_run.digests(cluster.run)
        for step, digest in undisturbed().items():
            expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
        metrics = sorted(cluster.run.metrics(), key=lambda m: m["step"])
        expect([m["step"] for m in metrics] == list(range(1, STEPS + 1)),
               f"not every step is on record once: {[m['step'] for m in metrics]}")
        folders = [cluster.run_dir(f"worker-{n}") for n in range(len(cluster.workers))]
        sample_ledger.expect_every_sample_once(metrics, folders, SAMPLES, BATCH, MICROBATCH)
        return cluster.run.summary()["membership_changes"]

    def clean(self):
        self.cluster.stop_hard()
        if self.cluster.network is not None:
            self.cluster.network.remove()


def play(seed, has_network):
    schedule = Schedule(seed, has_network)
    played = Play(schedule)
    try:
        changes = played.run()
    except Failure as failure:
        logs = played.cluster.logs()
        raise Failure(f"seed {seed} ({schedule}): {failure}\nkept in {played.cluster.folder}\n"
                      f"{logs}") from failure
    finally:
        played.clean()
    played.cluster.run.remove()
    return changes


def main():
    has_network = network.reason_to_skip() is None
    return mayfly_run.play_seeds(lambda seed: play(seed, has_network), 12, "clusters")


if __name__ == "__main__":
    sys.exit(main())
