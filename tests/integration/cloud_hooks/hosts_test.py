"""Goal: `mayfly train --hosts` trains on hosts without Mayfly: it copies the program there,
replaces workers that die and hosts that are lost, and leaves no files on them. An imitation of ssh
runs the commands on this machine; each host has a home directory of its own."""
import glob
import os
import shutil
import signal
import subprocess
import tempfile

import mayfly_run
from fake_cloud_job import bundle_of
from mayfly_run import Run, SMALL_JOB, expect, lingering
from oracle import Oracle

STEPS = ["--steps", "60"]
SSH = """#!/bin/sh
# ssh HOST COMMAND
home={hosts}/$1
shift
if [ ! -d "$home" ]; then
  echo "ssh: Could not resolve hostname: Name or service not known" >&2
  exit 255
elif [ -e "$home/off" ]; then
  echo "ssh: connect to host port 22: No route to host" >&2
  exit 255
elif [ -e "$home/refuses" ]; then
  echo "nobody@host: Permission denied (publickey)." >&2
  exit 255
fi
cd "$home" && HOME=$home exec sh -c "$*"
"""


class Hosts:
    """Home directories of hosts in a folder, and a program in place of ssh."""

    def __init__(self, *names):
        self.folder = tempfile.mkdtemp(prefix="mayfly-test-")
        for name in names:
            os.mkdir(self.home(name))
        self.ssh = os.path.join(self.folder, "ssh")
        with open(self.ssh, "w") as file:
            file.write(SSH.format(hosts=self.folder))
        os.chmod(self.ssh, 0o755)

    def home(self, name, *parts):
        return os.path.join(self.folder, name, *parts)

    def switch(self, name, what):
        open(self.home(name, what), "w").close()

    def servers(self, name="*"):
        return sorted(glob.glob(self.home(name, ".cache", "mayfly", "servers", "*")))

    def programs(self, name):
        return glob.glob(self.home(name, ".cache", "mayfly", "programs", "*"))

    def processes(self, name):
        """The pids of the workers on that host; each leads a process group of its own."""
        pids = []
        for server in self.servers(name):
            with open(os.path.join(server, "process")) as file:
                pids.append(int(file.read().split()[0]))
        return pids

    def power_off(self, name):
        self.switch(name, "off")
        for pid in self.processes(name):
            os.killpg(pid, signal.SIGKILL)

    def remove(self):
        shutil.rmtree(self.folder)


def started(hosts, names, *more, run_dir=None, packs=False):
    """Starts a job. The program is copied to hosts in an archive that is made once for all tests,
    unless the command `packs` it itself."""
    if not packs:
        more = (*more, "--cloud-bundle", bundle_of(mayfly_run.BINARY))
    return Run(SMALL_JOB + STEPS + ["--hosts", names, "--ssh", hosts.ssh, "--threads", "1",
                                    "--bind-host", "127.0.0.1", *more], run_dir=run_dir)


def ends_well(run, hosts, digest):
    code = run.wait()
    expect(code == 0, f"exit code {code}\n{run.logs()}")
    summary = run.summary()
    expect(summary["final_digest"] == digest, f"other bits: {summary}\n{run.logs()}")
    expect(os.path.isdir(run.path("checkpoints", "step-60")), f"no model\n{run.logs()}")
    left = [server for server in hosts.servers()
            if not os.path.exists(os.path.join(server.split("/.cache/")[0], "off"))]
    expect(not left, f"left on hosts: {left}\n{run.logs()}")


def undisturbed():
    return Oracle(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"]).summary["final_digest"]


def three_workers_on_two_hosts():
    digest = undisturbed()
    hosts = Hosts("a", "b")
    run = started(hosts, "a,b:2", packs=True)
    ends_well(run, hosts, digest)
    expect(run.output().count("has received the program") == 2, run.output())
    logs = sorted(os.path.basename(name).split(".")[0] for name in
                  glob.glob(run.path("logs", "[ab].*")))
    expect(logs == ["a", "b", "b"], f"logs of {logs}")
    again = started(hosts, "a,b:2", packs=True, run_dir=os.path.join(run.folder, "again"))
    ends_well(again, hosts, digest)
    expect(again.output().count("has the program") == 2, again.output())
    expect(len(hosts.programs("a")) == 1, "one program")
    run.remove()
    hosts.remove()


def data_on_the_hosts_only():
    digest = undisturbed()
    hosts = Hosts("a", "b")
    run = started(hosts, "a,b", "--data", "/nowhere/images", "--cloud-worker-args",
                  "--data procedural:512")
    ends_well(run, hosts, digest)
    expect("no data set '/nowhere/images'" in run.output(), run.output())
    run.remove()
    hosts.remove()


def killed_worker_is_replaced():
    """A killed worker is replaced after five seconds, in which its host is not used."""
    digest = undisturbed()
    hosts = Hosts("a", "b")
    run = started(hosts, "a,b", *lingering(6, 22, 38))
    run.wait_for_step(6)
    os.killpg(hosts.processes("b")[0], signal.SIGKILL)
    run.wait_for("a replacement on b", lambda: len(run.events("server_joined")) == 3)
    ends_well(run, hosts, digest)
    run.remove()
    hosts.remove()


def lost_host_gives_way_to_a_spare():
    digest = undisturbed()
    hosts = Hosts("a", "b", "c")
    run = started(hosts, "a,b,c", "--workers", "2", *lingering(6, 30))
    run.wait_for_step(6)
    used = [name for name in "abc" if hosts.servers(name)]
    expect(len(used) == 2, f"workers on {used}")
    spare = next(name for name in "abc" if name not in used)
    hosts.power_off(used[0])
    run.wait_for("a worker on the spare host", lambda: any(
        event["server"].startswith(spare) for event in run.events("server_joined")))
    ends_well(run, hosts, digest)
    run.remove()
    hosts.remove()


def killed_coordinator_goes_on():
    digest = undisturbed()
    hosts = Hosts("a", "b")
    run = started(hosts, "a,b", *lingering(6, 30))
    run.wait_for_step(6)
    run.stop_hard()
    before = hosts.servers()
    expect(len(before) == 2, f"workers outlive us: {before}")
    listed = subprocess.run(
        [mayfly_run.BINARY, "cloud", "list", "--cloud-provider", "ssh", "--hosts", "a,b", "--ssh",
         hosts.ssh, "--run-dir", run.run_dir], capture_output=True, text=True, timeout=60,
        check=False)
    expect("2 servers" in listed.stdout, f"{listed.stdout} {listed.stderr}")
    again = started(hosts, "a,b", *lingering(6, 30), run_dir=run.run_dir)
    again.wait_for("the same workers", lambda: len(again.events("server_adopted")) == 2)
    expect(hosts.servers() == before, "nothing is started anew")
    ends_well(again, hosts, digest)
    again.remove()
    hosts.remove()


def hosts_that_cannot_be_used_are_refused():
    hosts = Hosts("a", "b", "c")
    hosts.switch("b", "refuses")
    hosts.switch("c", "off")
    run = started(hosts, "a,b,c,d")
    expect(run.wait() == 2, run.output())
    for word in ("b: nobody@host: Permission denied (publickey).", "c: ssh: connect to host",
                 "d: ssh: Could not resolve"):
        expect(word in run.output(), f"not '{word}' in {run.output()}")
    expect(not os.path.exists(run.run_dir), "nothing is made")
    for names, word in (("a,a", "twice"), ("a,", "'' is not a host"),
                        ("-oProxy=x", "is not a host"), ("a:0", "is not a host")):
        refused = started(hosts, names, run_dir=os.path.join(run.folder, "refused"))
        expect(refused.wait() == 2 and word in refused.output(), f"{names}: {refused.output()}")
    many = started(hosts, "a", "--workers", "2", run_dir=os.path.join(run.folder, "many"))
    expect(many.wait() == 2 and "have room for 1" in many.output(), many.output())
    run.remove()
    hosts.remove()


def workers_that_cannot_start_end_the_job():
    hosts = Hosts("a", "b")
    run = started(hosts, "a,b", "--cloud-worker-args", "--data /nowhere/cifar")
    expect(run.wait() == 1, run.output())
    for word in ("no worker can start", "/nowhere/cifar", "(log: "):
        expect(word in run.output(), f"not '{word}' in {run.output()}")
    run.remove()
    hosts.remove()


def program_that_is_there_is_used():
    digest = undisturbed()
    hosts = Hosts("a")
    run = started(hosts, "a", "--remote-program", os.path.abspath(mayfly_run.BINARY))
    ends_well(run, hosts, digest)
    expect(not hosts.programs("a"), "nothing is copied")
    run.remove()
    other = started(hosts, "a", "--remote-program", "/nowhere/mayfly")
    expect(other.wait() == 2 and "there is no program /nowhere/mayfly" in other.output(),
           other.output())
    other.remove()
    hosts.remove()


def hostfile_is_read():
    hosts = Hosts("a", "b")
    path = os.path.join(hosts.folder, "hosts")
    with open(path, "w") as file:
        file.write("# ours\na slots=2\nb max_slots=4\n")
    shown = subprocess.run(
        [mayfly_run.BINARY, "cloud", "doctor", "--cloud-provider", "ssh", "--hostfile", path,
         "--ssh", hosts.ssh], capture_output=True, text=True, timeout=60, check=False)
    expect(shown.returncode == 0 and shown.stdout.count("ok ") == 2, shown.stdout + shown.stderr)
    with open(path, "w") as file:
        file.write("a\nb slots=many\n")
    run = Run(SMALL_JOB + ["--hostfile", path, "--ssh", hosts.ssh])
    expect(run.wait() == 2 and "line 2 'b slots=many' is not a host" in run.output(), run.output())
    run.remove()
    hosts.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "three_workers": three_workers_on_two_hosts,
        "data_on_the_hosts": data_on_the_hosts_only,
        "killed_worker": killed_worker_is_replaced,
        "lost_host": lost_host_gives_way_to_a_spare,
        "killed_coordinator": killed_coordinator_goes_on,
        "refused": hosts_that_cannot_be_used_are_refused,
        "cannot_start": workers_that_cannot_start_end_the_job,
        "remote_program": program_that_is_there_is_used,
        "hostfile": hostfile_is_read}))
