"""Goal: --data-seed determines which samples each step has, and --seed the initial weights.
Method: jobs on tiny JPEGs with different seeds; the hashes of their samples and their digests.
"""
import shutil

import mayfly_run
from image_folder_test import JOB, image_folder
from mayfly_run import Run, expect, expect_refused


def seeds():
    folder = image_folder()
    samples, digests = {}, {}
    for seed, data_seed in ((7, 0), (7, 7), (8, 7), (7, 9), (8, 9)):
        run = Run([*JOB, "--data", folder, "--workers", "2", "--threads", "1", "--seed", str(seed),
                   "--data-seed", str(data_seed)])
        digests[seed, data_seed] = run.finish()["final_digest"]
        samples[seed, data_seed] = [record["sample_hash"] for record in run.metrics()]
        run.remove()
    expect(digests[7, 0] == digests[7, 7], "without --data-seed there are other bits")
    expect(samples[7, 0] == samples[7, 7] == samples[8, 7], "the seed of weights chose samples")
    expect(samples[7, 9] == samples[8, 9] != samples[7, 7], "--data-seed did not choose samples")
    expect(len(set(digests.values())) == 4, f"weights of other seeds are equal: {digests}")
    expect_refused([*JOB, "--data", folder], [(["--data-seed", "x"], "data_seed expects a whole")])
    shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"seeds": seeds}))
