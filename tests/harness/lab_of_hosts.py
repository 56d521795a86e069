"""Hosts on one machine that share no disk. Each is a network namespace of network.py with its own
processes, host name, /tmp, /root, /run, /dev/shm and sshd, and without access to this repository.
A test can cut the power of a host: first its link drops all packets, then all its processes end at
once. Needs root, Linux namespaces, and sshd and ssh of OpenSSH.
"""
import atexit
import glob
import os
import shutil
import subprocess
import tempfile
import time

import network

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The folders on a host's own disk. Its /var/tmp also hides the folder that contains all disks.
OWN_FOLDERS = ("tmp", "root", "home", "var/tmp")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Pid 1 of a host. Its mounts are visible only there; the last line reaps orphaned processes.
BOOT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind {disk}/hosts /etc/hosts
mkdir -p {disk}/repository
mount --bind {disk}/repository {root}
for folder in {folders}; do mount --bind {disk}/$folder /$folder; done
mount -t tmpfs -o mode=755 run /run
cat /proc/sys/kernel/random/uuid >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=1777 shm /dev/shm
mkdir -p /run/sshd
hostname {name}
/usr/sbin/sshd -D -e -f /root/sshd_config 2>>/root/sshd.log </dev/null &
touch /run/up
exec sh -c 'while :; do sleep 1000 & wait; done'
"""

SSHD = """Port 22
ListenAddress {address}
HostKey /root/host_key
AuthorizedKeysFile /root/.ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
MaxStartups 100
{environment}
"""
SSHD_LISTENS = ":0016 00000000:0000 0A "  # in /proc/net/tcp: port 22, any peer, LISTEN
# Hosts inherit no variable of this process except the one that limits the instruction set.
MASK = "MAYFLY_TEST_MAX_ISA"
MASKED = [f"{MASK}={os.environ[MASK]}"] if MASK in os.environ else []


def reason_to_skip():
    """Why this machine cannot run a lab, or None."""
    for program in ("ssh", "ssh-keygen", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"the command `{program}` is missing"
    if not os.path.exists("/usr/sbin/sshd"):
        return "sshd is missing"
    lack = network.reason_to_skip()
    if lack is not None:
        return lack
    try:
        lab = Lab(1)
    except RuntimeError as error:
        return f"no host of namespaces: {error}"
    code, said = lab.run(0, ["ssh", "-o", "BatchMode=yes", lab.address(0), "true"], timeout=20)
    lab.switch_off()
    lab.remove()
    return None if code == 0 else f"its sshd does not let us in: {said}"


def wrong_clock(by):
    """The environment of a process whose wall clock is wrong; its monotonic clock stays right."""
    if by is None:
        return []
    (library,) = fake_clocks()
    return [f"LD_PRELOAD={library}", f"FAKETIME={by}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]


def fake_clocks():
    """The paths of libfaketime on this machine; empty if it is not installed."""
    return glob.glob("/usr/lib/*-linux-gnu/faketime/libfaketime.so.1")


class Lab(network.Network):
    """Hosts h0, h1, ... The user works on host 0, whose key is accepted by all others. `clocks`
    maps a host to the error of its clock, in the syntax of libfaketime: {1: "-5h"}. Processes that
    are started there over ssh see it."""

    def __init__(self, hosts, clocks=None):
        super().__init__(hosts)
        self.folder = tempfile.mkdtemp(prefix="mayfly-lab-", dir="/var/tmp")
        self.boots = {}  # for each host its `unshare` process, which ends with the host
        atexit.register(self.switch_off)  # runs before the namespaces are removed
        key = os.path.join(self.folder, "key")
        self._keygen(key)
        known = ""
        for host in range(hosts):
            for folder in OWN_FOLDERS + ("root/.ssh",):
                os.makedirs(self.disk(host, folder), exist_ok=True)
            os.chmod(self.disk(host, "tmp"), 0o1777)
            self._keygen(self.disk(host, "root/host_key"))
            shutil.copy(key + ".pub", self.disk(host, "root/.ssh/authorized_keys"))
            settings = MASKED + wrong_clock((clocks or {}).get(host))
            self._write(host, "root/sshd_config", SSHD.format(
                address=self.address(host),
                environment=f"SetEnv {' '.join(settings)}" if settings else ""))
            # As Debian's installer writes it: a host resolves its own name to 127.0.1.1.
            names = [f"127.0.1.1 h{host}" if other == host else f"{self.address(other)} h{other}"
                     for other in range(hosts)]
            self._write(host, "hosts", "\n".join(["127.0.0.1 localhost"] + names) + "\n")
            with open(self.disk(host, "root/host_key.pub")) as file:
                known += f"h{host},{self.address(host)} {file.read()}"
        shutil.copy(key, self.disk(0, "root/.ssh/id_ed25519"))
        self._write(0, "root/.ssh/known_hosts", known)
        for host in range(hosts):
            self.power_on(host)

    @staticmethod
    def _keygen(path):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)

    def _write(self, host, name, text):
        with open(self.disk(host, name), "w") as file:
            file.write(text)

    def disk(self, host, *parts):
        """The path on this machine of a file of the host, such as root/run."""
        return os.path.join(self.folder, f"h{host}", *parts)

    def power_on(self, host):
        script = BOOT.format(disk=self.disk(host), root=ROOT, folders=" ".join(OWN_FOLDERS),
                             name=f"h{host}")
        self._hub("link", "set", f"p{host}", "master", "br0")
        with open(self.disk(host, "boot.log"), "wb") as log:
            boot = subprocess.Popen(
                self.command(host, ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork",
                                    "--kill-child", "sh", "-c", script]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.boots[host] = boot
        end = time.monotonic() + 30
        while not self._is_up(host):
            if boot.poll() is not None or time.monotonic() > end:
                with open(self.disk(host, "boot.log")) as log:
                    raise RuntimeError(f"h{host} does not boot: {log.read()}")
            time.sleep(0.02)

    def _is_up(self, host):
        try:
            process = f"/proc/{self._init(host)}"
            with open(f"{process}/net/tcp") as sockets:
                sshd_listens = any(SSHD_LISTENS in line for line in sockets)
            return sshd_listens and os.path.exists(f"{process}/root/run/up") and not \
                os.path.exists(f"{process}/root{ROOT}/CMakeLists.txt")
        except (OSError, IndexError):
            return False

    def _init(self, host):
        """The pid on this machine of the host's pid 1."""
        outer = self.boots[host].pid
        with open(f"/proc/{outer}/task/{outer}/children") as file:
            return int(file.read().split()[0])

    def power_off(self, host):
        """Cuts the power. No packet announces it: the link is cut before the first process ends.
        Packets that the kernel would still send for open connections are lost because the network
        namespace is deleted and made anew."""
        self.pull_out(host)
        self.boots[host].kill()  # also ends all processes of the host at once (--kill-child)
        self.boots[host].wait()
        self._hub("link", "del", f"p{host}")
        self._run("netns", "del", f"{self.name}h{host}")
        self._run("netns", "add", f"{self.name}h{host}")
        self._interface(host)

    def switch_off(self):
        for boot in self.boots.values():
            boot.kill()
            boot.wait()
        self.boots = {}
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, host, words, output):
        """Starts a command on a host in /root, as from the host's console. Its output is written to
        the file `output`."""
        pid = str(self._init(host))
        with open(output, "wb") as file:
            return subprocess.Popen(
                ["nsenter", "-t", pid, "-m", "-u", "-i", "-n", "-p", "-r", "-w", "env", "-i",
                 "HOME=/root", "USER=root", "PATH=" + PATH, *MASKED, "sh", "-c",
                 'cd /root; exec "$@"', "-"] + list(words),
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    def run(self, host, words, timeout=60):
        """Runs a command on a host; returns (exit code, output)."""
        path = os.path.join(self.folder, "output")
        process = self.start(host, words, path)
        try:
            code = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        with open(path, errors="replace") as file:
            return code, file.read()
