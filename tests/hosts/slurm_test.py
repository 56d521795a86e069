"""Goal: on Slurm nodes that share no disk, processes that srun, sbatch or mpirun starts form one
job, and the model is on the host that the job's last lines name. Workers that the coordinator
requests from Slurm fetch the program from the coordinator, run on one node each, and leave no files
there."""
import os
import re
import shutil
import time

import mayfly_run
import slurm_of_hosts
from fake_cloud_job import bundle_of, unpack_bundle
from mayfly_run import Run, SMALL_JOB, expect, lingering
from oracle import Oracle
from slurm_of_hosts import SlurmLab

STEPS = ["--steps", "40"]
JOB = SMALL_JOB + STEPS
PROGRAM = "/root/mayfly/mayfly"
LINEAR = os.environ.get("MAYFLY_TEST_LINEAR", "build/release/example-linear")
BUNDLE = ["--cloud-bundle", "program.tar.gz"]
OPEN_MPI_AS_ROOT = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]


def undisturbed():
    return Oracle(JOB + ["--workers", "1", "--threads", "1"]).summary["final_digest"]


def lab_with_program(nodes, *hosts):
    lab = SlurmLab(nodes)
    for host in hosts:
        unpack_bundle(mayfly_run.BINARY, lab.disk(host, "root"))
    return lab


def lab_with_bundle(nodes):
    lab = lab_with_program(nodes, 0)
    shutil.copy(bundle_of(mayfly_run.BINARY), lab.disk(0, "root/program.tar.gz"))
    return lab


def train(run_dir):
    return [PROGRAM, "train", "--run-dir", run_dir, "--threads", "1"] + JOB


def is_one_job(lab, said, digest, run_dir):
    """Expects one job with a worker on each of three nodes, and the model on the host that the last
    lines name."""
    code, output = said
    expect(code == 0, f"exit code {code}\n{output}")
    expect(output.count("Done: 40 steps") == 1, f"not one job\n{output}")
    expect(all(output.count(f"1 on h{node}") == 1 for node in lab.nodes), output)
    expect(f"digest        {digest}" in output, f"other bits than {digest}\n{output}")
    place = re.search(r"checkpoint +h(\d):(/root/\S+)", output)
    expect(place is not None, f"no host is named\n{output}")
    shown = lab.run(int(place[1]), [PROGRAM, "digest", place[2]])
    expect(shown[0] == 0 and digest in shown[1], f"no model there: {shown}")
    expect(place[2] == f"/root/{run_dir}/checkpoints/step-40", place[2])
    for node in lab.nodes:
        code, found = lab.run(node, ["pgrep", "-a", "mayfly"])
        expect(code == 1, f"processes on h{node}: {found}")
    return int(place[1])


def launched_by_srun():
    digest = undisturbed()
    lab = lab_with_program(3, 1, 2, 3)
    _, kinds = lab.slurm(0, ["srun", "--mpi=list"])
    for kind in ("pmi2", "pmix"):
        if kind in kinds.split():
            said = lab.slurm(0, ["srun", f"--mpi={kind}", "-N", "3", "-n", "3"] + train(kind), 120)
            is_one_job(lab, said, digest, kind)
    # Without PMI the ranks cannot find each other, and print what the user can do.
    code, output = lab.slurm(0, ["srun", "-N", "3", "-n", "3"] + train("alone"), 120)
    expect(code == 2 and "Done" not in output and "srun --mpi=pmi2" in output, output)


def node_that_srun_loses():
    """The other workers go on after a node is lost. When Slurm has noticed the loss, srun ends with
    the workers' exit code."""
    digest = undisturbed()
    lab = lab_with_program(3, 1, 2, 3)
    output = lab.disk(0, "root", "output.txt")
    process = lab.start(0, lab.words(
        ["timeout", "-k", "5", "150", "salloc", "--no-kill", "-N", "3", "-n", "3", "srun",
         "--no-kill", "--mpi=pmi2"] + train("run") + lingering(6, 30)), output)
    run = Run.attach(lab.disk(1, "root"), process, 150)  # rank 0's
    shutil.copy(output, run.output_path)
    run.wait_for_step(6)
    lab.power_off(3)
    code = process.wait()
    with open(output) as file:
        said = file.read()
    expect(code == 0, f"exit code {code}\n{said}")
    summary = run.summary()
    expect(summary["final_digest"] == digest and summary["membership_changes"] == 1, said)
    expect("checkpoint    h1:/root/run/checkpoints/step-40" in said, said)


BATCH = """#!/bin/sh
#SBATCH --nodes=3 --ntasks-per-node=1 --output=/root/job.log
srun --mpi=pmi2 {train}
"""


def launched_in_a_batch_script():
    digest = undisturbed()
    lab = lab_with_program(3, 1, 2, 3)
    with open(lab.disk(0, "root/job.sh"), "w") as file:
        file.write(BATCH.format(train=" ".join(train("batch"))))
    code, said = lab.slurm(0, ["sbatch", "--wait", "job.sh"], 180)
    with open(lab.disk(1, "root/job.log")) as file:  # it runs on the first node
        is_one_job(lab, (code, said + file.read()), digest, "batch")


# The script of docs/slurm.md. salloc runs it on the user's host.
FROM_NOTHING = """#!/bin/sh -e
sbcast program.tar.gz /tmp/program.tar.gz
srun tar -xzf /tmp/program.tar.gz -C /root
srun --mpi=pmi2 {train}
srun --nodes=1 --ntasks=1 --relative=0 tar -czf - home > home.tar.gz
"""


def brought_along_and_home():
    """The nodes have nothing. Slurm alone copies the program to them and the model back."""
    digest = undisturbed()
    lab = lab_with_bundle(3)
    with open(lab.disk(0, "root/job.sh"), "w") as file:
        file.write(FROM_NOTHING.format(train=" ".join(train("home"))))
    said = lab.slurm(0, ["salloc", "--nodes=3", "--ntasks-per-node=1", "sh", "-e", "job.sh"], 180)
    is_one_job(lab, said, digest, "home")
    expect(lab.run(0, ["tar", "-xzf", "home.tar.gz"]) == (0, ""), "what came home is no archive")
    shown = lab.run(0, [PROGRAM, "digest", "home"])
    expect(shown[0] == 0 and digest in shown[1], f"the model is not at home: {shown}")


def launched_by_mpirun():
    if shutil.which("mpirun") is None:
        print("left out: mpirun is missing")
        return
    digest = undisturbed()
    lab = lab_with_program(3, 1, 2, 3)
    said = lab.slurm(0, ["env", *OPEN_MPI_AS_ROOT, "salloc", "-N", "3", "-n", "3", "mpirun"]
                     + train("mpi"), 180)
    is_one_job(lab, said, digest, "mpi")


class ProviderRun(Run):
    """Runs `mayfly coordinator`, whose workers are jobs of Slurm. Only the user's host has the
    program."""

    def __init__(self, lab, workers, *more):
        self.lab = lab
        self.folder = lab.disk(0, "root")
        self.run_dir = os.path.join(self.folder, "run")
        self.output_path = os.path.join(self.folder, "output.txt")
        self.timeout = 240
        self.command_line = lab.words(
            [PROGRAM, "coordinator", "--run-dir", "run", "--workers", str(workers), "--threads",
             "1", "--cloud-provider", "slurm"] + list(more))
        self.begin()

    def begin(self):
        self.started = time.monotonic()
        self.process = self.lab.start(0, self.command_line, self.output_path)

    def ends_well(self, digest):
        code = self.wait()
        expect(code == 0, f"exit code {code}\n{self.logs()}")
        expect(self.summary()["final_digest"] == digest, f"other bits\n{self.logs()}")
        shown = self.lab.run(0, [PROGRAM, "digest", "run"])
        expect(shown[0] == 0 and digest in shown[1], f"the model is not at home: {shown}")

    def fails(self, *words):
        """Expects exit code 1, a line that contains the words, and an empty queue."""
        expect(self.wait() == 1, f"not failed\n{self.logs()}")
        last = [line for line in self.output().splitlines() if "no worker can start" in line]
        expect(last and all(word in last[0] for word in words), f"not {words}: {self.output()}")
        left = [job for job in self.lab.jobs() if job[1] in ("PENDING", "RUNNING")]
        expect(not left, f"in the queue: {left}")
        expect(len(self.events("server_granted")) < 5, f"too many jobs\n{self.logs()}")


def nothing_is_left(lab, nodes):
    """Expects no process and no folder on the nodes. A cancelled job removes its folder while Slurm
    shows it as COMPLETING, so this waits for the end of that state."""
    deadline = time.monotonic() + 60
    while any(job[1] == "COMPLETING" for job in lab.jobs()) and time.monotonic() < deadline:
        time.sleep(0.2)
    expect(all(job[1] not in ("PENDING", "RUNNING", "COMPLETING") for job in lab.jobs()),
           lab.jobs())
    for node in nodes:
        left = [name for folder in ("tmp", "var/tmp") for name in os.listdir(lab.disk(node, folder))
                if not re.fullmatch(r"slurm-\d+\.log", name)]
        expect(len(left) <= lab.aborted_jobs(node), f"left on h{node}: {left}")
        code, found = lab.run(node, ["pgrep", "-a", "mayfly"])
        expect(code == 1, f"processes on h{node}: {found}")


def asked_for_by_the_coordinator():
    digest = undisturbed()
    lab = lab_with_bundle(3)
    run = ProviderRun(lab, 3, *BUNDLE, *JOB)
    run.ends_well(digest)
    hosts = sorted(worker["host"] for worker in run.summary()["workers"])
    expect(hosts == ["h1", "h2", "h3"], f"not spread over the nodes: {hosts}")
    nothing_is_left(lab, lab.nodes)


def node_that_is_lost():
    """A Slurm job on the free node replaces the worker of the lost node."""
    digest = undisturbed()
    lab = lab_with_bundle(3)
    run = ProviderRun(lab, 2, *BUNDLE, *JOB, *lingering(6, 30))
    run.wait_for_step(6)
    used = [int(node[1:]) for _, state, node in lab.jobs() if state == "RUNNING"]
    expect(len(set(used)) == 2, f"nodes {used}")
    lab.power_off(used[0])
    spare = 6 - sum(used)
    run.wait_for("a job on the free node", lambda: any(
        job[1] == "RUNNING" and job[-1] == f"h{spare}" for job in lab.jobs()))
    run.ends_well(digest)
    nothing_is_left(lab, (used[1], spare))


def own_machine_loses_power():
    """The power loss of the user's machine also ends slurmctld. The workers go on. When the user
    repeats the command, the job continues with them."""
    digest = undisturbed()
    lab = lab_with_bundle(2)
    run = ProviderRun(lab, 2, *BUNDLE, *JOB, *lingering(6, 30))
    run.wait_for_step(6)
    lab.power_off(0)
    run.process.wait()
    lab.power_on(0)
    lab.start_slurm(0)
    run.begin()
    run.ends_well(digest)
    joined = {event["server"] for event in run.events("server_joined")}
    expect(len(joined) == 2, f"other workers: {joined}\n{run.logs()}")
    nothing_is_left(lab, lab.nodes)


def workers_that_cannot_start():
    """After three failed workers in a row the coordinator requests no further workers. It prints
    the last lines of one of them and the path of its log."""
    lab = lab_with_bundle(2)
    run = ProviderRun(lab, 2, *BUNDLE, *JOB, "--cloud-worker-args", "--data /nowhere/cifar")
    run.fails("/nowhere/cifar", "on h", ", log /tmp/slurm-")
    nothing_is_left(lab, lab.nodes)


def folder_that_nodes_do_not_see():
    lab = lab_with_program(2, 0)
    run = ProviderRun(lab, 2, *JOB)
    run.fails("JobLaunchFailure", "on h", "run/logs/slurm-", "--cloud-bundle")


def program_of_ones_own():
    """srun starts a user's program that is on the nodes; the coordinator starts one that only the
    user has."""
    job = [LINEAR, "20000"]
    settings = ["--no-tensorboard", "--digest-every", "1000"]
    alone = Run(settings + ["--workers", "1"], program=job)
    digest = alone.finish()["final_digest"]
    alone.remove()
    lab = lab_with_program(3, 0, 1, 2, 3)
    for host in (0, *lab.nodes):
        os.makedirs(lab.disk(host, "root/mine"))
        shutil.copy(LINEAR, lab.disk(host, "root/mine/linear"))
    said = lab.slurm(0, ["srun", "--mpi=pmi2", "-N", "3", "-n", "3", PROGRAM, "run", "--run-dir",
                         "run", *settings, "--", "/root/mine/linear", job[1]], 120)
    expect(said[0] == 0 and f"digest        {digest}" in said[1], f"{said}")
    for node in lab.nodes:
        shutil.rmtree(lab.disk(node, "root/mine"))
    asked = lab.slurm(0, [PROGRAM, "run", "--run-dir", "asked", "--workers", "2",
                          "--cloud-provider", "slurm", "--program-dir", "mine", *settings, "--",
                          "./linear", job[1]], 120)
    expect(asked[0] == 0 and f"digest        {digest}" in asked[1], f"{asked}")
    nothing_is_left(lab, lab.nodes)


def main():
    lack = slurm_of_hosts.reason_to_skip()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({
        "srun": launched_by_srun, "srun_lost_node": node_that_srun_loses,
        "sbatch": launched_in_a_batch_script,
        "mpirun": launched_by_mpirun, "from_nothing": brought_along_and_home,
        "provider": asked_for_by_the_coordinator, "lost_node": node_that_is_lost,
        "own_machine": own_machine_loses_power,
        "cannot_start": workers_that_cannot_start, "no_bundle": folder_that_nodes_do_not_see,
        "program": program_of_ones_own})


if __name__ == "__main__":
    raise SystemExit(main())
