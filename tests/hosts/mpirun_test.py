"""Goal: if mpirun loses a whole host, the job behaves as docs/mpi.md promises.
Method: mpirun runs on h0 of the lab and reaches the other hosts by ssh; each host has the program
on its own disk. A host's power is cut, or its packets are dropped for some seconds. If ssh ends
silent connections, mpirun must return, with the weights on the host of rank 0 and with no process
left. Otherwise the ranks of a host that is reachable again in time must join again.
"""
import shutil
import time

import lab_of_hosts
import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, expect
from oracle import Oracle
from ssh_test import PROGRAM, LabRun, lab_with_program

STEPS = ["--steps", "200"]
SILENCE_S = 4
OPTIONS = ["--enable-recovery", "--mca", "oob_tcp_if_include", "eth0"]
NOTICES = ["--mca", "plm_rsh_args", "-o BatchMode=yes -o ServerAliveInterval=2 "
           f"-o ServerAliveCountMax={SILENCE_S // 2}"]
RETURNS_S = 60  # after the silence mpirun must return within this time, also on a busy machine


def digests():
    return Oracle(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"]).digests()


class Launched(LabRun):
    """Starts `mpirun` on h0. Rank 0 and the run directory are on the first of `hosts`."""

    def __init__(self, lab, hosts, *options):
        for host in hosts:
            if host != 0:
                shutil.copytree(lab.disk(0, "root/mayfly"), lab.disk(host, "root/mayfly"))
        self.words = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                      *mpi_launch.command(len(hosts), [*OPTIONS, *options, "--host", ",".join(
                          f"h{host}" for host in hosts)])]
        super().__init__(lab, None, "--inject", "delay=50ms", "--checkpoint-every", "5",
                         job=SMALL_JOB + STEPS, packs=True)
        self.run_dir = lab.disk(hosts[0], "root/run")

    def begin(self):
        self.started = time.monotonic()
        self.process = self.lab.start(
            0, [*self.words, PROGRAM, "train", "--run-dir", "run", "--threads", "1", *self.more],
            self.output_path)

    def returns(self):
        """The exit code of mpirun; fails if mpirun does not end in time."""
        self.timeout = time.monotonic() - self.started + SILENCE_S + RETURNS_S
        return self.wait()

    def nothing_runs(self, hosts):
        for host in hosts:
            for name in ("mayfly", "orted", "mpirun"):
                code, found = self.lab.run(host, ["pgrep", "-a", "-x", name])
                expect(code == 1, f"on h{host}: {found}\n{self.logs()}")

    def has_weights(self, host, by_step):
        """Expects that the host has the weights of a step, with the bits of the undisturbed job."""
        code, text = self.lab.run(host, [PROGRAM, "digest", "run"])
        expect(code == 0, text)
        found = [one for one, digest in by_step.items() if digest in text]
        expect(len(found) == 1, f"no step's weights: {text}")
        return found[0]


def host_lost():
    """mpirun stops the job in the usual way, with the weights of its last step."""
    by_step = digests()
    run = Launched(lab_with_program(3), (0, 1, 2), *NOTICES)
    run.wait_for_step(10)
    run.lab.power_off(2)
    expect(run.returns() != 0, f"mpirun says nothing of it\n{run.logs()}")
    run.nothing_runs((0, 1))
    summary = run.summary()
    expect(summary["outcome"] == "stopped" and summary["steps"] > 10, f"{summary}\n{run.logs()}")
    step = run.has_weights(0, by_step)
    expect(step == summary["steps"], f"weights of step {step} of {summary['steps']}")


def rank_0_lost():
    """The job ends with its coordinator. Its checkpoints are on the disk of the lost host."""
    by_step = digests()
    run = Launched(lab_with_program(4), (1, 2, 3), *NOTICES)
    run.wait_for_step(16)
    run.lab.power_off(1)
    expect(run.returns() != 0, f"mpirun says nothing of it\n{run.logs()}")
    run.nothing_runs((0, 2, 3))
    run.lab.power_on(1)
    step = run.has_weights(1, by_step)
    expect(step >= 5, f"weights of step {step}")


def away_for_a_while():
    """A host is cut off for some seconds; its ranks join again."""
    by_step = digests()
    run = Launched(lab_with_program(3), (0, 1, 2))
    run.wait_for_step(10)
    run.lab.pull_out(2)
    run.wait_for("a step without it", lambda: run.last_members() == 2)
    time.sleep(3)
    run.lab.heal()
    run.wait_for("all three together", lambda: run.last_members() == 3)
    expect(run.wait() == 0, run.logs())
    run.nothing_runs((0, 1, 2))
    expect(run.summary()["outcome"] == "done", run.logs())
    expect(run.has_weights(0, by_step) == 200, run.logs())


def main():
    mpi_launch.skip_without_mpirun()
    lack = lab_of_hosts.reason_to_skip()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({"host_lost": host_lost, "rank_0_lost": rank_0_lost,
                            "away_for_a_while": away_for_a_while})


if __name__ == "__main__":
    raise SystemExit(main())
