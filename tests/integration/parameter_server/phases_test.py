"""Phases with separate settings, the beginnings of asynchronous phases, and jobs that diverge."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "harness"))
from mayfly_run import SMALL_JOB, Run, expect, expect_refused, main  # noqa: E402
from sample_ledger import sample_hash  # noqa: E402

STEPS = 40
JOB = SMALL_JOB + ["--threads", "1", "--steps", str(STEPS), "--quiet", "--lr-schedule", "constant",
                   "--warmup-epochs", "0"]
DIVERGES = ["--phases", "bsp:50%,asp{lr=100000x}", "--workers", "2"]


def events(run, kind):
    return [e for e in run.lines("events.jsonl") if e["kind"] == kind]


def newest(metrics):
    """The last record of each step; earlier ones were undone."""
    steps = {m["step"]: m for m in metrics}
    return [steps[step] for step in sorted(steps)]


def finish(args):
    """Runs a job; returns the summary and the records of metrics.jsonl and events.jsonl."""
    run = Run(JOB + args)
    summary = run.finish()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps, not {STEPS}")
    result = summary, run.metrics(), run.lines("events.jsonl")
    run.remove()
    return result


def of_kind(found, kind):
    return [e for e in found if e["kind"] == kind]


def updates(found):
    return int(of_kind(found, "shard_done")[0]["detail"].split(": ")[1].split()[0])


def settings_hold_in_their_phase():
    _, metrics, found = finish(
        ["--workers", "2", "--phases",
         "bsp:50%{lr=0.5x},asp{lr=2x,lr-rule=fixed,checkpoint-every=8}"])
    rates = [round(m["learning_rate"], 9) for m in metrics]
    expect(rates == [0.025] * 20 + [0.1] * 20, f"learning rates {rates}")
    written = [e["step"] for e in of_kind(found, "checkpoint")]
    expect(written == [24, 32, 40], f"checkpoints after steps {written}")


def a_phase_with_the_settings_of_the_job_changes_nothing():
    ends = {finish(["--workers", "2", "--phases", phases])[0]["final_digest"]
            for phases in ("bsp", "bsp:40%{lr=1x,momentum=0.9,weight-decay=0.0001,batch=16},bsp")}
    expect(len(ends) == 1, "other bits")
    other = finish(["--workers", "2", "--phases", "bsp:40%{momentum=0.5},bsp"])[0]["final_digest"]
    expect(other not in ends, "the momentum of a phase means nothing")


def a_smaller_batch_is_more_updates_with_the_same_samples():
    _, plain, _ = finish(["--workers", "2", "--phases", "bsp"])
    ends = set()
    for workers in ("1", "2"):
        summary, metrics, found = finish(["--workers", workers, "--slices", "2", "--phases",
                                          "bsp:50%{batch=8},bsp"])
        expect(updates(found) == 20 * 2 + 20, f"{updates(found)} updates")
        expect(sample_hash(metrics) == sample_hash(plain), "not every sample once")
        ends.add(summary["final_digest"])
    expect(len(ends) == 1, "the bits depend on the number of workers")
    _, metrics, found = finish(["--workers", "3", "--phases", "asp:50%{batch=4},ssp:1{batch=8}"])
    expect(updates(found) == 20 * 4 + 20 * 2, f"{updates(found)} updates")
    expect(sample_hash(metrics) == sample_hash(plain), "not every sample once")


def phases_may_be_tables():
    run = Run(JOB + ["--workers", "1", "--phases", "bsp:25%,asp{lr=0.5x,momentum=0.8}"])
    digest = run.finish()["final_digest"]
    config = os.path.join(run.folder, "job.toml")
    with open(config, "w") as f:
        f.write('[[phase]]\nsync = "bsp"\nlength = "25%"\n\n'
                '[[phase]]\nsync = "asp"\nlr = "0.5x"\nmomentum = 0.8\n')
    expect(finish(["--workers", "1", "--config", config])[0]["final_digest"] == digest,
           "other bits than with the same phases as a flag")
    with open(config, "w") as f:
        f.write('[[phase]]\nsync = "asp"\nlearning_rate = 0.5\n')
    bad = Run(JOB + ["--config", config])
    expect(bad.wait() == 2 and "phase 1" in bad.output() and "learning-rate" in bad.output(),
           bad.output())
    bad.remove()
    run.remove()


def asynchronous_jobs_may_begin_warm():
    with_rounds = finish(["--workers", "1", "--sync", "asp", "--slices", "2",
                          "--asp-warm-up", "bsp:25%"])
    spelled_out = finish(["--workers", "1", "--phases", "bsp:25%,asp", "--slices", "2"])
    expect(with_rounds[0]["final_digest"] == spelled_out[0]["final_digest"], "other bits")
    _, metrics, _ = finish(["--workers", "2", "--sync", "asp", "--lr-rule", "fixed",
                            "--asp-warm-up", "ramp:10steps"])
    rates = [round(m["learning_rate"], 9) for m in metrics]
    expect(rates[:10] == sorted(rates[:10]) and rates[0] < 0.01 and rates[10:] == [0.05] * 30,
           f"learning rates {rates}")


def check_fallback(args, bits, plain):
    summary, metrics, found = finish(DIVERGES + ["--on-divergence", "bsp"] + args)
    fell = of_kind(found, "fell_back")
    expect(len(fell) == 1 and fell[0]["step"] == 20, f"{args}: {fell}")
    expect(fell[0]["undone_steps"] > 0, f"{args}: nothing was undone")
    expect(summary["undone_samples"] == fell[0]["undone_samples"], f"{args}: {summary}")
    expect(summary["samples"] == STEPS * 16, f"{args}: {summary['samples']} samples")
    expect([m["step"] for m in newest(metrics)] == list(range(1, STEPS + 1)), "steps are missing")
    expect(sample_hash(newest(metrics)) == sample_hash(plain), f"{args}: not every sample once")
    if bits:
        expect(summary["final_digest"] == bits, f"{args}: other bits than bsp from that state on")


def a_job_that_diverges_goes_back_and_on_in_rounds():
    bits = {}
    for slices in ("2", "4"):
        bits[slices], plain, _ = finish(["--workers", "2", "--sync", "bsp", "--slices", slices])
        bits[slices] = bits[slices]["final_digest"]
    check_fallback(["--slices", "2"], bits["2"], plain)
    check_fallback(["--slices", "4", "--ps", "2", "--shards", "2"], bits["4"], plain)
    check_fallback(["--slices", "2", "--ps", "2", "--ps-replicas", "1"], bits["2"], plain)
    check_fallback(["--slices", "4", "--checkpoint-every", "5", "--chaos",
                    "kill@step=25:worker=1"], None, plain)


def a_job_that_diverges_ends_unless_it_may_go_back():
    run = Run(JOB + DIVERGES)
    expect(run.wait() == 1, f"not failed: {run.output()}")
    texts = [e["detail"] for e in events(run, "fatal")]
    expect(any("on-divergence" in text for text in texts), f"said: {texts}")
    run.remove()


def a_calm_job_stays_as_it_is():
    _, plain, _ = finish(["--workers", "2", "--sync", "bsp"])
    _, metrics, found = finish(["--workers", "3", "--phases", "bsp:25%,asp", "--on-divergence",
                                "bsp", "--lr", "0.005"])
    expect(not of_kind(found, "fell_back"), f"{of_kind(found, 'fell_back')}")
    expect(len(metrics) == STEPS and sample_hash(metrics) == sample_hash(plain),
           "not every sample once")


def bad_phases_are_refused():
    expect_refused(JOB, ((["--phases", "bsp:5%,asp{lr=0.5}"], "phase 2 'asp{lr=0.5}'"),
                         (["--phases", "asp{batch=5}"], "global batch 16"),
                         (["--sync", "asp", "--asp-warm-up", "5%"], "bsp:AMOUNT"),
                         (["--sync", "asp", "--on-divergence", "pray"], "fail or bsp"),
                         (["--on-divergence", "bsp"], "--sync and --phases"),
                         (["--sync", "asp", "--divergence-factor", "1"], "above 1")))


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        settings_hold_in_their_phase, a_phase_with_the_settings_of_the_job_changes_nothing,
        a_smaller_batch_is_more_updates_with_the_same_samples, phases_may_be_tables,
        asynchronous_jobs_may_begin_warm, a_job_that_diverges_goes_back_and_on_in_rounds,
        a_job_that_diverges_ends_unless_it_may_go_back, a_calm_job_stays_as_it_is,
        bad_phases_are_refused)}))
