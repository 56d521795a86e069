"""Goal: a bit that flips in one worker's state is found before anything is committed on top of it,
the right worker is evicted, and the result has the bits of the undisturbed run.
Method: `--chaos flip_...` flips a bit of one of three workers after a given step: in its weights,
its momentum, its running statistics; or in what it computes. With two workers nobody can tell whose
state is right.
"""
import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 60
FLIPPED_AFTER = 20
ROUNDS = 16  # steps within which everything is compared
# Digests of the whole state only at the end: what is found is found by the rotating comparison.
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
    # With a fresh state: with the one it was evicted for, it would be found a second time.
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
    """A wrong sum, with nothing wrong in anybody's state: only computing it twice shows it. The one
    that is asked again gets it right, contradicts itself and goes; so two workers are enough."""
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
    """The others wait for it at the step that it was evicted in, so its own state looks as new as
    theirs: with the wrong one it would be found a second time, or spread. So would the weights
    that its compute threads have loaded, which are of the same step as those that it gets; there
    are microbatches enough for it to compute some of that very step."""
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
