"""Imitates srun and mpiexec: starts N processes with the variables that the launcher would set,
each in a folder of its own as on a separate host, and implements the launcher's side of PMI-1."""
import os
import socket
import subprocess
import tempfile
import threading

import mayfly_run


def srun(rank, size, nodes=1):
    """The variables that Slurm 22.05 sets for a task, with ranks distributed cyclically over the
    nodes."""
    per_node = [len(range(node, size, nodes)) for node in range(nodes)]
    return {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0",
            "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size),
            "SLURM_STEP_NUM_TASKS": str(size), "SLURM_STEP_NUM_NODES": str(nodes),
            "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, per_node)),
            "SLURM_NODEID": str(rank % nodes), "SLURM_STEP_NODELIST": f"node[1-{nodes}]"}


def mpiexec(rank, size, per_host=1):
    """The variables that MPICH sets, without the PMI connection."""
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPI_LOCALNRANKS": str(per_host)}


class Pmi:
    """The launcher's side of PMI-1 for `size` ranks."""

    def __init__(self, size):
        self.size = size
        self.values = {}
        self.barrier = threading.Barrier(size)
        self.finalized = 0
        self.pairs = [socket.socketpair() for _ in range(size)]
        for mine, _ in self.pairs:
            threading.Thread(target=self._serve, args=(mine,), daemon=True).start()

    def fd(self, rank):
        return self.pairs[rank][1].fileno()

    def started(self, rank):
        self.pairs[rank][1].close()

    def _serve(self, connection):
        has_left = False
        try:
            for line in connection.makefile("r"):
                fields = dict(word.split("=", 1) for word in line.split())
                connection.sendall((self._answer(fields) + "\n").encode())
                has_left = fields["cmd"] == "finalize"
        except (OSError, threading.BrokenBarrierError):
            pass
        if not has_left:  # after a finalize, other ranks may still be in the last barrier
            self.barrier.abort()

    def _answer(self, fields):
        command = fields["cmd"]
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        if command == "get_my_kvsname":
            return "cmd=my_kvsname kvsname=kvs_1_0"
        if command == "put":
            self.values[fields["key"]] = fields["value"]
            return "cmd=put_result rc=0 msg=success"
        if command == "barrier_in":
            self.barrier.wait(60)
            return "cmd=barrier_out"
        if command == "get":
            return f"cmd=get_result rc=0 msg=success value={self.values[fields['key']]}"
        assert command == "finalize", command
        self.finalized += 1
        return "cmd=finalize_ack"


class Ranks:
    """Starts `mayfly train ARGS` as each of the ranks, and keeps their outputs."""

    def __init__(self, args, variables, pmi=None, together=False):
        self.folder = tempfile.mkdtemp(prefix="mayfly-test-")
        self.processes, self.folders = [], []
        for rank, own in enumerate(variables):
            folder = self.folder if together else os.path.join(self.folder, f"host{rank}")
            os.makedirs(folder, exist_ok=True)
            environment = dict(os.environ, **own)
            if pmi is not None:
                environment["PMI_FD"] = str(pmi.fd(rank))
            with open(os.path.join(self.folder, f"output{rank}"), "wb") as output:
                self.processes.append(subprocess.Popen(
                    [os.path.abspath(mayfly_run.BINARY), "train"] + list(args), cwd=folder,
                    env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, pass_fds=[pmi.fd(rank)] if pmi else []))
            if pmi is not None:
                pmi.started(rank)
            self.folders.append(folder)

    def output(self, rank):
        with open(os.path.join(self.folder, f"output{rank}"), errors="replace") as f:
            return f.read()

    def outputs(self):
        return "".join(f"--- rank {rank}\n{self.output(rank)}"
                       for rank in range(len(self.processes)))

    def wait(self, timeout=120):
        """The exit codes."""
        try:
            return [process.wait(timeout) for process in self.processes]
        except subprocess.TimeoutExpired as late:
            text = self.outputs()
            self.stop_hard()
            raise mayfly_run.Failure(f"ranks are still running\n{text}") from late

    def stop_hard(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
