"""A small network of hosts on one machine, each a network namespace, that can be cut and healed.

Every host has one interface, plugged into a bridge in a namespace of the network's own. A
partition is a bridge per side; a host that is pulled out is on none. Packets are dropped without a
word, as when a machine vanishes: no end of file, no reset. Needs root and Linux' veth and bridge.
"""
import atexit
import itertools
import os
import subprocess

_numbers = itertools.count(1)


def _ip(*words):
    return subprocess.run(["ip"] + list(words), capture_output=True, text=True, check=False)


def reason_to_skip():
    """Why this machine cannot do it, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"mfp{os.getpid()}"
    try:
        if _ip("netns", "add", name).returncode != 0:
            return "this machine has no network namespaces"
        made = [_ip("-n", name, "link", "add", "left", "type", "veth", "peer", "name",
                     "right"),
                _ip("-n", name, "link", "add", "bridge0", "type", "bridge")]
        return None if all(m.returncode == 0 for m in made) else "no veth or bridge devices"
    except FileNotFoundError:
        return "the command `ip` is missing"
    finally:
        if os.path.exists("/var/run/netns/" + name):
            _ip("netns", "del", name)


class Network:
    """Hosts by number, 0, 1, ...; all see each other until they are cut."""

    def __init__(self, hosts):
        self.name = f"mf{os.getpid()}n{next(_numbers)}"
        self.spaces = [self.name + "hub"]
        atexit.register(self.remove)
        self._run("netns", "add", self.name + "hub")
        self.bridges = 0
        self._bridge()
        for host in range(hosts):
            self._add(host)

    def _run(self, *words):
        done = _ip(*words)
        if done.returncode != 0:
            raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def _hub(self, *words):
        self._run("-n", self.name + "hub", *words)

    def _bridge(self):
        name = f"br{self.bridges}"
        self.bridges += 1
        self._hub("link", "add", name, "type", "bridge")
        self._hub("link", "set", name, "up")
        return name

    def _add(self, host):
        space = f"{self.name}h{host}"
        self._run("netns", "add", space)
        self.spaces.append(space)
        self._hub("link", "add", f"p{host}", "type", "veth", "peer", "name", "eth0", "netns", space)
        self._hub("link", "set", f"p{host}", "master", "br0", "up")
        for words in (["addr", "add", self.address(host) + "/16", "dev", "eth0"],
                      ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
            self._run("-n", space, *words)

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def command(self, host, words):
        """The command line that runs `words` on a host."""
        return ["ip", "netns", "exec", f"{self.name}h{host}"] + list(words)

    def partition(self, *sides):
        """Each side (a collection of hosts) sees itself only; hosts not named see side 0."""
        while self.bridges < len(sides):
            self._bridge()
        for number, side in enumerate(sides):
            for host in side:
                self._hub("link", "set", f"p{host}", "master", f"br{number}")

    def pull_out(self, host):
        """The host sees nobody any more, and nobody it."""
        self._hub("link", "set", f"p{host}", "nomaster")

    def heal(self):
        for host in range(len(self.spaces) - 1):
            self._hub("link", "set", f"p{host}", "master", "br0")

    def mute(self, sender, receiver):
        """One way only: what `sender` says to `receiver` is lost from now on."""
        self._run("-n", f"{self.name}h{sender}", "route", "add", "blackhole",
                  self.address(receiver) + "/32")

    def unmute(self, sender, receiver):
        self._run("-n", f"{self.name}h{sender}", "route", "del", "blackhole",
                  self.address(receiver) + "/32")

    def remove(self):
        for space in self.spaces:
            _ip("netns", "del", space)
        self.spaces = []
