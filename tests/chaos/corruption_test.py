"""Goal: the members detect a flipped bit in one worker's state before they commit anything on top
of it; the right worker is evicted, and the result has the bits of the undisturbed run.
Method: `--chaos flip_...` flips a bit of one of three workers after a given step: in its weights,
its momentum, its running statistics, or in the sums that it computes. With two workers it cannot be
decided whose state is right.
"""
import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 60
FLIPPED_AFTER = 20
ROUNDS = 16  # the number of steps in which the members compare the whole state once
# The job records a digest only at its end, so the members' own comparison must detect the flip.
JOB = SMALL_JOB + ["--threads", "1", "--steps", str(STEPS), "--digest-every", "1000000"]


def undisturbed(job=None):
    return Oracle((job or JOB) + ["--workers", "1"]).final_digest


def flipped(what, worker, tensor, within, oracle):
    run = Run(JOB + ["--workers", "3", "--chaos",
                     f"flip_{what}@step={FLIPPED_AFTER}:worker={worker}"] + lingering(1))
    run.wait_for_step(1)
    pid = run.worker_pids()[worker]
    summary = run.finish()
    expect(summary["final_digest"] == oracle, f"{what}: {summary['final_digest']} not {oracle}")
    events = run.lines("events.jsonl")
    found = [e for e in events if e["kind"] == "corrupted"]
    expect(len(found) == 1, f"{what}: one worker is evicted, once: {found}\n{run.logs()}")
    expect(tensor in found[0]["detail"], f"{what}: it is told where: {found[0]['detail']}")
    step = int(found[0]["detail"].split("step ")[1].split()[0])
    expect(FLIPPED_AFTER < step <= FLIPPED_AFTER + within, f"{what}: found at step {step}")
    for name in ("lost", "evicted", "fatal"):
        expect(not [e for e in events if e["kind"] == name], f"{what}: nobody else: {name}")
    with open(run.path("logs", f"worker-{worker}.log")) as file:
        log = file.read()
    expect("differ" in log, f"{what}: worker {worker} (pid {pid}) is the one")
    # The worker must have received the state anew: its wrong one would be detected a second time.
    expect("joining again" in log, f"{what}: it does not join again\n{log}")
    expect(run.last_members() == 3, f"{what}: {run.last_members()} members at the end")
    steps = [m["step"] for m in run.metrics()]
    expect(sorted(steps) == list(range(1, STEPS + 1)), f"{what}: each step on record once")
    print(f"{what}: found before step {step} committed: {found[0]['detail']}")
    run.remove()


def three_workers():
    oracle = undisturbed()
    # Wrong weights never reach a commit; wrong momentum shows in the weights of the next step.
    flipped("weights", 2, "weight", 1, oracle)
    flipped("momentum", 0, "momentum", 2, oracle)
    flipped("statistics", 1, "running", ROUNDS, oracle)


def wrong_result():
    """A wrong sum of a worker with a right state can only be detected if the microbatch is computed
    twice. Its owner computes it again, gets the right sum, thereby contradicts itself, and is
    evicted. So two workers are sufficient."""
    oracle = undisturbed()
    for workers, owner in ((3, 1), (2, 0)):
        run = Run(JOB + ["--workers", str(workers), "--audit-every", "1", "--chaos",
                         f"flip_result@step={FLIPPED_AFTER}:worker={owner}"])
        summary = run.finish()
        expect(summary["final_digest"] == oracle, f"{summary['final_digest']} is not {oracle}")
        found = [e for e in run.lines("events.jsonl") if e["kind"] == "corrupted"]
        expect(len(found) == 1 and "microbatch" in found[0]["detail"], f"{found}\n{run.logs()}")
        with open(run.path("logs", f"worker-{owner}.log")) as file:
            expect("joining again" in file.read(), f"worker {owner} is the one")
        print(f"{workers} workers: {found[0]['detail']}")
        run.remove()


def two_workers():
    run = Run(JOB + ["--workers", "2", "--chaos", f"flip_weights@step={FLIPPED_AFTER}:worker=1"])
    expect(run.wait() == 1, f"the job fails\n{run.logs()}")
    summary = run.summary()
    expect(summary["steps"] == FLIPPED_AFTER, f"nothing is committed on top: {summary['steps']}")
    expect("differ before step 21" in summary["detail"], summary["detail"])
    run.remove()


def nobody_goes_on_without_it():
    """The job waits for the evicted worker at the step of the eviction, so the worker's wrong state
    is of the same step as the members' state. If the worker used it again, it would be evicted a
    second time or spread the error. The same is true for the weights that its compute threads have
    loaded, so the job has enough microbatches for it to compute some of this step."""
    job = JOB + ["--global-batch", "64", "--steps", "30"]
    oracle = undisturbed(job)
    for what in ("momentum", "weights"):
        run = Run(job + ["--workers", "3", "--min-workers", "3", "--chaos",
                         f"flip_{what}@step={FLIPPED_AFTER}:worker=0"])
        summary = run.finish()
        expect(summary["final_digest"] == oracle, f"{what}: not the undisturbed run's bits")
        found = [e for e in run.lines("events.jsonl") if e["kind"] == "corrupted"]
        expect(len(found) == 1, f"{what}: it is evicted once: {found}\n{run.logs()}")
        expect(run.last_members() == 3, f"{what}: {run.last_members()} members at the end")
        run.remove()


def last_step():
    run = Run(JOB + ["--workers", "3", "--chaos", f"flip_momentum@step={STEPS}:worker=0"])
    summary = run.finish()
    expect(summary["final_digest"] == undisturbed(), "the last state is compared, too")
    expect([e for e in run.lines("events.jsonl") if e["kind"] == "corrupted"], "it is found")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"three_workers": three_workers, "wrong_result": wrong_result,
                                      "two_workers": two_workers,
                                      "nobody_goes_on_without_it": nobody_goes_on_without_it,
                                      "last_step": last_step}))
