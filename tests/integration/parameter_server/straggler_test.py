"""Injected delays change no bits. Stragglers are detected and treated as configured.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "harness"))
from mayfly_run import SMALL_JOB, Run, expect, expect_refused, main  # noqa: E402
from oracle import Oracle  # noqa: E402
from sample_ledger import sample_hash  # noqa: E402

JOB = SMALL_JOB + ["--threads", "1", "--quiet"]
SLOW = "slow=6x,worker=1,from=step5,to=step60"


def events(run, kind):
    return [e["detail"] for e in run.lines("events.jsonl") if e["kind"] == kind]


def finish(args):
    """Runs a job; returns the summary, the samples' hash, the records of stragglers and the reports
    of the shards."""
    run = Run(JOB + args)
    summary = run.finish()
    result = (summary, sample_hash(run.metrics()), events(run, "straggler"),
              events(run, "shard_done"))
    run.remove()
    return result


def number(account, words):
    """The number before `words` in a report, such as 12 in "..., 12 at once, ..."."""
    return next(int(part.split()[0]) for part in account.split(": ", 1)[1].split(", ")
                if part.split(" ", 1)[1] == words)


def slowness_changes_no_bits():
    steps = ["--steps", "30"]
    for sync in ([], ["--sync", "bsp", "--slices", "2", "--shards", "2"]):
        base = finish(steps + sync + ["--workers", "2"])
        for inject in (["slow=3x,worker=0,from=step3"], ["delay=5ms,worker=1"],
                       ["stop=50%,worker=1,to=20s", "slow=2x,worker=0"]):
            flags = [word for rule in inject for word in ("--inject", rule)]
            other = finish(steps + sync + ["--workers", "2"] + flags)
            expect(other[0]["final_digest"] == base[0]["final_digest"],
                   f"{sync} {inject}: other bits")
            expect(other[1] == base[1], f"{sync} {inject}: other samples")
            expect(other[0]["membership_changes"] == 0, f"{sync} {inject}: somebody was lost")


def a_delay_is_as_long_as_it_says():
    run = ["--steps", "20", "--workers", "2"]
    for sync in ([], ["--sync", "bsp"]):
        quick = finish(run + sync)[0]["train_seconds"]
        late = finish(run + sync + ["--inject", "delay=100ms,worker=1"])[0]["train_seconds"]
        expect(late > 1.8, f"{sync}: 19 steps with 100 ms each took {late} s, without {quick} s")


def alone():
    """The digest and the samples' hash of an undisturbed run."""
    run = Oracle(JOB + ["--steps", "120", "--sync", "bsp", "--slices", "4", "--workers", "1"])
    return run.summary["final_digest"], sample_hash(run.metrics)


def elastic(extra):
    return finish(["--steps", "120", "--sync", "bsp", "--slices", "4", "--workers", "3",
                   "--straggler", "elastic", "--inject", SLOW] + extra)


def elastic_leaves_it_out_and_keeps_the_bits():
    bits, base = alone()
    summary, samples, said, done = elastic([])
    expect(any("a straggler" in text for text in said), f"nobody was found: {said}")
    expect(number(done[0], "probes") > 0, f"it was never looked after: {done}")
    expect(samples == base, "samples lost or repeated")
    expect(summary["final_digest"] == bits, "other bits than one worker")
    expect(summary["membership_changes"] == 0, "somebody was lost")


def greedy_goes_slice_by_slice():
    _, base = alone()
    for shards in ("1", "2"):
        _, samples, said, done = finish(
            ["--steps", "120", "--sync", "bsp", "--slices", "4", "--workers", "3", "--shards",
             shards, "--straggler", "greedy", "--inject", SLOW, "--checkpoint-every", "50"])
        expect(any("a straggler" in text for text in said), f"nobody was found: {said}")
        at_once = [number(account, "at once") for account in done]
        expect(len(set(at_once)) == 1 and at_once[0] > 0 and at_once[0] % 4 == 0,
               f"slices at once: {at_once}")
        expect(samples == base, f"{shards} shards: samples lost or repeated; {done}")


def a_straggler_and_deaths_leave_every_sample_used_once():
    _, base = alone()
    chaos = ["--chaos", "kill@step=30:worker=0,join@step=45,kill@step=70:worker=2"]
    for policy in ("greedy", "elastic"):
        summary, samples, _, done = finish(
            ["--steps", "120", "--phases", "bsp:80%,asp", "--slices", "4", "--workers", "4",
             "--straggler", policy, "--inject", SLOW] + chaos)
        expect(samples == base, f"{policy}: samples lost or repeated; {done}")
        lost = [r for r in summary["recoveries"] if r["cause"] == "lost"]
        expect(len(lost) == 2, f"{policy}: {len(lost)} workers were lost")


def bad_rules_are_refused():
    expect_refused(JOB + ["--steps", "5"], (
        (["--inject", "fast=2x"], "not one of delay, slow, stop"),
        (["--inject", "slow=2x", "--inject", "delay=1"], "delay is a time"),
        (["--inject", "delay=1ms", "--backend", "gloo"], "backend tcp"),
        (["--straggler", "elastic"], "for --sync and --phases"),
        (["--lr-rule", "live-linear"], "lr_rule live-linear needs --sync or --phases"),
        (["--sync", "bsp", "--straggler", "hope"], "none, greedy or elastic")))


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        slowness_changes_no_bits, a_delay_is_as_long_as_it_says,
        elastic_leaves_it_out_and_keeps_the_bits, greedy_goes_slice_by_slice,
        a_straggler_and_deaths_leave_every_sample_used_once, bad_rules_are_refused)}))
