"""Goal: a worker that is alive but makes no progress is reported at once and evicted; a slow worker
is not.
Method: the scripted fault `hang`, real processes, and the digest of the undisturbed run.
"""
import mayfly_run
from mayfly_run import SMALL_JOB, Run, digests, expect
from oracle import Oracle

JOB = SMALL_JOB + ["--threads", "1", "--steps", "80"]


def events(run, kind):
    return [e for e in run.lines("events.jsonl") if e["kind"] == kind]


def a_hang_is_named_and_evicted():
    undisturbed = Oracle(JOB + ["--workers", "1"]).digests()
    run = Run(JOB + ["--workers", "3", "--chaos", "hang@step=40:worker=1"])
    run.finish()
    by_step = digests(run)
    expect(all(by_step[step] == digest for step, digest in undisturbed.items()), "other bits")
    stalls, evictions, began = events(run, "stalled"), events(run, "evicted"), events(run, "chaos")
    expect(len(stalls) == 1, f"stalled: {stalls}")
    culprit = stalls[0]["member"]
    for word in ("rank", "computes microbatch", "of step 41", "bucket", "wait", "weight"):
        expect(word in stalls[0]["detail"], f"no '{word}' in {stalls[0]['detail']}")
    took = stalls[0]["time"] - began[0]["time"]
    expect(took < 10, f"reported after {took} s")  # a generous bound; it usually takes a second
    expect([e["member"] for e in evictions] == [culprit], f"evicted: {evictions}")
    lost = [r["members"] for r in (e["recovery"] for e in events(run, "recovery"))
            if r["cause"] not in ("join", "rebalance")]
    expect(lost == [[culprit]], f"{culprit} hung; lost: {lost}")
    run.remove()


def a_slow_worker_is_reported_but_stays():
    undisturbed = Oracle(JOB + ["--workers", "1"]).digests()
    run = Run(JOB + ["--workers", "3", "--chaos", "hang@step=40:worker=2:for=2000"])
    run.finish()
    by_step = digests(run)
    expect(all(by_step[step] == digest for step, digest in undisturbed.items()), "other bits")
    expect(len(events(run, "stalled")) == 1, "not reported, or more than once")
    expect(not events(run, "evicted") and not events(run, "lost"), "a living worker was evicted")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "a_hang_is_named_and_evicted": a_hang_is_named_and_evicted,
        "a_slow_worker_is_reported_but_stays": a_slow_worker_is_reported_but_stays}))
