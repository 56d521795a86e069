"""Parameter servers with followers. A server, a server and a worker, or several servers die, are
stopped or are asked to leave. An evaluator follows a job."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from parameter_server_test import (JOB, STEPS, events, finish, reference,  # noqa: E402
                                   servers_pids, three_slices)
from mayfly_run import BINARY, Run, expect, expect_refused, kill, lingering, main  # noqa: E402
import subprocess  # noqa: E402

FOLLOWED = JOB + ["--ps", "2", "--ps-replicas", "1", "--slices", "3"]


def undisturbed():
    """The bits of BSP in three slices, and the samples of every policy."""
    return three_slices(), reference()[1]


def taken_over(run):
    return [e["detail"] for e in events(run, "shard_taken_over")]


def lose_a_server(sync, server, shards="1", number=signal.SIGKILL, and_worker=False, workers="3"):
    run = Run(FOLLOWED + ["--sync", sync, "--workers", workers, "--shards", shards] +
              lingering(1, 15))
    run.wait_for_step(1)
    pid = servers_pids(run)[server]
    members = json.loads(run.command("status", "--json").stdout)["members"]
    role = [(m["role"], m["leads"], m["follows"]) for m in members if m["pid"] == pid]
    own, other = ([i * int(shards) + k for k in range(int(shards))] for i in (server, 1 - server))
    expect(role == [("server", own, other)], f"status says {members}")
    run.wait_for_step(15)
    at = time.time()
    if and_worker:
        kill([p for p in run.worker_pids() if p not in servers_pids(run).values()][0])
    kill(pid, number)
    if number == signal.SIGSTOP:
        run.wait_for_step(40)
        kill(pid, signal.SIGCONT)  # the server learns that it was evicted
    code = run.wait()
    expect(code == 0, f"{sync}: exit code {code}\n{run.logs()}")
    took = [e["time"] - at for e in events(run, "shard_taken_over")]
    expect(len(took) == int(shards), f"{sync}: {len(took)} shards were taken over, not {shards}")
    lost = events(run, "ps_server_lost")
    expect([e["lost"] for e in lost] == [[server]] and
           lost[0]["servers"][0]["leads"] == list(range(2 * int(shards))), f"said: {lost}")
    print(f"  {sync}, server {server}: led again {1000 * max(took):.0f} ms after the signal")
    return finish(run)


def bsp_loses_nothing_with_a_server():
    bits, samples = undisturbed()
    for server, shards in ((0, "1"), (1, "2")):
        summary, hashed, done = lose_a_server("bsp", server, shards)
        expect(summary["final_digest"] == bits, "the loss of a server changed the bits")
        expect(hashed == samples, f"samples lost or repeated; {done}")


def other_policies_use_every_sample_once():
    _, samples = undisturbed()
    for sync in ("asp", "ssp:1"):
        _, hashed, done = lose_a_server(sync, 0)
        expect(hashed == samples, f"{sync}: samples lost or repeated; {done}")


def a_server_and_a_worker_may_go_together():
    bits, samples = undisturbed()
    summary, hashed, done = lose_a_server("bsp", 0, and_worker=True)
    expect(hashed == samples, f"samples lost or repeated; {done}")
    if all(" 0 mixed" in text for text in done):
        expect(summary["final_digest"] == bits, "bsp: other bits")


def a_stopped_server_is_replaced_and_cannot_come_back():
    bits, samples = undisturbed()
    summary, hashed, _ = lose_a_server("bsp", 0, number=signal.SIGSTOP)
    expect(summary["final_digest"] == bits and hashed == samples, "a stopped server changed a bit")


def a_server_may_be_asked_to_leave():
    bits, samples = undisturbed()
    summary, hashed, _ = lose_a_server("bsp", 0, number=signal.SIGTERM)
    expect(summary["final_digest"] == bits and hashed == samples, "a drained server changed a bit")


def both_servers_lost_end_the_job_with_the_number_of_updates():
    run = Run(FOLLOWED + ["--sync", "bsp", "--workers", "2"] + lingering(15))
    run.wait_for_step(15)
    pids = servers_pids(run)
    for index in (0, 1):
        kill(pids[index])
    code = run.wait()
    expect(code == 1, f"exit code {code}\n{run.logs()}")
    texts = [e["detail"] for e in events(run, "fatal")]
    expect(texts and "2 of 2 parameter servers" in texts[0], f"said: {texts}")
    updates = int(texts[0].split("with it ")[1].split()[0])
    expect(abs(updates - run.last_step()) <= 1, f"{updates} updates, {run.last_step()} steps")
    run.remove()


def a_worker_that_comes_later_finds_the_new_leader():
    _, samples = undisturbed()
    run = Run(FOLLOWED + ["--sync", "asp", "--workers", "2", "--chaos", "join@step=35"] +
              lingering(15))
    run.wait_for_step(15)
    kill(servers_pids(run)[0])
    code = run.wait()
    expect(code == 0, f"exit code {code}\n{run.logs()}")
    expect(len(taken_over(run)) == 1, "nobody took over")
    _, hashed, done = finish(run)
    expect(hashed == samples, f"samples lost or repeated; {done}")


def one_server_cannot_be_followed():
    expect_refused(JOB, ((["--sync", "bsp", "--ps-replicas", "1"], "at least two servers"),))


def an_evaluator_measures_what_the_job_writes():
    run = Run(JOB + ["--sync", "bsp", "--workers", "2", "--checkpoint-every", "20",
                     "--keep-checkpoints", "9"])
    run.wait_for_step(1)
    command = [BINARY, "evaluator", "--run-dir", run.run_dir]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    run.wait_for_step(22)
    first.kill()  # at any moment: the second evaluator continues its work
    first.wait()
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)
    expect(run.wait() == 0, run.logs())
    expect(second.returncode == 0, f"exit code {second.returncode}: {second.stderr}")
    lines = run.lines("evaluations.jsonl")
    steps = [line["step"] for line in lines]
    expect(steps == [20, 40, STEPS], f"evaluated after steps {steps}")
    asked = subprocess.run([BINARY, "eval", run.run_dir, "--json"], capture_output=True, text=True,
                           timeout=60)
    expect(f'"test_loss": {lines[-1]["test_loss"]}' in asked.stdout,
           f"eval says {asked.stdout}, the evaluator {lines[-1]}")
    run.remove()


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        bsp_loses_nothing_with_a_server, other_policies_use_every_sample_once,
        a_server_and_a_worker_may_go_together, a_stopped_server_is_replaced_and_cannot_come_back,
        a_server_may_be_asked_to_leave, both_servers_lost_end_the_job_with_the_number_of_updates,
        a_worker_that_comes_later_finds_the_new_leader, one_server_cannot_be_followed,
        an_evaluator_measures_what_the_job_writes)}))
