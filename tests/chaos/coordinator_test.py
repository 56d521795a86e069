"""Goal: a job survives the loss of its coordinator. Workers go on with their steps without it; a
new coordinator continues the job from the log of the old one, or a standby takes over. The weights
are those of an undisturbed run, every step is recorded once and every sample was used once.
Method: real processes on loopback, SIGKILL at many moments, damaged logs.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import mayfly_run
import mpi_launch
import sample_ledger
from cluster import Cluster
from mayfly_run import SMALL_JOB, Run, expect, lingering
from oracle import Oracle

STEPS = 100
SHORT = 20  # steps of a job that is killed when it ends
SAMPLES, BATCH, MICROBATCH = 512, 16, 4
JOB = SMALL_JOB + ["--steps", str(STEPS), "--threads", "1"]


def undisturbed(steps=STEPS):
    return Oracle(JOB + ["--steps", str(steps), "--workers", "1"]).digests()


def new_cluster(extra=(), timeout=150):
    return Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + list(extra), timeout=timeout)


def start(workers, extra=None, worker_extra=(), until_step=5):
    """`extra`: settings of the job. The default ones slow the job down after `until_step`, so that
    the caller has time to act."""
    more = [until_step, until_step + 16, until_step + 32]
    cluster = new_cluster(lingering(*more) if extra is None else extra)
    cluster.start_coordinator(workers)
    for _ in range(workers):
        cluster.start_worker(cluster.endpoint(), extra=worker_extra)
    cluster.run.wait_for_step(until_step)
    return cluster


def events(cluster, kind):
    return [e for e in cluster.run.lines("events.jsonl") if e["kind"] == kind]


def status_of(cluster):
    done = cluster.run.command("status", "--json", "--token-file", cluster.token_file)
    return json.loads(done.stdout) if done.returncode == 0 else None


def wait_for_status(cluster, condition, text):
    def holds():
        coordinator = cluster.coordinators[-1]
        expect(coordinator.alive(), f"the coordinator ended: {coordinator.output()}")
        status = status_of(cluster)
        return status is not None and condition(status)
    cluster.wait_for(holds, text)


def expect_same_bits(cluster):
    code = cluster.wait_for_end(cluster.coordinators[-1], "the job does not end")
    expect(code == 0, f"the coordinator ended with {code}\n{cluster.logs()}")
    summary = cluster.run.summary()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps\n{cluster.logs()}")
    expect(summary["samples"] == STEPS * BATCH, f"{summary['samples']} samples in the summary")
    steps = [m["step"] for m in cluster.run.metrics()]
    expect(sorted(steps) == list(range(1, STEPS + 1)),
           f"not every step once in metrics.jsonl: {sorted(steps)}\n{cluster.logs()}")
    expect(not events(cluster, "records_missing"), "records are missing")
    by_step = mayfly_run.digests(cluster.run)
    for step, digest in undisturbed().items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    return summary


def finish(cluster):
    summary = expect_same_bits(cluster)
    for worker in cluster.workers:
        if worker.alive():
            cluster.wait_for_end(worker, f"{worker.name} does not end")
    cluster.stop_hard()
    cluster.run.remove()
    return summary


def killed_and_started_again():
    """A restart loses no member and changes no view. Later losses and joins work as usual."""
    cluster = start(3, extra=["--ledger"] + lingering(5, 21, 37))
    ledgers = [cluster.run_dir(f"worker-{n}") for n in range(4)]
    views = len(events(cluster, "view"))
    cluster.coordinators[-1].kill()
    def written():
        return sum(os.path.getsize(name) for name in sample_ledger.files(ledgers))
    # Waits for about ten steps: a worker writes some 30 bytes for each of its microbatches.
    for _ in range(5):
        before = written()
        cluster.wait_for(lambda: written() > before + 60, "no step is made without a coordinator")
    cluster.start_coordinator(3)
    wait_for_status(cluster, lambda s: s["phase"] == "running" and len(s["members"]) == 3,
                    "not in charge again")
    restarted = events(cluster, "coordinator_restarted")
    expect(len(restarted) == 1 and "waiting for 3 members" in restarted[0]["detail"], restarted)
    expect(len(events(cluster, "view")) == views, "the view changed though nobody was lost")
    cluster.workers[0].kill()
    cluster.start_worker(cluster.endpoint())
    summary = expect_same_bits(cluster)
    expect(summary["membership_changes"] >= 1, "the loss went unnoticed")
    metrics = sorted(cluster.run.metrics(), key=lambda m: m["step"])
    sample_ledger.expect_every_sample_once(metrics, ledgers, SAMPLES, BATCH, MICROBATCH)
    cluster.stop_hard()
    cluster.run.remove()


def records_lost_with_the_machine():
    """The end of metrics.jsonl is lost, as if it had not been written to the disk. The members
    still have the reports of these steps, and send them again."""
    for cut in (5, 2000):
        cluster = start(2, until_step=20)
        cluster.coordinators[-1].kill()
        path = cluster.run.path("metrics.jsonl")
        os.truncate(path, os.path.getsize(path) - cut)
        cluster.start_coordinator(2)
        finish(cluster)


def killed_in_a_change_of_view():
    """A worker is killed, and a moment later the coordinator, at any point of the view change."""
    for seed in mayfly_run.seeds(4):
        chance = random.Random(seed)
        cluster = start(4)
        cluster.workers[chance.randrange(4)].kill()
        time.sleep(chance.choice([0, 0.002, 0.005, 0.01, 0.02, 0.05]) * chance.random())
        cluster.coordinators[-1].kill()
        time.sleep(chance.random() * 0.3)
        cluster.start_coordinator(4)
        summary = finish(cluster)
        expect(summary["membership_changes"] >= 1, f"seed {seed}: the loss went unnoticed")


def killed_between_log_and_record():
    """A view is in the log and its members work in it, but it is not in the run's records yet."""
    cluster = start(3)
    cluster.workers[1].kill()
    def views():
        return [e for e in events(cluster, "view") if "members" in e]
    cluster.wait_for(lambda: len(views()) == 2, "the loss is not noticed")
    cluster.coordinators[-1].kill()
    path = cluster.run.path("events.jsonl")
    with open(path) as f:
        lines = f.readlines()
    lost = views()[-1]
    last = max(i for i, line in enumerate(lines) if json.loads(line) == lost)
    with open(path, "w") as f:
        f.writelines(lines[:last])
    cluster.start_coordinator(3)
    summary = expect_same_bits(cluster)
    ids = [view["view"] for view in views()]
    expect(lost["view"] in ids and len(set(ids)) == len(ids), f"view {lost} is not once in {ids}")
    expect(summary["membership_changes"] == 1, f"{summary['membership_changes']} changes")
    cluster.stop_hard()
    cluster.run.remove()


def torn_log():
    """The end of the view log is damaged in several ways. The members supply the lost records."""
    def cut(data):
        return data[:-7]
    def flip(data):
        return data[:-3] + bytes([data[-3] ^ 0x10]) + data[-2:]
    def garbage(data):
        return data + os.urandom(50)
    for damage in (cut, flip, garbage):
        cluster = start(2)
        cluster.coordinators[-1].kill()
        path = cluster.run.path("view.log")
        with open(path, "rb") as f:
            data = f.read()
        with open(path, "wb") as f:
            f.write(damage(data))
        cluster.start_coordinator(2)
        finish(cluster)


def reporter_dies_with_the_last_reports():
    """Workers commit the job's last steps while there is no coordinator, and the reporter dies. The
    other members have copies of its reports."""
    cluster = start(3, extra=["--ledger"] + lingering(STEPS - 15), until_step=STEPS - 15)
    cluster.coordinators[-1].kill()
    folders = [cluster.run_dir(f"worker-{n}") for n in range(3)]
    def made():
        return (STEPS, BATCH // MICROBATCH - 1) in sample_ledger.read(folders)
    cluster.wait_for(made, "the last step is not made without a coordinator")
    time.sleep(0.3)
    first = next(e for e in events(cluster, "view") if "members" in e)["members"][0]
    for worker in cluster.workers:
        if f"as member {first}\n" in worker.output():
            worker.kill()
    cluster.start_coordinator(3)
    summary = finish(cluster)
    expect(summary["membership_changes"] == 1, f"{summary['membership_changes']} changes")


def again_and_again():
    cluster = start(3, extra=["--inject", "slow=12x"])  # the job must outlast the fourth restart
    for _ in range(4):
        step = cluster.run.last_step()
        cluster.coordinators[-1].kill()
        cluster.start_coordinator(3)
        cluster.run.wait_for_step(min(step + 10, STEPS))
    finish(cluster)


def killed_at_the_end():
    """The coordinator is killed before, while or after it tells its members that the job is done.
    The next coordinator completes the job if it was not complete."""
    with_rest = 0
    for seed in mayfly_run.seeds(8):
        chance = random.Random(seed)
        cluster = start(2, extra=["--steps", str(SHORT)])
        cluster.run.wait_for_step(SHORT)
        time.sleep(chance.random() * 0.03)
        cluster.coordinators[-1].kill()
        if not os.path.exists(cluster.run.path("summary.json")):
            with_rest += 1
            cluster.start_coordinator(2)
            code = cluster.wait_for_end(cluster.coordinators[-1], "the job does not end")
            expect(code == 0, f"seed {seed}: the coordinator ended with {code}\n{cluster.logs()}")
        for worker in cluster.workers:
            code = cluster.wait_for_end(worker, f"{worker.name} does not end")
            expect(code == 0, f"seed {seed}: {worker.name} ended with {code}\n{cluster.logs()}")
        summary = cluster.run.summary()
        expect(summary["outcome"] == "done" and summary["steps"] == SHORT, f"{seed}: {summary}")
        expect(summary["final_digest"] == undisturbed(SHORT)[SHORT], f"seed {seed}: {summary}")
        cluster.stop_hard()
        cluster.run.remove()
    print(f"{with_rest} of them left something to do")


def second_one_is_refused():
    slow = ["--inject", "slow=4x"]  # the job must not end before the second coordinator starts
    cluster = start(2, extra=slow)
    words = ["coordinator", "--run-dir", cluster.run_dir(), "--token-file", cluster.token_file,
             "--workers", "2"] + JOB + slow
    second = cluster.start_process("second", words, None)
    code = cluster.wait_for_end(second, "the second coordinator does not end")
    expect(code == 2, f"exit code {code}: {second.output()}")
    lines = [line for line in second.output().splitlines() if line.strip()]
    expect(len(lines) == 1 and str(cluster.coordinators[-1].pid) in lines[0], second.output())
    finish(cluster)


def another_configuration_is_refused():
    cluster = start(2)
    cluster.coordinators[-1].kill()
    words = ["coordinator", "--run-dir", cluster.run_dir(), "--token-file", cluster.token_file]
    other = cluster.start_process("other", words + ["--lr", "0.7"], None)
    code = cluster.wait_for_end(other, "the coordinator does not end")
    expect(code == 2 and "lr" in other.output() and "0.05" in other.output(), other.output())
    # Without that flag the coordinator continues the job.
    again = cluster.start_process("coordinator-run", words, None)
    cluster.coordinators.append(again)
    cluster.run.process = again.process
    finish_and_refuse_a_third(cluster, words)


def finish_and_refuse_a_third(cluster, words):
    expect_same_bits(cluster)
    third = cluster.start_process("third", words, None)
    code = cluster.wait_for_end(third, "the third coordinator does not end")
    expect(code == 2 and "already holds a run" in third.output(), third.output())
    cluster.stop_hard()
    cluster.run.remove()


def never_started_again():
    """Without a new coordinator, workers go on as long as they can, then end and print the
    reason."""
    cluster = start(2, worker_extra=["--coordinator-timeout", "2"])
    late = cluster.start_worker(cluster.endpoint(), extra=["--coordinator-timeout", "2"])
    cluster.wait_for(lambda: "joined" in late.output(), "the third worker does not join")
    cluster.coordinators[-1].kill()
    for worker in cluster.workers:
        code = cluster.wait_for_end(worker, f"{worker.name} does not end")
        expect(code in (0, 1), f"{worker.name} ended with {code}")
        expect("the coordinator is gone" in worker.output(), worker.output())
    cluster.stop_hard()
    cluster.run.remove()


def left_alone():
    """The coordinator and a worker are lost for good, so the group cannot re-form. The other
    workers save their states on their own disks and print the paths."""
    cluster = start(3, worker_extra=["--coordinator-timeout", "3"])
    cluster.coordinators[-1].kill()
    lost, *others = cluster.workers
    lost.kill()
    for worker in others:
        code = cluster.wait_for_end(worker, f"{worker.name} does not end")
        expect(code == 1, f"{worker.name} ended with {code}")
        found = re.search(r"the state of step (\d+) is in (\S+)", worker.output())
        expect(found is not None and int(found[1]) >= 5, worker.output())
        done = subprocess.run([mayfly_run.BINARY, "digest", found[2]], capture_output=True,
                              text=True, check=False)
        expect(undisturbed()[int(found[1])] in done.stdout, f"{done}\n{worker.output()}")
    cluster.stop_hard()
    cluster.run.remove()


def standby_takes_over(is_restarted=False):
    cluster = new_cluster(lingering(5, 21, 37))
    cluster.start_coordinator(3, extra=["--quorum"])
    cluster.start_coordinator(3, name="standby", extra=["--standby"])
    endpoints = [cluster.endpoint(), cluster.endpoint("standby")]
    for _ in range(3):
        cluster.start_worker(endpoints)
    cluster.run.wait_for_step(5)
    primary, standby = cluster.coordinators
    done = standby_status(cluster)
    expect(done["phase"] == "standby", f"a standby says that it is {done['phase']}")
    primary.kill()
    cluster.wait_for(lambda: standby_status(cluster)["phase"] == "running", "nobody takes over")
    if is_restarted:
        standby.kill()
        standby = cluster.start_coordinator(3, name="standby", extra=["--standby"])
    code = cluster.wait_for_end(standby, "the job does not end")
    expect(code == 0, f"the standby ended with {code}\n{cluster.logs()}")
    by_step = mayfly_run.digests(cluster.run)
    other = Run.attach(cluster.folder, standby.process, cluster.timeout, standby.output_path)
    other.run_dir = cluster.run_dir("standby")
    by_step.update(mayfly_run.digests(other))
    for step, digest in undisturbed().items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    cluster.stop_hard()
    cluster.run.remove()


def standby_is_restarted():
    """A standby that has taken over continues from its own log after a restart."""
    standby_takes_over(is_restarted=True)


def standby_before_the_first_view():
    """Before the first view a standby cannot know whether another coordinator leads the job, so it
    does not take over. It prints what to do, and its members do not wait for ever. When the first
    coordinator is started again, it leads the job."""
    cluster = new_cluster()
    cluster.start_coordinator(2, extra=["--quorum"])
    cluster.start_coordinator(2, name="standby", extra=["--standby"])
    endpoints = [cluster.endpoint(), cluster.endpoint("standby")]
    waiting = cluster.start_worker(endpoints, extra=["--coordinator-timeout", "8"])
    cluster.wait_for(lambda: "joined" in waiting.output(), "the worker does not join")
    cluster.coordinators[0].kill()
    late = cluster.start_worker(endpoints)  # refused until a coordinator leads the job
    code = cluster.wait_for_end(waiting, f"{waiting.name} does not end")
    expect(code == 1, f"the waiting worker ended with {code}\n{waiting.output()}")
    for words in ("is not in charge: the job has had no view yet",
                  "start its first coordinator again", "the coordinator is gone"):
        expect(words in waiting.output(), f"{words!r} is not said:\n{waiting.output()}")
    expect(standby_status(cluster)["phase"] == "standby", "the standby leads a job without a view")
    expect(late.alive(), f"the other worker ended\n{late.output()}")
    cluster.start_coordinator(2, extra=["--quorum"])
    cluster.start_worker(endpoints)
    finish(cluster)


def standby_status(cluster):
    answer = subprocess.run([mayfly_run.BINARY, "status", cluster.endpoint("standby"), "--json",
                             "--token-file", cluster.token_file],
                            capture_output=True, text=True, timeout=30)
    expect(answer.returncode == 0, f"status of the standby: {answer.stderr}")
    return json.loads(answer.stdout)


def stopped_worker_rejoins():
    """A worker that was evicted while it was stopped joins again in the same process."""
    cluster = start(3, extra=["--silence-max-ms", "500"] + lingering(20, 36, 52))
    sleeper = cluster.workers[1]
    sleeper.signal(signal.SIGSTOP)
    cluster.wait_for(lambda: events(cluster, "evicted") or events(cluster, "lost"),
                     "the stopped worker is not missed")
    sleeper.signal(signal.SIGCONT)
    cluster.wait_for(lambda: "joining again" in sleeper.output(), "it does not join again")
    def joined():
        return any(r["recovery"]["cause"] == "join" for r in events(cluster, "recovery"))
    cluster.wait_for(joined, "it is not admitted again")
    expect(sleeper.alive(), "it is another process")
    finish(cluster)


def under_mpirun():
    """Under mpirun rank 0 starts a killed coordinator again."""
    if shutil.which("mpirun") is None:
        print("skipped under_mpirun: mpirun is not installed")
        return
    run = mpi_launch.start(2, JOB + lingering(5, 21), timeout=150)
    run.wait_for_step(5)
    with open(run.path("view.log.lock")) as f:
        mayfly_run.kill(int(f.read()))
    summary = run.finish()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps\n{run.logs()}")
    expect([e for e in run.lines("events.jsonl") if e["kind"] == "coordinator_restarted"],
           "the coordinator was not started again")
    by_step = mayfly_run.digests(run)
    for step, digest in undisturbed().items():
        expect(by_step.get(step) == digest, f"step {step}: {by_step.get(step)} is not {digest}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "killed_and_started_again": killed_and_started_again,
        "records_lost_with_the_machine": records_lost_with_the_machine,
        "killed_in_a_change_of_view": killed_in_a_change_of_view,
        "killed_between_log_and_record": killed_between_log_and_record, "torn_log": torn_log,
        "reporter_dies_with_the_last_reports": reporter_dies_with_the_last_reports,
        "again_and_again": again_and_again, "killed_at_the_end": killed_at_the_end,
        "second_one_is_refused": second_one_is_refused,
        "another_configuration_is_refused": another_configuration_is_refused,
        "never_started_again": never_started_again, "left_alone": left_alone,
        "standby_takes_over": standby_takes_over,
        "standby_is_restarted": standby_is_restarted,
        "standby_before_the_first_view": standby_before_the_first_view,
        "stopped_worker_rejoins": stopped_worker_rejoins, "under_mpirun": under_mpirun}))
