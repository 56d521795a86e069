"""A small network of hosts on one machine, each a network namespace. Tests can cut and heal it.

Every host has one interface, which is connected to a bridge in another namespace. In a partition
each side has a bridge of its own; a host that is pulled out is on no bridge. Packets are dropped
silently, as when a machine vanishes: no end of file, no reset. Needs root and Linux's veth and
bridge devices; losing packets between hosts (lose) also needs nft, limiting their rate (limit) tc.
"""
import atexit
import itertools
import os
import subprocess
import sys

_numbers = itertools.count(1)


def _ip(*words):
    return subprocess.run(["ip"] + list(words), capture_output=True, text=True, check=False)


def reason_to_skip():
    """Why this machine cannot have such a network, or None."""
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


def reason_not_to_lose():
    """Why this machine cannot drop packets in a bridge, or None."""
    try:
        nobody = Network(0)
        nobody.lose("all", (None, None), percent=50)
        nobody.remove()
        return None
    except FileNotFoundError:
        return "the command `nft` is missing"
    except RuntimeError as error:
        return f"packets cannot be lost: {error}"


def reason_not_to_limit():
    """Why this machine cannot limit the rate of a host, or None."""
    try:
        one = Network(1)
        one.limit(0, 100)
        one.remove()
        return None
    except FileNotFoundError:
        return "the command `tc` is missing"
    except RuntimeError as error:
        return f"no limit for a host's rate: {error}"


class Network:
    """Hosts 0, 1, ... All of them reach each other until a test cuts a connection."""

    def __init__(self, hosts):
        self.name = f"mf{os.getpid()}n{next(_numbers)}"
        self.spaces = [self.name + "hub"]
        atexit.register(self.remove)
        self._run("netns", "add", self.name + "hub")
        self.bridges = 0
        self.losses = {}
        self.unplugged = set()
        self.wires = {}  # for each delayed host the process that delays its packets
        self.limited = set()
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
        self._interface(host)
        self._hub("link", "set", f"p{host}", "master", "br0")

    def _interface(self, host):
        """Makes the host's interface and its port, which is not connected to a bridge yet."""
        self.limited.discard(host)
        space = f"{self.name}h{host}"
        self._hub("link", "add", f"p{host}", "type", "veth", "peer", "name", "eth0", "address",
                  f"02:00:00:00:00:{host + 1:02x}", "netns", space)
        self._hub("link", "set", f"p{host}", "down" if host in self.unplugged else "up")
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
        """Hosts reach only those of their own side (a collection of hosts). Hosts that are in no
        side stay on their bridge, usually that of side 0."""
        while self.bridges < len(sides):
            self._bridge()
        for number, side in enumerate(sides):
            for host in side:
                self._hub("link", "set", f"p{host}", "master", f"br{number}")

    def pull_out(self, host):
        """Cuts the host from all others, in both directions and without a notice."""
        self.shorten(host)
        self._hub("link", "set", f"p{host}", "nomaster")

    def unplug(self, host):
        """Cuts the host from all others visibly: its interface loses the carrier."""
        self.unplugged.add(host)
        self._hub("link", "set", f"p{host}", "down")

    def plug(self, host):
        self.unplugged.discard(host)
        self._hub("link", "set", f"p{host}", "up")

    def lose(self, name, *ways, percent=100):
        """Drops a part of the packets until `lose_no_more(name)`. `ways`: pairs (sender, receiver),
        in which None means any host. A packet has up to 64 KiB."""
        self.losses[name] = (ways, percent)
        self._filter()

    def lose_no_more(self, name):
        self.losses.pop(name, None)
        self._filter()

    def _filter(self):
        lines = ["add table bridge lab",
                 "add chain bridge lab forward { type filter hook forward priority 0; }",
                 "flush chain bridge lab forward"]
        for ways, percent in self.losses.values():
            chance = f"numgen random mod 1000 < {10 * percent:.0f} " if percent < 100 else ""
            for way in ways:
                ends = "".join(f'{end} {{ "p{host}", "q{host}" }} ' for end, host in
                               zip(("iifname", "oifname"), way) if host is not None)
                lines.append(f"add rule bridge lab forward {ends}{chance}drop")
        done = subprocess.run(["ip", "netns", "exec", self.name + "hub", "nft", "-f", "-"],
                              input="\n".join(lines), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"nft: {done.stderr.strip()}")

    def delay(self, host, milliseconds):
        """Delays all packets to and from the host until `shorten`. Meanwhile its port p is
        connected to the bridge through a wire with the ends d and q."""
        near, far = f"d{host}", f"q{host}"
        self._hub("link", "add", near, "type", "veth", "peer", "name", far)
        self._hub("link", "set", near, "up")
        self._hub("link", "set", far, "up")
        wire = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py")
        self.wires[host] = subprocess.Popen(
            ["ip", "netns", "exec", self.name + "hub", sys.executable, "-B", wire, f"p{host}", near,
             str(milliseconds)], stdout=subprocess.PIPE)
        if self.wires[host].stdout.readline() != b"ready\n":
            raise RuntimeError(f"no wire for host {host}")
        self._hub("link", "set", f"p{host}", "nomaster")
        self._hub("link", "set", far, "master", "br0")

    def shorten(self, host):
        if host in self.wires:
            self._hub("link", "del", f"d{host}")
            self._cut_wire(host)
            self._hub("link", "set", f"p{host}", "master", "br0")

    def _cut_wire(self, host):
        wire = self.wires.pop(host)
        wire.kill()
        wire.wait()
        wire.stdout.close()

    def limit(self, host, megabits, burst=3000):
        """Limits the host's rate in each direction until `limit_no_more`. Packets then have at most
        1500 bytes, because those larger than the burst are cut. Above 100 Mbit/s the kernel's timer
        needs a larger burst to reach the rate, such as the bytes of a millisecond."""
        for space, device in self._both_ends(host):
            self._queue(space, "replace", "dev", device, "root", "tbf", "rate",
                        f"{megabits}mbit", "burst", str(burst), "latency", "50ms")
        self.limited.add(host)

    def limit_no_more(self, host):
        if host in self.limited:
            self.limited.remove(host)
            for space, device in self._both_ends(host):
                self._queue(space, "del", "dev", device, "root")

    def _both_ends(self, host):
        return (f"{self.name}h{host}", "eth0"), (self.name + "hub", f"p{host}")

    @staticmethod
    def _queue(space, *words):
        done = subprocess.run(["tc", "-n", space, "qdisc"] + list(words), capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"tc qdisc {' '.join(words)}: {done.stderr.strip()}")

    def heal(self):
        had_losses = bool(self.losses)
        self.losses = {}
        self.unplugged = set()
        for host in range(len(self.spaces) - 1):
            self.shorten(host)
            self.limit_no_more(host)
            self._hub("link", "set", f"p{host}", "master", "br0", "up")
        if had_losses:
            self._filter()

    def mute(self, sender, receiver):
        """Drops all packets from `sender` to `receiver`, but not those in the other direction."""
        self._run("-n", f"{self.name}h{sender}", "route", "add", "blackhole",
                  self.address(receiver) + "/32")

    def unmute(self, sender, receiver):
        self._run("-n", f"{self.name}h{sender}", "route", "del", "blackhole",
                  self.address(receiver) + "/32")

    def remove(self):
        for host in list(self.wires):
            self._cut_wire(host)
        for space in self.spaces:
            _ip("netns", "del", space)
        self.spaces = []
