"""Workers as jobs of a real Slurm: submitted, lost, preempted with a warning, cancelled."""
import os
import signal
import sys

import mayfly_run
from cloud_job import CloudJob
from mayfly_run import expect
from slurm_site import SlurmSite, reason_to_skip


def running(site):
    return [number for number, state in site.jobs() if state == "RUNNING"]


def main():
    reason = reason_to_skip()
    if reason:
        print("skipped: " + reason)
        return mayfly_run.SKIP
    site = SlurmSite()
    job = CloudJob(["--cloud-provider", "slurm", "--workers", "2", "--cloud-max-workers", "3",
                    "--cloud-offers", "@spot:spot=0.1"])
    job.wait_for_active(2)
    expect(len(running(site)) == 2, f"one job per worker: {site.jobs()}")

    os.kill(job.active()[0]["pid"], signal.SIGKILL)
    job.wait_for("a replacement", lambda: len(job.events("server_joined")) == 3)
    job.wait_for_active(2)

    job.run.command("scale", "1")
    job.wait_for_active(1)
    job.wait_for("one job left", lambda: len(running(site)) == 1)

    # A job of higher priority takes every core. Slurm warns the worker, which leaves at a boundary.
    first = running(site)
    site.call("sbatch", "--partition=prio", f"--nodes={4}", "--exclusive", "--output=/dev/null",
              "--time=1", "--wrap=sleep 4")
    job.wait_for("preemption", lambda: first[0] not in running(site))
    job.wait_for_active(1)  # a new Slurm job runs after the one of higher priority

    job.stop()
    left = [state for _, state in site.jobs() if state in ("PENDING", "RUNNING", "CONFIGURING")]
    expect(not left, f"nothing is left behind: {site.jobs()}")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
