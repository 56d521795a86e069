"""Goal: any ranks of an mpirun may die at any time; the job ends with the bits of one worker.
Method: random numbers of ranks and spares over Open MPI's TCP or shared memory. Ranks are killed at
random moments, sometimes two at once, as long as one lives. MAYFLY_TEST_SEEDS runs other seeds.
"""
import sys
import time

import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, Failure, expect

STEPS = 60
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1"]


def play(seed, oracle):
    random = mayfly_run.rng(seed)
    ranks = random.randint(2, 5)
    spares = random.randint(0, ranks - 2)
    btl = random.choice(["tcp", "vader"])
    run = mpi_launch.start(ranks, JOB + ["--backend", "mpi", "--spares", str(spares)],
                           ["--enable-recovery", "--mca", "btl", btl + ",self"])
    victims = random.sample(range(ranks), random.randint(1, ranks - 1))
    step = 1
    for number, victim in enumerate(victims):
        if number == 0 or random.random() < 0.7:
            step += random.randint(0, 12)
            run.wait_for_step(step)
            time.sleep(random.random() * 0.03)  # only to vary the moment
        try:
            mpi_launch.kill_rank(run, victim)
        except Failure as failure:  # the rank does not exist; it may have ended after the last step
            expect(run.last_step() == STEPS, failure)
    run.wait()
    plan = f"seed {seed}: {ranks} ranks, {spares} spares, {btl}, killed {victims}"
    by_step = mayfly_run.digests(run)
    expect(by_step == oracle, f"{plan}: other digests ({len(by_step)})\n{run.logs()}")
    most = max(m["members"] for m in run.metrics())
    expect(most <= ranks - spares, f"{plan}: {most} members")
    run.remove()


def random_kills():
    _, oracle = mayfly_run.train(JOB + ["--workers", "1"])
    expect(len(oracle) == STEPS, f"the oracle has {len(oracle)} of {STEPS} digests")
    for seed in mayfly_run.seeds(12):
        play(seed, oracle)


if __name__ == "__main__":
    mpi_launch.skip_without_module()
    sys.exit(mayfly_run.main({"random_kills": random_kills}))
