"""Goal: N ranks of srun, mpiexec or mpirun form one job of N workers, also if they share no files.
If they cannot, they print within seconds what the user can do; they never start N jobs.
Method: processes with the environment variables of each launcher (tests/harness/launchers.py), each
in a separate folder, and the launchers themselves if they are installed. The digest must be that of
a job with one worker.
"""
import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import mayfly_run
import mpi_launch
from launchers import Pmi, Ranks, mpiexec, srun
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

JOB = SMALL_JOB + ["--steps", "12", "--threads", "1"]
NEVER_TWO_JOBS = "one job was expected"


def oracle():
    return Oracle(JOB + ["--workers", "1"]).digests()[12]


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def summaries(folder):
    found = glob.glob(folder + "/**/summary.json", recursive=True)
    loaded = []
    for path in found:
        with open(path) as f:
            loaded.append(json.load(f))
    return loaded


def members_of(folder):
    (path,) = glob.glob(folder + "/**/metrics.jsonl", recursive=True)
    with open(path) as f:
        return {json.loads(line)["members"] for line in f if '"members"' in line}


def check_one_job(ranks, workers):
    codes = ranks.wait()
    expect(codes == [0] * workers, f"exit codes {codes}\n{ranks.outputs()}")
    found = summaries(ranks.folder)
    expect(len(found) == 1, f"{NEVER_TWO_JOBS}, not {len(found)}\n{ranks.outputs()}")
    expect(found[0]["outcome"] == "done" and found[0]["final_digest"] == oracle(), str(found[0]))
    expect(members_of(ranks.folder) == {workers}, f"members {members_of(ranks.folder)}")
    shutil.rmtree(ranks.folder)


def srun_on_one_host():
    ranks = Ranks(JOB + ["--workers", "2"], [srun(r, 3) for r in range(3)], together=True)
    ranks.wait()
    expect("srun has started 3 processes" in ranks.output(0), ranks.output(0))
    check_one_job(ranks, 3)


def srun_with_a_shared_folder():
    """Without PMI the ranks find each other through files in a shared folder, and remove them."""
    ranks = Ranks(JOB, [srun(r, 3, nodes=3) for r in range(3)], together=True)
    ranks.wait()
    expect(not glob.glob(ranks.folder + "/runs/*/ranks"), "marks were left behind")
    check_one_job(ranks, 3)


def marks_of_before():
    """Files of the ranks of an earlier launch, which ended while its ranks started, are ignored."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    os.makedirs(folder + "/run/ranks")
    for rank in ("1", "2"):
        with open(f"{folder}/run/ranks/{rank}", "w", encoding="utf-8"):
            pass
    ranks = Ranks(JOB + ["--run-dir", folder + "/run"], [srun(r, 3, nodes=3) for r in range(3)])
    codes = ranks.wait()
    expect(codes == [0, 0, 0], f"exit codes {codes}\n{ranks.outputs()}")
    expect(not glob.glob(folder + "/run/ranks*"), "marks were left behind")
    shutil.rmtree(ranks.folder)
    shutil.rmtree(folder)


def address_of_before():
    """Ranks ignore the address file of a killed coordinator, and wait for that of the next one."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    args = [*JOB, "--run-dir", folder + "/run", "--checkpoint-every", "4"]
    variables = [srun(r, 3) for r in range(3)]
    first = Ranks(args, variables)
    expect(first.wait() == [0, 0, 0], first.outputs())
    os.remove(folder + "/run/summary.json")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # a port on which no process listens
        with open(folder + "/run/coordinator", "w", encoding="utf-8") as file:
            file.write(f"127.0.0.1:{nobody.getsockname()[1]}\n")
        again = Ranks([*args, "--resume", folder + "/run/checkpoints/step-8"],
                      variables)
        codes = again.wait()
    expect(codes == [0, 0, 0], f"exit codes {codes}\n{again.outputs()}")
    expect(summaries(folder)[0]["final_digest"] == oracle(), again.outputs())
    for done in (first.folder, again.folder, folder):
        shutil.rmtree(done)


def descendants(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(entry), *descendants(int(entry))]
    return found


def coordinator_begins_late():
    """Rank 0 waits as long as its coordinator loads the job; the other ranks wait for
    --coordinator-timeout and then print possible reasons."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    os.makedirs(folder + "/run/logs")
    gate = folder + "/run/logs/coordinator.log"
    os.mkfifo(gate)  # the coordinator blocks here until the test opens the pipe
    ranks = Ranks([*JOB, "--run-dir", folder + "/run", "--coordinator-timeout", "4"],
                  [srun(r, 3) for r in range(3)])
    codes = [ranks.processes[r].wait(30) for r in (1, 2)]
    expect(codes == [1, 1], f"exit codes {codes}\n{ranks.outputs()}")
    expect("no coordinator has begun there within 4 s (--coordinator-timeout)" in ranks.output(1),
           ranks.outputs())
    with open(os.open(gate, os.O_RDONLY | os.O_NONBLOCK), "rb"):
        while "coordinator at " not in ranks.output(0):
            expect(ranks.processes[0].poll() is None, ranks.outputs())
            time.sleep(0.05)
        for pid in descendants(ranks.processes[0].pid):
            mayfly_run.kill(pid)
        ranks.stop_hard()
    shutil.rmtree(ranks.folder)
    shutil.rmtree(folder)


def first_rank_cannot_tell():
    """Rank 0 ends its coordinator if it cannot send its address to the other ranks."""
    class Deaf(Pmi):
        def _answer(self, fields):
            return ("cmd=put_result rc=-1 msg=no" if fields["cmd"] == "put"
                    else super()._answer(fields))

    pmi = Deaf(1)
    ranks = Ranks(JOB, [mpiexec(0, 2)], pmi)
    codes = ranks.wait(60)
    expect(codes == [1], f"exit codes {codes}\n{ranks.outputs()}")
    (lock,) = glob.glob(ranks.folder + "/**/view.log.lock", recursive=True)
    with open(lock, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the coordinator has ended
    shutil.rmtree(ranks.folder)


def srun_over_pmi():
    """srun --mpi=pmi2 with ranks that share no files."""
    pmi = Pmi(3)
    variables = [{**srun(r, 3, nodes=3), "PMI_RANK": str(r), "PMI_SIZE": "3"} for r in range(3)]
    check_one_job(Ranks(JOB, variables, pmi), 3)
    expect(pmi.finalized == 3, f"{pmi.finalized} ranks took leave of their launcher")


def mpiexec_over_pmi():
    pmi = Pmi(2)
    ranks = Ranks(JOB, [mpiexec(r, 2) for r in range(2)], pmi)
    ranks.wait()
    expect(os.listdir(ranks.folders[1]) == [] or "token" not in str(
        glob.glob(ranks.folders[1] + "/**", recursive=True)), "the token was written to a disk")
    check_one_job(ranks, 2)


def first_rank_fails():
    """Rank 0's reason is printed once; the other ranks do not wait but end with its exit code."""
    pmi = Pmi(3)
    begin = time.monotonic()
    ranks = Ranks(JOB + ["--data", "/no/such/folder"], [mpiexec(r, 3) for r in range(3)], pmi)
    codes = ranks.wait()
    expect(codes == [2, 2, 2], f"exit codes {codes}\n{ranks.outputs()}")
    expect("no data set" in ranks.output(0), ranks.outputs())
    expect(time.monotonic() - begin < 30, "the others waited")
    shutil.rmtree(ranks.folder)


def warned():
    """Slurm's warning goes to all processes of a step. The job stops with a checkpoint. It used to
    end the coordinator, without which the workers went on and could not leave, and `mayfly train`
    itself."""
    ranks = Ranks([*JOB, "--run-dir", "run", *lingering(4)], [srun(r, 2) for r in range(2)],
                  together=True)
    metrics = ranks.folder + "/run/metrics.jsonl"
    while not os.path.exists(metrics) or read_text(metrics).count('"members"') < 4:
        expect(all(one.poll() is None for one in ranks.processes), ranks.outputs())
        time.sleep(0.02)
    for process in ranks.processes:
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
    codes = ranks.wait()
    expect(codes[0] == 3, f"exit codes {codes}\n{ranks.outputs()}")
    (summary,) = summaries(ranks.folder)
    expect(summary["outcome"] == "stopped", f"{summary}\n{ranks.outputs()}")
    saved = f"{ranks.folder}/run/checkpoints/step-{summary['steps']}"
    expect(os.path.isdir(saved), f"there is no {saved}\n{ranks.outputs()}")
    shutil.rmtree(ranks.folder)
    run = Run([*JOB, "--workers", "2", *lingering(4)])
    run.wait_for_step(4)
    run.process.send_signal(signal.SIGUSR1)
    code = run.wait()
    expect(code == 3 and run.summary()["outcome"] == "stopped", f"{code}\n{run.logs()}")
    run.remove()


def nothing_shared():
    """Ranks without PMI and a shared folder print that within seconds and end, also rank 0."""
    begin = time.monotonic()
    ranks = Ranks(JOB, [srun(r, 2, nodes=2) for r in range(2)])
    words = "the ranks are on hosts node[1-2] and the run directory"
    while not all(words in ranks.output(r) for r in range(2)):
        expect(time.monotonic() - begin < 15, f"nothing was said\n{ranks.outputs()}")
        time.sleep(0.1)
    codes = ranks.wait(60)
    expect(codes == [2, 2], f"exit codes {codes}\n{ranks.outputs()}")
    expect("--mpi=pmi2" in ranks.output(1), ranks.outputs())
    expect(not summaries(ranks.folder), NEVER_TWO_JOBS)
    shutil.rmtree(ranks.folder)


def contradictions():
    cases = [({"PMIX_RANK": "1"}, "do not give their number"),
             ({"PMI_RANK": "1"}, "PMI_SIZE is ''"),
             ({"PMI_ID": "1", "PMI_PORT": "h:1"}, "PMI_RANK is ''"),
             ({**srun(1, 3), "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
              "srun that it is one of 3"),
             (mpiexec(1, 2), "name a --run-dir")]
    for variables, words in cases:
        ranks = Ranks(JOB, [variables])
        expect(ranks.wait(20) == [2], f"{variables}: not refused\n{ranks.outputs()}")
        lines = ranks.output(0).strip().splitlines()
        expect(len(lines) == 1 and words in lines[0], f"{variables}: said {lines}")
        expect(not os.listdir(ranks.folders[0]), "something was left behind")
        shutil.rmtree(ranks.folder)


def batch_script():
    """The variables of a batch script describe three tasks, but the script is none of them."""
    variables = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "3", "SLURM_PROCID": "0"}
    ranks = Ranks(JOB + ["--workers", "2"], [variables])
    expect(ranks.wait() == [0], ranks.outputs())
    expect(members_of(ranks.folder) == {2}, "it started no workers of its own")
    shutil.rmtree(ranks.folder)


def mpirun_shares_nothing():
    """Ranks find each other over PMIx. Each has a separate folder, and its launcher variables say
    that it is alone on its host."""
    mpi_launch.skip_without_mpirun()
    folder = Ranks([], []).folder
    script = ('export OMPI_COMM_WORLD_LOCAL_SIZE=1; mkdir -p "$0/$OMPI_COMM_WORLD_RANK"; '
              'cd "$0/$OMPI_COMM_WORLD_RANK"; exec "$@"')
    done = subprocess.run(
        [*mpi_launch.command(3), "sh", "-c", script, folder, os.path.abspath(mayfly_run.BINARY),
         "train", *JOB], env=mpi_launch.environment(), capture_output=True, text=True, timeout=120)
    if "install PMIx" in done.stderr:
        print("skipped: no libpmix.so.2, or one that this mpirun does not answer")
        raise SystemExit(mayfly_run.SKIP)
    expect(done.returncode == 0, done.stderr)
    found = summaries(folder)
    expect(len(found) == 1 and found[0]["final_digest"] == oracle(), str(found))
    expect(members_of(folder) == {3}, str(members_of(folder)))
    shutil.rmtree(folder)


def real_mpiexec():
    program = shutil.which("mpiexec.hydra") or shutil.which("mpiexec.mpich")
    if program is None:
        print("skipped: MPICH's mpiexec is not installed")
        raise SystemExit(mayfly_run.SKIP)
    folder = Ranks([], []).folder
    script = 'unset MPI_LOCALNRANKS; mkdir -p "$0/$PMI_RANK"; cd "$0/$PMI_RANK"; exec "$@"'
    done = subprocess.run(
        [program, "-n", "3", "sh", "-c", script, folder, os.path.abspath(mayfly_run.BINARY),
         "train", *JOB], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, done.stderr)
    found = summaries(folder)
    expect(len(found) == 1 and found[0]["final_digest"] == oracle(), str(found))
    expect(members_of(folder) == {3}, str(members_of(folder)))
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(mayfly_run.main({test.__name__: test for test in [
        srun_on_one_host, srun_with_a_shared_folder, marks_of_before, address_of_before,
        coordinator_begins_late, first_rank_cannot_tell, srun_over_pmi, mpiexec_over_pmi,
        first_rank_fails, warned, nothing_shared, contradictions, batch_script,
        mpirun_shares_nothing, real_mpiexec]}))
