"""Goal: one command trains a model on hosts that have only an sshd. The model is then on the user's
machine, also if a host or the user's machine loses its power, or a host is cut off."""
import glob
import json
import os
import shutil
import time

import lab_of_hosts
import mayfly_run
from fake_cloud_job import bundle_of, unpack_bundle
from lab_of_hosts import Lab
from mayfly_run import Run, SMALL_JOB, expect, lingering
from oracle import Oracle

STEPS = ["--steps", "60"]
PROGRAM = "/root/mayfly/mayfly"


def undisturbed():
    return Oracle(SMALL_JOB + STEPS + ["--workers", "1", "--threads", "1"]).summary["final_digest"]


def lab_with_program(hosts, clocks=None):
    """A lab in which only the user's home directory on host 0 has the program."""
    lab = Lab(hosts, clocks)
    unpack_bundle(mayfly_run.BINARY, lab.disk(0, "root"))
    return lab


class LabRun(Run):
    """Runs `mayfly train --hosts` on host 0. The program is copied to the other hosts in an archive
    that is made once for all tests, unless the command `packs` it itself."""

    def __init__(self, lab, names, *more, job=tuple(SMALL_JOB + STEPS), timeout=200, packs=False):
        self.lab = lab
        self.names = names
        self.more = [*job, *more]
        if not packs:
            shutil.copy(bundle_of(mayfly_run.BINARY), lab.disk(0, "root/program.tar.gz"))
            self.more += ["--cloud-bundle", "program.tar.gz"]
        self.folder = lab.disk(0, "root")
        self.run_dir = os.path.join(self.folder, "run")
        self.output_path = os.path.join(self.folder, "output.txt")
        self.timeout = timeout
        self.begin()

    def begin(self):
        self.started = time.monotonic()
        self.process = self.lab.start(
            0, [PROGRAM, "train", "--run-dir", "run", "--hosts", self.names, "--threads", "1"]
            + self.more, self.output_path)

    def ends_well(self, digest):
        code = self.wait()
        expect(code == 0, f"exit code {code}\n{self.logs()}")
        expect(self.summary()["final_digest"] == digest, f"other bits\n{self.logs()}")
        shown = self.lab.run(0, [PROGRAM, "digest", "run"])
        expect(shown[0] == 0 and digest in shown[1], f"the model is not at home: {shown}")


def nothing_is_left(lab, hosts):
    for host in hosts:
        servers = lab.disk(host, "root/.cache/mayfly/servers")
        expect(os.listdir(servers) == [], f"on h{host}: {os.listdir(servers)}")
        code, found = lab.run(host, ["pgrep", "-a", "mayfly"])
        expect(code == 1, f"processes on h{host}: {found}")


def one_command():
    digest = undisturbed()
    lab = lab_with_program(4)
    run = LabRun(lab, "h1,h2,h3", "--report", "report.html", "--dashboard", "0", packs=True)
    run.ends_well(digest)
    expect("dashboard at http://127.0.0.1:" in run.output(), run.output())
    with open(lab.disk(0, "root/report.html")) as report:
        page = report.read()
    expect(all(f'"host":"h{host}"' in page for host in (1, 2, 3)), "hosts on the page")
    expect(run.output().count("has received the program") == 3, run.output())
    expect(run.output().count("1 on h") == 3, run.output())
    workers = run.summary()["workers"]
    expect(sorted(worker["host"] for worker in workers) == ["h1", "h2", "h3"], workers)
    expect(all(worker["last_step"] == 60 for worker in workers), workers)
    nothing_is_left(lab, (1, 2, 3))


def parameter_servers():
    """The coordinator chooses the host of the parameter server; the other two hosts have
    workers."""
    servers = ["--sync", "bsp", "--ps", "1"]
    digest = Oracle(SMALL_JOB + STEPS + servers + ["--workers", "2", "--threads", "1"]
                    ).summary["final_digest"]
    lab = lab_with_program(4)
    run = LabRun(lab, "h1,h2,h3", *servers)
    run.ends_well(digest)
    (known,) = [event["servers"] for event in run.events("ps_servers")]
    expect(len(known) == 1, run.logs())
    nothing_is_left(lab, (1, 2, 3))
    too_many = LabRun(lab, "h1,h2", "--sync", "bsp", "--ps", "1", "--workers", "2")
    expect(too_many.wait() == 2 and "room for 2" in too_many.output(), too_many.output())


def evaluator():
    """One of three hosts evaluates the checkpoints of two workers. It loses its power for a while,
    and then goes on. Every checkpoint is evaluated, and training is not disturbed."""
    steps = 400
    job = SMALL_JOB + ["--steps", str(steps)]
    digest = Oracle(job + ["--workers", "1", "--threads", "1"]).summary["final_digest"]
    lab = lab_with_program(4)
    run = LabRun(lab, "h1,h2,h3", "--workers", "2", "--evaluators", "1", "--checkpoint-every", "40",
                 "--keep-checkpoints", "20", "--inject", "slow=4x", job=job)
    run.wait_for("an evaluated checkpoint", lambda: run.events("evaluated"))
    (joined,) = run.events("evaluator_joined")
    host = int(joined["server"][1])
    expect(not lab.run(host, ["pgrep", "-x", "mayfly"])[0], f"no evaluator on h{host}")
    lab.power_off(host)
    lab.power_on(host)
    run.ends_well(digest)
    expect(not [e for e in run.events("lost")], run.logs())
    measured = sorted(line["step"] for line in run.lines("evaluations.jsonl"))
    expect(measured == list(range(40, steps + 1, 40)), f"measured: {measured}\n{run.logs()}")
    nothing_is_left(lab, (1, 2, 3))


def lose_a_host(lab, run):
    """Cuts the power of one of the two hosts with workers until the spare host has a worker.
    Returns the two hosts that have workers then."""
    run.wait_for_step(6)
    used = [host for host in (1, 2, 3) if os.listdir(lab.disk(host, "root/.cache/mayfly/servers"))]
    expect(len(used) == 2, f"workers on {used}")
    lab.power_off(used[0])
    spare = 6 - sum(used)
    run.wait_for("a worker on the spare host", lambda: any(
        event["server"].startswith(f"h{spare}.") for event in run.events("server_granted")))
    lab.power_on(used[0])
    return used[1], spare


def power_cut():
    """One host loses its power. Its power returns after the spare host has taken its place."""
    digest = undisturbed()
    lab = lab_with_program(4)
    run = LabRun(lab, "h1,h2,h3", "--workers", "2", *lingering(6, 30))
    left = lose_a_host(lab, run)
    run.ends_well(digest)
    nothing_is_left(lab, left)


def own_machine_loses_power():
    """The workers go on. When the user repeats the command, the job continues with them."""
    digest = undisturbed()
    lab = lab_with_program(3)
    run = LabRun(lab, "h1,h2", *lingering(6, 30))
    run.wait_for_step(6)
    lab.power_off(0)
    run.process.wait()
    time.sleep(1)
    lab.power_on(0)
    run.begin()
    run.ends_well(digest)
    joined = [event["server"] for event in run.events("server_joined")]
    expect(len(set(joined)) == 2, f"other workers: {joined}\n{run.logs()}")
    nothing_is_left(lab, (1, 2))


def left_alone():
    """After the loss of the user's machine and of one worker, the other worker gives up before a
    coordinator is started again. A day later the user repeats the command. The job goes on from the
    state that the worker had saved on its host."""
    digest = undisturbed()
    lab = lab_with_program(3)
    run = LabRun(lab, "h1,h2", "--coordinator-timeout", "3", *lingering(6, 30))
    run.wait_for_step(6)
    lab.power_off(0)
    lab.power_off(1)
    run.process.wait()
    servers = lab.disk(2, "root/.cache/mayfly/servers")
    (folder,) = (os.path.join(servers, name) for name in os.listdir(servers))
    end = time.monotonic() + 120
    while not os.path.exists(os.path.join(folder, "run/left_alone")):
        expect(time.monotonic() < end, "the worker that is left does not give up")
        time.sleep(0.05)
    (saved,) = glob.glob(os.path.join(folder, "run/checkpoints/step-*"))
    for host in (0, 1):
        lab.power_on(host)
    run.begin()
    run.ends_well(digest)
    begins = [event["committed"] for event in run.events("view") if "committed" in event]
    expect(int(saved.split("-")[-1]) in begins, f"{saved} was saved; views begin at {begins}")
    kept = os.listdir(lab.disk(2, "root/.cache/mayfly/saved"))
    expect(len(kept) == 1 and kept[0].endswith(".offered"), f"offered once, and kept: {kept}")
    nothing_is_left(lab, (1, 2))


def wrong_clocks():
    """Nothing depends on the wall clocks of hosts: neither the failure detector, the token and the
    records, nor the job's certificate, which by these clocks is not valid yet or has expired."""
    if not lab_of_hosts.fake_clocks():
        print("skipped: libfaketime is missing")
        raise SystemExit(mayfly_run.SKIP)
    digest = undisturbed()
    lab = lab_with_program(4, clocks={1: "-5h", 2: "+400d", 3: "-20h"})
    code, text = lab.run(0, ["ssh", "h1", "date", "+%s"])
    expect(code == 0 and abs(int(text) - time.time() + 5 * 3600) < 100, f"h1's clock: {text}")
    run = LabRun(lab, "h1,h2,h3", "--workers", "2", "--tls", *lingering(6, 30))
    left = lose_a_host(lab, run)
    run.ends_well(digest)
    times = [event["time"] for kind in ("joined", "recovery", "checkpoint_received")
             for event in run.events(kind)]
    expect(all(abs(at - time.time()) < 600 for at in times), f"times on record: {times}")
    nothing_is_left(lab, left)


def refused_in_one_line():
    lab = lab_with_program(4)
    os.remove(lab.disk(1, "root/.ssh/authorized_keys"))
    full = lab.disk(2, "root/.cache")
    os.makedirs(full)
    with open(os.path.join(full, "mayfly"), "w"):
        pass  # an empty file in the place of the folder
    lab.pull_out(3)
    run = LabRun(lab, "h1,h2,h3,h9", "--ssh", "ssh -o BatchMode=yes -o ConnectTimeout=2")
    expect(run.wait() == 2, run.output())
    for word in ("h1: ", "Permission denied", "h2: cannot make the folder", "h3: ssh: connect to",
                 "h9: ssh: Could not resolve"):
        expect(word in run.output(), f"not '{word}' in {run.output()}")
    expect(not os.path.exists(run.run_dir), "nothing is made")


def half_a_copy():
    """The incomplete files of an interrupted copy are not used."""
    lab = lab_with_program(2)
    run = LabRun(lab, "h1")
    expect(run.wait() == 0, run.output())
    programs = lab.disk(1, "root/.cache/mayfly/programs")
    (name,) = os.listdir(programs)
    shutil.rmtree(os.path.join(programs, name))
    os.makedirs(os.path.join(programs, ".copy-1-0", "mayfly"))
    shutil.rmtree(run.run_dir)
    run.begin()
    expect(run.wait() == 0 and "h1: has received the program" in run.output(), run.output())


def difference():
    """On hosts that are far apart `mayfly profile --difference` names the network as the cause."""
    lab = lab_with_program(3)
    with open(lab.disk(0, "root/job.toml"), "w") as file:
        file.write('model = "resnet20"\ndata = "procedural:512"\nhosts = "h1,h2"\nthreads = 1\n'
                   'global_batch = 8\nmicrobatch = 4\n')
    for host in (1, 2):
        lab.delay(host, 20)
    code, said = lab.run(0, [PROGRAM, "profile", "--difference", "job.toml", "--rounds", "1",
                             "--steps", "12", "--json"], timeout=300)
    expect(code == 0, said)
    found = json.loads(said[said.index("{"):])
    means = {cell: sum(times) / len(times) for cell, times in found["cells_ms"].items()}
    expect(set(means) == set("ABCNE"), found)
    kinds = found["kinds"]
    expect(list(kinds) == ["compute", "contention", "interconnect", "network", "data"], found)
    expect(abs(sum(kind["ms"] for kind in kinds.values()) - means["E"]) < 0.01, found)
    expect(kinds["network"]["ms"] > 20, f"a message takes 40 ms: {found}")
    expect(abs(found["stash"]["network_ms"] - kinds["network"]["ms"]) < 0.01, found)
    nothing_is_left(lab, (1, 2))


def main():
    lack = lab_of_hosts.reason_to_skip()
    if lack is not None:
        print(f"skipped: {lack}")
        return mayfly_run.SKIP
    return mayfly_run.main({
        "one_command": one_command, "parameter_servers": parameter_servers, "evaluator": evaluator,
        "power_cut": power_cut,
        "own_machine": own_machine_loses_power, "left_alone": left_alone,
        "wrong_clocks": wrong_clocks, "refused": refused_in_one_line, "half_a_copy": half_a_copy,
        "difference": difference})


if __name__ == "__main__":
    raise SystemExit(main())
