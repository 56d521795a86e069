"""Goal: --backend mpi trains to the bits of one worker, over Open MPI's TCP and shared memory. With
--enable-recovery the job survives the death of ranks, which spares replace.
Method: jobs under mpirun, ranks killed from outside; the digest of the state after every step is
compared with that of one worker.
"""
import subprocess
import sys
import time

import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, expect, lingering
from oracle import Oracle

STEPS = 40
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1"]
MPI = JOB + ["--backend", "mpi"]
ELASTIC = "--enable-recovery"
reference = {}


def oracle():
    if not reference:
        reference.update(Oracle(JOB + ["--workers", "1"]).digests())
        expect(len(reference) == STEPS, f"the oracle has {len(reference)} of {STEPS} digests")
    return reference


def over(btl, *options):
    return ["--mca", "btl", btl + ",self", *options]


def check(run, code=0):
    """Waits for the job's end; returns the set of the sizes of views that committed steps."""
    ended = run.wait()
    expect(ended == code, f"mpirun returned {ended}, not {code}\n{run.logs()}")
    by_step = mayfly_run.digests(run)
    expect(by_step == oracle(), f"other digests ({len(by_step)})\n{run.logs()}")
    outcome = run.summary()["outcome"]
    expect(outcome == "done", f"the job's outcome is {outcome}\n{run.logs()}")
    members = [m["members"] for m in run.metrics()]
    run.remove()
    return members


def static():
    for btl in ("tcp", "vader"):
        members = check(mpi_launch.start(3, MPI, over(btl)))
        expect(set(members) == {3}, f"{btl}: steps of {set(members)} members")


def elastic():
    for btl in ("tcp", "vader"):
        members = check(mpi_launch.start(3, MPI, over(btl, ELASTIC)))
        expect(set(members) == {3}, f"{btl}: steps of {set(members)} members")


def drained(options):
    run = mpi_launch.start(3, MPI + lingering(3), options)
    run.wait_for_step(3)
    done = run.command("drain", "2")
    expect(done.returncode == 0, f"drain: {done.stderr}")
    members = check(run)
    expect(members[-1] == 2, f"the last step had {members[-1]} members")


def drain():
    """A planned change needs no recovery and also works without --enable-recovery, where groups use
    MPI's own collectives."""
    drained(over("vader"))
    drained(over("tcp", ELASTIC))


def killed_in_turn(btl, ranks, victims, args=()):
    steps = [3 + 8 * count for count in range(len(victims))]
    run = mpi_launch.start(ranks, MPI + list(args) + lingering(*steps), over(btl, ELASTIC))
    for step, victim in zip(steps, victims):
        run.wait_for_step(step)
        mpi_launch.kill_rank(run, victim)
    return check(run)


def loses_ranks():
    """Any rank may be lost, also rank 0, which started the coordinator."""
    members = killed_in_turn("vader", 4, [2, 0, 1])
    expect(sorted(set(members)) == [1, 2, 3, 4], f"steps of {set(members)} members")


def loses_ranks_tcp():
    members = killed_in_turn("tcp", 4, [1, 3])
    expect(members[0] == 4 and members[-1] <= 2, f"steps of {set(members)} members")


def wait_for_end(pid):
    deadline = time.monotonic() + 60
    while not mpi_launch.has_ended(pid):
        expect(time.monotonic() < deadline, f"process {pid} has not ended")
        time.sleep(0.02)


def script_loses_a_rank():
    """The connections of a dead rank stay open until mpirun ends, although the script that started
    the rank ends with it."""
    run = mpi_launch.start(3, MPI + lingering(3), over("tcp", ELASTIC), script=mpi_launch.SCRIPT)
    run.wait_for_step(3)
    script = mpi_launch.child_of_rank(run.process.pid, 1)
    worker = mpi_launch.pid_of_rank(run.process, 1)
    holder = mpi_launch.child_named("mayfly-fds", worker)
    mayfly_run.kill(worker)
    wait_for_end(script)
    time.sleep(1)  # the holder looks after its launcher every 0.2 s
    expect(not mpi_launch.has_ended(holder), f"the connections were closed\n{run.logs()}")
    members = check(run)
    expect(members[0] == 3 and members[-1] == 2, f"steps of {set(members)} members")
    wait_for_end(holder)


def spares():
    """As many spares join as ranks were lost, and no more."""
    members = killed_in_turn("vader", 4, [0, 1], ["--spares", "2"])
    expect(set(members) == {2}, f"steps of {set(members)} members")


def static_loss():
    """Without --enable-recovery mpirun ends the job, and no process hangs."""
    run = mpi_launch.start(3, MPI + ["--steps", "100000"], over("vader"))
    run.wait_for_step(3)
    mpi_launch.kill_rank(run, 1)
    expect(run.wait() != 0, "a job without one of its ranks was reported as done")
    run.remove()


def refused(words, text):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("mayfly: ")]
    expect(done.returncode == 2 and len(lines) == 1 and text in lines[0],
           f"{words}: exit code {done.returncode}, {done.stderr}")


def refusals():
    job = [mayfly_run.BINARY, "train"] + MPI
    refused(job, "only in processes that Open MPI's mpirun started")
    run = mpi_launch.start(2, MPI + ["--spares", "1"], over("vader"))
    expect(run.wait() != 0 and "--enable-recovery" in run.output(), run.output())
    run.remove()
    run = mpi_launch.start(2, MPI + ["--spares", "2"], over("vader", ELASTIC))
    run.wait()
    expect("leaves none to start the job with" in run.output(), run.output())
    run.remove()


def outsiders():
    """A worker that another command started is refused, because MPI cannot connect to it."""
    run = mpi_launch.start(2, MPI + ["--steps", "100000"], over("vader", ELASTIC))
    run.wait_for_step(2)
    words = ["worker", "--coordinator", open(run.path("coordinator")).read().strip(),
             "--token-file", run.path("token")] + MPI + ["--steps", "100000"]
    refused([mayfly_run.BINARY] + words, "only in processes that Open MPI's mpirun started")
    other = subprocess.run(
        ["mpirun", "--allow-run-as-root", "-np", "1", mayfly_run.BINARY] + words,
        capture_output=True, text=True, timeout=60)
    expect(other.returncode == 2 and "processes: the job has mpirun" in other.stderr,
           f"a worker of another mpirun: {other.returncode}, {other.stderr}")
    expect(run.command("stop").returncode == 0, "stop was refused")
    run.wait()
    expect(run.summary()["outcome"] == "stopped", run.logs())
    run.remove()


if __name__ == "__main__":
    mpi_launch.skip_without_module()
    sys.exit(mayfly_run.main({
        "static": static, "elastic": elastic, "drain": drain, "loses_ranks": loses_ranks,
        "loses_ranks_tcp": loses_ranks_tcp, "script_loses_a_rank": script_loses_a_rank,
        "spares": spares, "static_loss": static_loss, "refusals": refusals,
        "outsiders": outsiders}))
