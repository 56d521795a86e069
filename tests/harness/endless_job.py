"""A job of real processes that runs until a test stops it, for tests that need an unknown time. The
oracle is the digest of each step of an undisturbed run with one worker.
"""
import json
import os
import tempfile

import mayfly_run
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect

STOPPED_BY_USER = 3
STEPS = 1_000_000
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1"]
COMPARED = 150  # steps
_oracle = {}


def undisturbed():
    """The digests of an undisturbed run, of at least the first COMPARED steps."""
    if not _oracle:
        run = Run(JOB + ["--workers", "1"])
        run.wait_for_step(COMPARED)
        run.command("stop")
        expect(run.wait() == STOPPED_BY_USER, f"the oracle does not stop\n{run.logs()}")
        _oracle.update(mayfly_run.digests(run))
        run.remove()
    return _oracle


class EndlessJob(Cluster):
    def __init__(self, workers, extra=(), timeout=150):
        undisturbed()
        super().__init__(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + list(extra),
                         timeout=timeout)
        self.start_coordinator(workers)

    def start_workers(self, count):
        for _ in range(count):
            self.start_worker(self.endpoint())

    def events(self, kind):
        return [e for e in self.run.lines("events.jsonl") if e["kind"] == kind]

    def wait_for_event(self, kind, count=1):
        self.wait_for(lambda: len(self.events(kind)) >= count, f"{count} times {kind}")
        return self.events(kind)

    def status(self):
        done = self.run.command("status", "--json", "--token-file", self.token_file)
        expect(done.returncode == 0, f"status: {done.stderr}\n{self.logs()}")
        return json.loads(done.stdout)

    def wait_for_more_steps(self, count=10):
        self.run.wait_for_step(self.run.last_step() + count)

    def token(self):
        with open(self.token_file) as f:
            return bytes.fromhex(f.read().strip())

    def coordinator_log(self):
        with open(self.run.path("logs", "coordinator.log"), errors="replace") as f:
            return f.read()

    def living(self):
        """The pids of all living coordinators and workers and of their child processes (such as
        sentinels)."""
        pids = [p.pid for p in self.coordinators + self.workers if p.alive()]
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat") as f:
                        parent = int(f.read().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
                if parent in pids:
                    pids.append(int(entry))
        return pids

    def finish(self):
        """Stops the job. Expects that every step was recorded once and that its digest is that of
        the undisturbed run."""
        self.run.wait_for_step(COMPARED)
        done = self.run.command("stop", "--token-file", self.token_file)
        expect(done.returncode == 0, f"stop: {done.stderr}\n{self.logs()}")
        code = self.wait_for_end(self.coordinators[-1], "the job does not stop")
        expect(code == STOPPED_BY_USER, f"the coordinator ended with {code}\n{self.logs()}")
        steps = [m["step"] for m in self.run.metrics()]
        expect(sorted(steps) == list(range(1, len(steps) + 1)), "not every step once on record")
        by_step = mayfly_run.digests(self.run)
        for step, digest in undisturbed().items():
            expect(by_step.get(step, digest) == digest,
                   f"step {step}: {by_step.get(step)} is not {digest}\n{self.logs()}")
        for worker in self.workers:
            if worker.alive():
                self.wait_for_end(worker, f"{worker.name} does not end")
        self.stop_hard()
        self.run.remove()
