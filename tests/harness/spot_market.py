"""A spot market that follows a real trace, played on the fake cloud: as many spot machines may be
had as the trace has nodes, scaled to the job; whenever nodes go, machines are taken away, every
other one with a notice. Machines on demand are always to be had, and nobody takes them.
"""
import collections
import itertools
import threading
import time


def read_moments(path, nodes_max, hours=None):
    """[(seconds, nodes, taken)] of a trace with rows "milliseconds,add|remove,node", scaled so that
    its most nodes are nodes_max: how many there may be from that moment on, and how many go then,
    at least one if any node does. A trace shorter than `hours` begins again when it is over."""
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
    """Ends by itself some seconds after the trace's last moment. `trouble`: rules for the fake
    cloud's faults (tests/fake_cloud/faults.py), of which every few moments bring the next one."""

    NOTICE_S = 3  # of warning, for those that get one
    MOMENTS_PER_TROUBLE = 5

    def __init__(self, cloud, moments, speedup, quiet_s=5, trouble=()):
        super().__init__(daemon=True)
        self.cloud, self.moments, self.speedup, self.quiet_s = cloud, moments, speedup, quiet_s
        self.trouble = itertools.cycle(trouble) if trouble else None
        self.taken = collections.Counter()
        self.troubles = collections.Counter()
        self.leaving = {}  # machine: when it ends
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
