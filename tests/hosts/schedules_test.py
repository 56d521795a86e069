"""Goal: with any temporary faults of the hosts of `mayfly train --hosts`, of the user's machine and
of the network between them, the job ends with the bits of the undisturbed run, with all records,
with the model on the user's machine, and with no process left.
Method: for each seed, a job on two or three hosts, started from host 0, which in some runs has a
worker, too. Two to five faults begin, end after a while, and may overlap: power is switched off and
on (sometimes for all workers at once; on host 0 the same command is repeated), a cable is pulled
out, a host's packets are dropped, two hosts are cut off from each other in both directions or in
one, the network is divided into two parts, packets are lost or delayed. Every step must be recorded
once, with the oracle's digest and samples. When the command ends, no host may have a process or a
folder of the job. Exceptions are hosts that were out of reach in the last ten seconds, because the
provider tries such hosts only every ten seconds. They may keep them until `mayfly cloud release`
(docs/hosts.md).

  MAYFLY_TEST_SEEDS=200 or FIRST:COUNT runs other seeds; a failing one is printed with its schedule.
"""
import glob
import os
import shutil
import tempfile
import time

import lab_of_hosts
import mayfly_run
import network
from mayfly_run import SMALL_JOB, Failure, expect
from oracle import Oracle
from ssh_test import PROGRAM, STEPS, LabRun, lab_with_program

LAST_STEP = int(STEPS[1])
BATCH = int(SMALL_JOB[SMALL_JOB.index("--global-batch") + 1])
HOSTS = 4
HOME = 0  # the user's machine
TIMEOUT_S = 300  # for one schedule
ASKED_EVERY_S = 10  # how often the provider tries a host that is out of reach; docs/hosts.md
KINDS = ["power"] * 4 + ["unplug", "silence", "cut", "one_way", "split"] * 2 + ["loss", "delay"]


def undisturbed():
    return Oracle(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"])


class Fault:
    """`hosts`: the hosts that it affects. For a cut in one direction the sender is the first; for a
    split they are one side."""

    def __init__(self, random, number, hosts):
        self.name = f"fault{number}"
        self.kind = random.choice(KINDS)
        self.all = hosts
        self.hosts = getattr(self, "_hosts_of_" + self.kind, self._any_host)(random)
        self.amount = {"loss": random.choice([1, 3, 10, 30]),
                       "delay": random.choice([1, 5, 20, 80])}.get(self.kind)
        self.for_s = 0.2 + 7.8 * random.random() ** 2  # the median is about 2.2 seconds
        # Most faults begin at a step. The others begin some time after the previous fault, during
        # which the job may make no steps.
        by_step = number == 1 or random.random() < 0.6
        self.step = random.randint(1, LAST_STEP * 3 // 4) if by_step else None
        self.after_s = random.uniform(0, 0.3 if self.step else 3)

    def _any_host(self, random):
        return [random.randrange(self.all)]

    def _hosts_of_power(self, random):
        chance = random.random()
        if chance < 0.3:
            return [HOME]
        return list(range(0 if chance < 0.35 else 1, self.all)) if chance < 0.45 else \
            [random.randrange(1, self.all)]

    def _hosts_of_cut(self, random):
        return random.sample(range(self.all), 2)

    _hosts_of_one_way = _hosts_of_cut

    def _hosts_of_split(self, random):
        return sorted(random.sample(range(self.all), random.randint(1, self.all - 1)))

    def ways(self):
        """The pairs (sender, receiver) between which packets are lost."""
        one, other = self.hosts[0], self.hosts[-1]
        if self.kind in ("silence", "loss"):
            return [(one, None), (None, one)]
        if self.kind == "one_way":
            return [(one, other)]
        others = [other] if self.kind == "cut" else \
            [host for host in range(self.all) if host not in self.hosts]
        near = [one] if self.kind == "cut" else self.hosts
        return [way for a in near for b in others for way in ((a, b), (b, a))]

    def out_of_reach(self):
        """The hosts that the command on HOME cannot reach during the fault, without HOME itself."""
        if self.kind in ("power", "unplug", "silence"):
            found = range(self.all) if HOME in self.hosts else self.hosts
        elif self.kind in ("loss", "delay"):
            found = []
        else:
            found = [host for way in self.ways() if HOME in way for host in way]
        return set(found) - {HOME}

    def __str__(self):
        begin = f"at step {self.step}, {self.after_s:.2f} s later" if self.step else \
            f"{self.after_s:.2f} s after the last one"
        names = ", ".join(f"h{host}" for host in self.hosts)
        amount = {"loss": f" {self.amount} %", "delay": f" {self.amount} ms"}.get(self.kind, "")
        return f"{begin}: {self.kind}{amount} {names} for {self.for_s:.2f} s"


class Schedule:
    """The hosts and faults of one run, all drawn from the seed."""

    def __init__(self, seed):
        random = mayfly_run.rng(seed)
        self.hosts = random.choice([3, 4, 4])
        workers = [f"h{host}" for host in range(1, self.hosts)]
        if random.random() < 0.25:
            workers.append(network.Network.address(HOME))
        self.names = ",".join(workers)
        has_spare = random.random() < 0.25
        self.workers = len(workers) - (1 if has_spare and len(workers) > 2 else 0)
        faults = [Fault(random, number + 1, self.hosts) for number in range(random.randint(2, 5))]
        by_step = iter(sorted((f for f in faults if f.step), key=lambda fault: fault.step))
        self.faults = [next(by_step) if fault.step else fault for fault in faults]

    def lines(self):
        return [f"{self.workers} workers on {self.names}"] + [str(fault) for fault in self.faults]


class Play:
    """Plays one schedule in a lab without faults."""

    def __init__(self, schedule, lab):
        self.lab, self.schedule = lab, schedule
        self.begun = time.monotonic()
        self.history = []
        self.coming = list(schedule.faults)
        self.due = None  # the time at which the first of these begins, once it is known
        self.active = {}  # the time at which each current fault ends
        self.off = set()
        self.back = {}  # the time since which each host is reachable again
        self.has_summary = False  # HOME lost its power after the summary had been written
        self.ended = None
        shutil.rmtree(lab.disk(HOME, "root/run"), ignore_errors=True)
        # The delay makes the job ten seconds long without keeping processors busy.
        self.run = LabRun(lab, schedule.names, "--workers", str(schedule.workers),
                          "--checkpoint-every", "5", "--inject", "delay=30ms")
        self.run.timeout = TIMEOUT_S
        self.last_begin = self.begun

    def say(self, text):
        clock = time.strftime("%H:%M:%S") + f".{time.time() % 1 * 1000:03.0f}"
        self.history.append(f"{clock}, step {self.run.last_step()}: {text}")

    # --- faults

    def play(self):
        while not self.has_ended():
            expect(time.monotonic() - self.begun < TIMEOUT_S,
                   f"still running after {TIMEOUT_S} s")
            if self.is_due():
                fault = self.coming.pop(0)
                self.due, self.last_begin = None, time.monotonic()
                self.active[fault] = time.monotonic() + fault.for_s
                self.say(fault)
                getattr(self, "begin_" + fault.kind, self.begin_loss)(fault)
            for fault in [f for f, end in self.active.items() if time.monotonic() >= end]:
                del self.active[fault]
                self.end(fault)
            time.sleep(0.02)
        self.ended = time.monotonic()
        self.say(f"the command has ended with {self.run.process.returncode}")

    def has_ended(self):
        return self.run.process.poll() is not None and (HOME not in self.off or self.has_summary)

    def is_due(self):
        if not self.coming:
            return False
        fault = self.coming[0]
        if self.due is None and fault.step is None:
            self.due = self.last_begin + fault.after_s
        elif self.due is None and self.run.last_step() >= fault.step:
            self.due = time.monotonic() + fault.after_s
        return self.due is not None and time.monotonic() >= self.due

    def end(self, fault):
        self.say(f"{fault.kind}{''.join(f' h{host}' for host in fault.hosts)} ends")
        getattr(self, "end_" + fault.kind, self.end_loss)(fault)
        self.back.update(dict.fromkeys(fault.out_of_reach(), time.monotonic()))

    def begin_power(self, fault):
        fault.hosts = [host for host in fault.hosts if host not in self.off]
        for host in fault.hosts:
            self.lab.power_off(host)
            self.off.add(host)
        if HOME in fault.hosts:
            self.run.process.wait()
            self.has_summary = os.path.exists(self.run.path("summary.json"))

    def end_power(self, fault):
        for host in fault.hosts:
            self.lab.power_on(host)
            self.off.discard(host)
        if HOME in fault.hosts and not self.has_summary:
            os.replace(self.run.output_path, self.run.output_path + f".before-{fault.name}")
            self.run.begin()

    def begin_unplug(self, fault):
        self.lab.unplug(fault.hosts[0])

    def end_unplug(self, fault):
        if not any(f.kind == "unplug" and f.hosts == fault.hosts for f in self.active):
            self.lab.plug(fault.hosts[0])

    def begin_delay(self, fault):
        if not self.off.intersection(fault.hosts) and fault.hosts[0] not in self.lab.wires:
            self.lab.delay(fault.hosts[0], fault.amount)

    def end_delay(self, fault):
        self.lab.shorten(fault.hosts[0])

    def begin_loss(self, fault):
        """Begins a loss of packets; also called for faults that drop all packets of some hosts."""
        self.lab.lose(fault.name, *fault.ways(), percent=fault.amount or 100)

    def end_loss(self, fault):
        self.lab.lose_no_more(fault.name)

    # --- checks after the end

    def check(self):
        """Makes all checks, and reports all that fail."""
        wrong = []
        for part in (self.check_end, self.check_records, self.check_hosts, self.check_model):
            try:
                part()
            except (Failure, FileNotFoundError) as failure:
                wrong.append(str(failure))
        expect(not wrong, "; ".join(wrong))

    def check_end(self):
        code = self.run.process.returncode
        expect(code == 0 or self.has_summary, f"exit code {code}")
        summary = self.run.summary()
        shown = {key: summary[key] for key in ("outcome", "steps", "samples", "final_digest")}
        expected = {"outcome": "done", "steps": LAST_STEP, "samples": LAST_STEP * BATCH,
                    "final_digest": undisturbed().summary["final_digest"]}
        expect(shown == expected, f"{shown} is not {expected}")

    def check_records(self):
        metrics = sorted(self.run.metrics(), key=lambda m: m["step"])
        expect([m["step"] for m in metrics] == list(range(1, LAST_STEP + 1)),
               f"not every step is on record once: {[m['step'] for m in metrics]}")
        for one, other in zip(metrics, sorted(undisturbed().metrics, key=lambda m: m["step"])):
            for key in ("digest", "sample_hash", "samples"):
                expect(one[key] == other[key], f"{key} of step {one['step']}: {one} is not {other}")

    def check_model(self):
        code, text = self.lab.run(HOME, [PROGRAM, "digest", "run"])
        expect(code == 0 and undisturbed().summary["final_digest"] in text,
               f"no model at home: {text}")

    def check_hosts(self):
        """Checks the hosts after the command has ended, and hosts that were out of reach after they
        are reachable again."""
        away = self.off.union(*(fault.out_of_reach() for fault in self.active))
        away.update(host for host, since in self.back.items()
                    if since > self.ended - ASKED_EVERY_S)
        self.nothing_is_left([host for host in range(self.schedule.hosts) if host not in away])
        self.mend()
        if away:
            code, text = self.lab.run(HOME, [
                PROGRAM, "cloud", "release", "--cloud-provider", "ssh", "--hosts",
                self.schedule.names, "--run-dir", "run"])
            expect(code == 0, f"cloud release: {text}")
            self.nothing_is_left(range(self.schedule.hosts))

    def mend(self):
        self.lab.heal()
        for host in sorted(self.off):
            self.lab.power_on(host)
        self.off.clear()

    def nothing_is_left(self, hosts):
        for host in hosts:
            servers = self.lab.disk(host, "root/.cache/mayfly/servers")
            found = os.listdir(servers) if os.path.isdir(servers) else []
            expect(found == [], f"left on h{host}: {found}")
            code, found = self.lab.run(host, ["pgrep", "-a", "mayfly"])
            expect(code == 1, f"processes on h{host}: {found}")

    def summary_line(self):
        struck = len(self.schedule.faults) - len(self.coming)
        return (f"{struck} of {len(self.schedule.faults)} faults, "
                f"{self.run.summary()['membership_changes']} changes, "
                f"{len(self.run.events('restarted'))} times back to a checkpoint")

    # --- after a failed check

    def keep(self):
        """Copies the job's files from the hosts' disks into a folder; returns its path."""
        folder = tempfile.mkdtemp(prefix="mayfly-test-schedule-")
        for host in range(self.schedule.hosts):
            for part in ("root/run", "root/.cache/mayfly/servers"):
                if os.path.isdir(self.lab.disk(host, part)):
                    shutil.copytree(self.lab.disk(host, part),
                                    os.path.join(folder, f"h{host}", os.path.basename(part)))
        for name in glob.glob(self.run.output_path + "*"):
            shutil.copy(name, folder)
        return folder

    def logs(self):
        """The logs of the command, and those of workers that are still on the hosts."""
        text = self.run.logs()
        for host in range(self.schedule.hosts):
            for name in glob.glob(self.lab.disk(host, "root/.cache/mayfly/servers/*/log")):
                with open(name, errors="replace") as file:
                    text += f"\n--- h{host} {os.path.basename(os.path.dirname(name))}\n" + \
                        "\n".join(file.read().splitlines()[-25:])
        return text


def begin_anew(lab):
    """Removes everything of a failed run from the hosts, except the copies of the program."""
    for host in range(HOSTS):
        lab.power_off(host)
        shutil.rmtree(lab.disk(host, "root/.cache/mayfly/servers"), ignore_errors=True)
    lab.heal()
    for host in range(HOSTS):
        lab.power_on(host)


def play(seed, lab):
    schedule = Schedule(seed)
    lines = schedule.lines()
    begin = time.monotonic()
    played = Play(schedule, lab)
    try:
        played.play()
        played.check()
    except Failure as failure:
        what = "\n  ".join(lines + ["what happened:"] + played.history)
        text = f"seed {seed}: {failure}\n  {what}\nkept in {played.keep()}\n{played.logs()}"
        begin_anew(lab)
        raise Failure(text) from failure
    print(f"seed {seed}: {time.monotonic() - begin:.0f} s, {played.summary_line()}; "
          f"{'; '.join(lines)}", flush=True)
    return played.run.summary()["membership_changes"]


def random_schedules():
    undisturbed()
    lab = lab_with_program(HOSTS)
    failed = mayfly_run.play_seeds(lambda seed: play(seed, lab), 3, "hosts")
    expect(failed == 0, "see above")


def main():
    lack = lab_of_hosts.reason_to_skip() or network.reason_not_to_lose()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({"random": random_schedules})


if __name__ == "__main__":
    raise SystemExit(main())
