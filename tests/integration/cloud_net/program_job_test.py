"""Goal: `mayfly run` trains a user's own program on a cloud's machines, which get the program only
from the coordinator. A machine that vanishes is replaced, and the bits are the same. If a program
fails everywhere, the job does not request machines for ever.
Method: the fake clouds; machines start from the bundle, which contains the folder of a NumPy
program. The oracle is the program on this machine.
"""
import os
import subprocess
import sys
import tempfile

import mayfly_run
from fake_cloud_job import MACHINE_TYPE, ROOT, FakeCloudJob
from mayfly_run import LISTS_ARE_EXACT, Run, expect

PROGRAM = os.path.join(ROOT, "tests", "integration", "library", "arrays_program.py")
PYTHON = "/usr/bin/python3"  # the one that has NumPy
STEPS = "1200"
SETTINGS = ["--no-tensorboard", "--digest-every", "100"]
TIMEOUT = 140  # for each of two jobs; ctest's is longer, so that the test can print the error


def vanishing_machine():
    if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
        print("skipped: no NumPy (scripts/setup oracle)")
        sys.exit(mayfly_run.SKIP)
    alone = Run(SETTINGS + ["--workers", "1"], program=[PYTHON, PROGRAM, STEPS],
                timeout=TIMEOUT)
    digest = alone.finish()["final_digest"]
    alone.remove()
    with tempfile.TemporaryDirectory(prefix="mayfly-program-") as folder:
        os.symlink(os.path.realpath(PROGRAM), os.path.join(folder, "train.py"))
        job = FakeCloudJob("ec2", SETTINGS, 2, timeout=TIMEOUT,
                           program=(folder, [PYTHON, "train.py", STEPS]),
                           environment=LISTS_ARE_EXACT).start()
        job.wait_for("two members and a hundred steps",
                     lambda: len(job.events("server_joined")) >= 2 and job.run.last_step() >= 100)
        lost = job.machines("running")[0]["name"]
        job.cloud.control("vanish", machine=lost)
        job.wait_for("another one", lambda: len(job.events("server_joined")) >= 3)
        code = job.run.wait()
    summary = job.run.summary()
    expect(code == 0 and summary["final_digest"] == digest,
           f"{code}, {summary['final_digest']} and not {digest}\n{job.shown()}")
    expect(summary["samples"] == int(STEPS) * 32, f"{summary}")
    expect(lost in str(job.events("lost") + job.events("server_lost", "server_ended")), job.shown())
    left = job.machines("starting", "running", "stopping")
    expect(not left, f"machines are left: {left}\n{job.shown()}")
    job.stop()


def fails_everywhere(provider):
    with tempfile.TemporaryDirectory(prefix="mayfly-program-") as folder:
        with open(os.path.join(folder, "train.py"), "w") as program:
            program.write("import a_module_that_the_image_lacks\n")
        job = FakeCloudJob(provider, SETTINGS, 2, timeout=2 * TIMEOUT,
                           extra=["--cloud-offers", f"{MACHINE_TYPE[provider]}@zone-a:spot=0.90"],
                           program=(folder, [sys.executable, "train.py"]),
                           environment=LISTS_ARE_EXACT).start()
        code = job.run.wait()
    said = job.run.output()
    expect(code == 1 and "no worker can start" in said, f"{code}\n{job.shown()}")
    reason = "ModuleNotFoundError: No module named 'a_module_that_the_image_lacks'"
    expect(f"ended with: {reason}" in said, said)
    outputs = job.events("server_output")
    expect(outputs and all("train.py" in one["detail"] for one in outputs), f"{outputs}")
    made = job.machines()
    expect(3 <= len(made) <= 4 and {m["state"] for m in made} == {"gone"}, f"{made}")
    job.stop()


if __name__ == "__main__":
    sys.exit(mayfly_run.main({"vanishing_machine": vanishing_machine,
                              "fails/ec2": lambda: fails_everywhere("ec2"),
                              "fails/gce": lambda: fails_everywhere("gce")}))
