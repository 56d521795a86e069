"""A spot market that follows a real trace, played on the fake cloud. The number of available spot
machines is the trace's number of nodes, scaled to the job. When nodes are removed in the trace, the
market takes machines away, every other one with a notice. Machines on demand are always available
and are never taken away.
"""
import collections
import itertools
import threading
import time


def read_moments(path, nodes_max, hours=None):
    """[(seconds, nodes, taken)] of a trace with rows "milliseconds,add|remove,node". `nodes`: the
    number of machines that are available from that moment on, scaled so that the maximum is
    nodes_max. `taken`: the number of machines that are taken away at that moment, at least one if
    the trace removes any node. A trace shorter than `hours` is repeated."""
    with open(path) as f:
        rows = [line.split(",") for line in f if line.strip() and not line.startswith("#")]
    nodes, by_time = 0, {}
    for ms, kind, _ in sorted(rows, key=lambda row: int(row[0])):
        gone = kind.strip() == "remove"
        nodes += -1 if gone else 1
        at = int(ms) / 1000
        by_time[at] = (nodes, by_time.get(at, (0, 0))[1] + gone)
    scale = nodes_max / max(count for count, _ in by_time.values())
    once = [(at, max(1, round(count * scale)), max(1, round(gone * scale)) if gone else 0)
            for at, (count, gone) in sorted(by_time.items())]
    if hours is None:
        return once
    length = once[-1][0]
    times = range(int(hours * 3600 // length) + 1)
    again = [(at + n * length, count, gone) for n in times for at, count, gone in once]
    played = [moment for moment in again if moment[0] <= hours * 3600]
    return played + [(hours * 3600, played[-1][1], 0)]


class SpotMarket(threading.Thread):
    """The thread that plays the market. It ends some seconds after the trace's last moment.
    `trouble`: rules for the fake cloud's faults (tests/fake_cloud/faults.py); the market applies
    one of them every few moments."""

    NOTICE_S = 3  # between the notice and the end of a machine
    MOMENTS_PER_TROUBLE = 5

    def __init__(self, cloud, moments, speedup, quiet_s=5, trouble=()):
        super().__init__(daemon=True)
        self.cloud, self.moments, self.speedup, self.quiet_s = cloud, moments, speedup, quiet_s
        self.trouble = itertools.cycle(trouble) if trouble else None
        self.taken = collections.Counter()
        self.troubles = collections.Counter()
        self.leaving = {}  # the time at which each machine with a notice ends
        self.stopped = threading.Event()

    def run(self):
        begin = time.monotonic()
        ends = [at / self.speedup for at, _, _ in self.moments[1:]]
        ends.append(self.moments[-1][0] / self.speedup + self.quiet_s)
        for number, ((_, level, taken), end) in enumerate(zip(self.moments, ends)):
            if self.trouble is not None and number % self.MOMENTS_PER_TROUBLE == 0:
                rule = next(self.trouble)
                self.troubles[rule["kind"]] += 1
                self.cloud.control("fault", **rule)
            self._hold(level, taken)
            while time.monotonic() < begin + end and not self.stopped.wait(0.05):
                self._hold(level, 0)
        for name in list(self.leaving):
            self._end(name)

    def _hold(self, level, taken):
        now = time.monotonic()
        for name, ends in list(self.leaving.items()):
            if ends <= now:
                self._end(name)
        alive = self.cloud.control("machines", states=["starting", "running"], whole=False)
        staying = [m for m in alive if m["market"] == "spot" and m["name"] not in self.leaving]
        running = [m["name"] for m in staying if m["state"] == "running"]
        for name in running[:max(taken, len(staying) - level)]:
            self._take(name)
            staying.pop()
        self.cloud.control("set", stock=max(0, level - len(staying)))

    def _take(self, name):
        if sum(self.taken.values()) % 2 == 0:
            self.taken["with notice"] += 1
            self.cloud.control("notice", machine=name, kind="preempt", deadline_s=self.NOTICE_S)
            self.leaving[name] = time.monotonic() + self.NOTICE_S
        else:
            self.taken["without a word"] += 1
            self.cloud.control("vanish", machine=name)

    def _end(self, name):
        del self.leaving[name]
        self.cloud.control("vanish", machine=name)
