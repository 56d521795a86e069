"""Goal: over three epochs with kills and joins, each sample of each epoch is committed exactly
once.
Method: every worker writes which samples it computed for each (step, microbatch), and each reduced
sum contains an order-free hash of the samples that were added to it. The test computes the hash
again from the written samples, and compares it with the committed one. The samples of each epoch
must be a permutation of the data set.
"""
import mayfly_run
import sample_ledger
from mayfly_run import Run, expect

SAMPLES, BATCH, MICROBATCH, EPOCHS = 512, 16, 4, 3


def every_sample_once():
    steps = SAMPLES * EPOCHS // BATCH
    chaos = ",".join(f"kill@step={s}:worker={w},join@step={s + 2}"
                     for w, s in enumerate(range(6, steps - 8, 11)))
    run = Run(mayfly_run.SMALL_JOB + ["--steps", str(steps), "--workers", "3", "--threads", "1",
                                      "--ledger", "--chaos", chaos])
    summary = run.finish()
    metrics = run.metrics()
    expect([m["step"] for m in metrics] == list(range(1, steps + 1)), "steps are not 1, 2, 3, ...")
    expect(summary["membership_changes"] >= 8, f"{summary['membership_changes']} changes only")
    sample_ledger.expect_every_sample_once(metrics, [run.run_dir], SAMPLES, BATCH, MICROBATCH)
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"every_sample_once": every_sample_once}))
