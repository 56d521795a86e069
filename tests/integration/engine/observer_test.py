"""Goal: a worker that joins a job with a large state receives it in the background (ADR 16), with
any faults meanwhile, and the committed steps have the same bits.
Method: a small network that counts as large (--observe-from-mib 0), so that many joins are
possible; and a large one, so that members can be killed while the state is sent.
"""
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Run, digests, expect
from oracle import Oracle

SMALL = SMALL_JOB + ["--steps", "50", "--threads", "1", "--observe-from-mib", "0"]
# The state has 90 MB, so only every other step has a digest: a difference remains in later steps.
LARGE = ["--model", "resnet18", "--image-size", "32", "--data", "procedural:256",
         "--global-batch", "8", "--microbatch", "2", "--lr", "0.01", "--seed", "7",
         "--no-evaluate", "--no-tensorboard", "--digest-every", "2", "--threads", "1",
         "--silence-max-ms", "4000", "--steps", "24"]
CHURN = ["--workers", "2", "--chaos",
         "join@step=5,join@step=6,kill@step=15:worker=0,join@step=20,drain@step=30,join@step=31"]


def of_kind(run, kind):
    return [e for e in run.lines("events.jsonl") if e["kind"] == kind]


def joins(run):
    return of_kind(run, "join")


def undisturbed(args):
    return Oracle(args + ["--workers", "1"]).digests()


def compare(name, run, expected):
    found = digests(run)
    for step, digest in expected.items():
        expect(found.get(step) == digest,
               f"{name}: step {step} has {found.get(step)}, one worker has {digest}")


def check_joins(name, run, least):
    done = joins(run)
    expect(len(done) >= least, f"{name}: {len(done)} of {least} joins came to an end")
    for join in done:
        instants = [join[k + "_ms"] for k in ("ready", "admitted", "caught_up", "promoted", "step")]
        expect(join["snapshots"] >= 1, f"{name}: the state was not taken in the background: {join}")
        expect(instants == sorted(instants), f"{name}: the instants of {join} are out of order")


def exact():
    for wire in ("int32", "int16"):
        args = SMALL + ["--wire", wire]
        run = Run(args + CHURN)
        run.finish()
        compare(wire, run, undisturbed(args))
        check_joins(wire, run, 3)
        run.remove()


def plain():
    """With rounded sums the bits depend on the order of members. So the members are compared with
    each other at every step, but not with a job of one worker."""
    for wire in ("fp32", "bf16", "fp16"):
        run = Run(SMALL + ["--reduction", "fp32", "--wire", wire] + CHURN)
        run.finish()
        expect(len(digests(run)) == 50, f"{wire}: not every step was committed")
        check_joins(wire, run, 3)
        run.remove()


def bucket_auto():
    run = Run(SMALL + ["--bucket-kib", "auto"] + CHURN)
    run.finish()
    compare("auto", run, undisturbed(SMALL + ["--wire", "int32"]))
    check_joins("auto", run, 3)
    run.remove()


def evaluation():
    """Observers do not evaluate; every image is counted once."""
    args = [a for a in SMALL if a != "--no-evaluate"] + ["--eval-every-epochs", "0.5"]
    run = Run(args + CHURN)
    run.finish()
    alone = Run(args + ["--workers", "1"])
    alone.finish()
    tests = [[(e["step"], e["test_top1"]) for e in r.lines("events.jsonl")
              if e["kind"] == "evaluation"] for r in (run, alone)]
    expect(len(tests[1]) > 2 and tests[0] == tests[1], f"accuracies differ: {tests}")
    run.remove()
    alone.remove()


def ends_meanwhile():
    """The job may end while a worker still observes."""
    run = Run(SMALL + ["--workers", "2", "--chaos", "join@step=46,join@step=48,join@step=49"])
    run.finish()
    compare("late joins", run, undisturbed(SMALL + ["--wire", "int32"]))
    run.remove()


def wait_for(run, what, condition):
    deadline = time.monotonic() + 60
    while True:
        has_ended = run.process.poll() is not None
        if condition():
            return
        expect(time.monotonic() < deadline and not has_ended,
               f"{what} did not happen\n{run.logs()}")
        time.sleep(0.001)


def kill_while_observing(name, victims):
    """Kills the `victims`: indices of workers in the order in which they joined. Index 3 is the
    joining worker."""
    run = Run(LARGE + ["--workers", "3", "--chaos", "join@step=3",
                       # Longer steps, because the worker may observe for only two of them.
                       "--inject", "slow=3x,from=step4,to=step10"])
    wait_for(run, "a join", lambda: len(of_kind(run, "joined")) == 4)
    pids = run.worker_pids()
    expect(len(pids) == 4, f"{name}: {len(pids)} workers")
    for victim in victims:
        mayfly_run.kill(pids[victim])
    run.finish()
    compare(name, run, undisturbed(LARGE))
    return run


def large():
    run = Run(LARGE + ["--workers", "2", "--chaos", "join@step=3"])
    run.finish()
    compare("large", run, undisturbed(LARGE))
    check_joins("large", run, 1)
    run.remove()


def donor_dies():
    run = kill_while_observing("a donor", [1])
    check_joins("a donor", run, 1)
    expect(joins(run)[0]["snapshots"] == 2, f"the state was not sent again: {joins(run)}")
    run.remove()


def joiner_dies():
    run = kill_while_observing("the joiner", [3])
    expect(not joins(run), f"a dead worker has joined: {joins(run)}")
    run.remove()


def both_die():
    kill_while_observing("donor and joiner", [0, 3]).remove()


# A job of two workers. If one is lost, half of the step's microbatches must be computed by another.
HALVES = SMALL + ["--wire", "int32", "--global-batch", "32"]


def losses(run):
    """The recoveries from a loss."""
    recoveries = [event["recovery"] for event in of_kind(run, "recovery")]
    return [recovery for recovery in recoveries if recovery["cause"] == "lost"]


def break_after_catching_up():
    """Kills one of two workers while an observer has caught up and waits for the end of the step
    before it begins to compute. Returns the run, and whether the kill came in time."""
    run = Run(HALVES + ["--workers", "2", "--chaos", "join@step=8",
                        # Long steps, so that the step does not end before the kill.
                        "--inject", "slow=12x,from=step9", "--hang-max-ms", "60000"])
    wait_for(run, "an observer that has caught up", lambda: of_kind(run, "caught_up"))
    mayfly_run.kill(run.worker_pids()[1])
    wait_for(run, "a step without it", lambda: losses(run))
    run.wait_for_step(losses(run)[0]["step"] + 2)
    run.command("stop")
    code = run.wait()
    lost = [event["member"] for event in of_kind(run, "lost")]
    expect(len(lost) == 1, f"one worker was killed, {lost} were lost\n{run.logs()}")
    expect(code == 3, f"exit code {code}\n{run.logs()}")
    loss, join = losses(run)[0], joins(run)[0]
    # The first view is that of two workers, the second one admits the observer.
    return run, (loss["view"] == 3 and loss["step"] == join["started_after"] and
                 loss["redone_microbatches"] >= 2)


def caught_up_when_a_view_breaks():
    """The observer has work in the next view, in a step that it has already begun without work and
    with the buffers of its old state. It must not use any of these."""
    expected = undisturbed(HALVES)
    for _ in range(5):
        run, in_time = break_after_catching_up()
        for step, digest in digests(run).items():
            expect(digest == expected[step], f"step {step} has {digest}, not {expected[step]}")
        run.remove()
        if in_time:
            return
    expect(False, "five times the step had ended before the kill")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "exact": exact, "plain": plain, "bucket_auto": bucket_auto, "evaluation": evaluation,
        "ends_meanwhile": ends_meanwhile, "large": large, "donor_dies": donor_dies,
        "joiner_dies": joiner_dies, "both_die": both_die,
        "caught_up_when_a_view_breaks": caught_up_when_a_view_breaks}))
