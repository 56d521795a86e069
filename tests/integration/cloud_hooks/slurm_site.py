"""A Slurm cluster of four nodes on this machine, from Debian's slurm-wlm and munge."""
import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
NODES = 4
CONFIGURATION = """
ClusterName=t
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={d}/run/munge.sock
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd-%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
KillWait=5
ReturnToService=2
SlurmdTimeout=20
MpiDefault=none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] \\
 CPUs={cores} RealMemory=500
PartitionName=spot Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 \\
 PreemptMode=REQUEUE GraceTime=8
PartitionName=prio Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def reason_to_skip():
    if os.geteuid() != 0:
        return "needs root to start Slurm's daemons"
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)" if missing else ""


def free_ports(count):
    """A range of ports on which no process listens at the moment."""
    for first in range(17000, 19000, 50):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")


class SlurmSite:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="mayfly-slurm-")
        atexit.register(self.stop)
        os.environ["PATH"] += ":/usr/sbin"
        for name in ["state", "log", "run"] + [f"spool/n{i + 1}" for i in range(NODES)]:
            os.makedirs(os.path.join(self.folder, name))
        os.chmod(self.folder, 0o755)
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(key, 0o400)
        first = free_ports(NODES + 1)
        with open(os.path.join(self.folder, "slurm.conf"), "w") as file:
            file.write(CONFIGURATION.format(
                d=self.folder, port=first, nodes=NODES, host=socket.gethostname(), first=first + 1,
                last=first + NODES, cores=os.cpu_count()))
        os.environ["SLURM_CONF"] = os.path.join(self.folder, "slurm.conf")
        run = os.path.join(self.folder, "run")
        self.call("munged", "--force", f"--key-file={key}", f"--socket={run}/munge.sock",
                  f"--pid-file={run}/munged.pid", f"--log-file={self.folder}/log/munged.log",
                  f"--seed-file={run}/munged.seed")
        self.call("slurmctld")
        for node in range(NODES):
            self.call("slurmd", "-N", f"n{node + 1}")
        self.wait_for_nodes()

    def call(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}: {done.stderr}{done.stdout}")
        return done.stdout

    def wait_for_nodes(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            states = self.call("sinfo", "--noheader", "-N", "--partition=spot", "--format=%T")
            if states.split() == ["idle"] * NODES:
                return
            time.sleep(0.2)
        raise RuntimeError("the nodes do not come up: " + states)

    def jobs(self):
        """(number, state) of every job that Slurm remembers."""
        lines = self.call("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines()
        return [tuple(line.split()) for line in lines]

    def pids(self):
        for name in sorted(os.listdir(os.path.join(self.folder, "run"))):
            if name.endswith(".pid"):
                with open(os.path.join(self.folder, "run", name)) as file:
                    yield int(file.read())

    def stop(self):
        if not os.path.isdir(self.folder):
            return
        subprocess.run(["scancel", "--partition=spot"], capture_output=True, timeout=20,
                       check=False)
        subprocess.run(["scancel", "--partition=prio"], capture_output=True, timeout=20,
                       check=False)
        for pid in list(self.pids()):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        time.sleep(1)
        shutil.rmtree(self.folder, ignore_errors=True)
