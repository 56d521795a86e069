"""Slurm on hosts that share no disk: slurmctld on h0, where the user works, and slurmd on all other
hosts. Needs what lab_of_hosts.py needs, and Debian's slurm-wlm and munge.
"""
import os
import shutil
import time

import lab_of_hosts
from lab_of_hosts import Lab

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "squeue", "scancel")
FILE = "/root/slurm/slurm.conf"
CONFIGURATION = """
ClusterName=lab
SlurmctldHost=h0({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.sock
StateSaveLocation=/root/slurm
SlurmdSpoolDir=/root/slurm
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/root/slurm/slurmctld.log
SlurmdLogFile=/root/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=15
KillWait=5
MpiDefault=none
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
MUNGED = ["munged", "--force", "--key-file=/root/slurm/munge.key", "--socket=/run/munge.sock",
          "--pid-file=/run/munged.pid", "--log-file=/root/slurm/munged.log",
          "--seed-file=/root/slurm/munged.seed"]


def reason_to_skip():
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)"
    return lab_of_hosts.reason_to_skip()


class SlurmLab(Lab):
    """Host 0 and `nodes` nodes, h1, h2, ..., of two cores each."""

    def __init__(self, nodes):
        super().__init__(nodes + 1)
        self.nodes = range(1, nodes + 1)
        text = CONFIGURATION.format(address=self.address(0), nodes="\n".join(
            f"NodeName=h{node} NodeAddr={self.address(node)} CPUs=2 RealMemory=500"
            for node in self.nodes))
        key = os.urandom(1024)
        for host in range(nodes + 1):
            folder = self.disk(host, "root", "slurm")
            os.makedirs(folder)
            os.chmod(self.disk(host, "root"), 0o755)
            with open(os.path.join(folder, "slurm.conf"), "w") as file:
                file.write(text)
            with open(os.path.join(folder, "munge.key"), "wb") as file:
                file.write(key)
            os.chmod(file.name, 0o400)
            with open(os.path.join(folder, "cgroup.conf"), "w") as file:
                file.write("CgroupPlugin=cgroup/v1\nConstrainCores=no\n")
            self.start_slurm(host)
        self.wait_for_nodes()

    def start_slurm(self, host):
        """Starts Slurm's daemons on the host, for the first time or after its power came back."""
        # slurmd inspects this folder even if it is configured not to use cgroups.
        self.run(host, ["mount", "-t", "tmpfs", "cgroup", "/sys/fs/cgroup"])
        self.daemon(host, MUNGED)
        self.daemon(host, ["slurmd", "-N", f"h{host}"] if host else ["slurmctld"])

    def daemon(self, host, words):
        code, said = self.slurm(host, words)
        if code != 0:
            raise RuntimeError(f"{words[0]} on h{host}: {said}")

    def slurm(self, host, words, timeout=60):
        """Runs one of Slurm's programs on the host; returns (exit code, output)."""
        return self.run(host, self.words(words), timeout)

    @staticmethod
    def words(words):
        return ["env", "SLURM_CONF=" + FILE, *words]

    def wait_for_nodes(self):
        end = time.monotonic() + 60
        while True:
            _, states = self.slurm(0, ["sinfo", "--noheader", "-N", "--format=%T"])
            if states.split() == ["idle"] * len(self.nodes):
                return
            if time.monotonic() > end:
                raise RuntimeError("the nodes do not come up: " + states)
            time.sleep(0.2)

    def jobs(self):
        """(number, state, node) of the jobs that Slurm remembers."""
        _, lines = self.slurm(0, ["squeue", "--noheader", "--states=all", "--format=%i %T %N"])
        return [tuple(line.split()) for line in lines.splitlines()]

    def aborted_jobs(self, node):
        """The number of jobs that slurmd on `node` killed as unknown, without time to clean up.
        slurmctld saves a job some seconds after it began, so a power cut before that loses it."""
        with open(self.disk(node, "root", "slurm", "slurmd.log")) as file:
            return file.read().count("abort completed")
