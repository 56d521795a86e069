"""Parameter servers that workers run (--ps colocated), as a user starts them. The bits are those of
a job with separate servers. Workers die with their servers, join again, or join later. Such a job
is also started by hand and by mpirun."""
import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from parameter_server_test import (JOB, STEPS, events, finish, sample_hash,  # noqa: E402
                                   servers_pids)
import mpi_launch  # noqa: E402
from cluster import Cluster  # noqa: E402
from mayfly_run import Run, expect, kill, lingering, main  # noqa: E402
from oracle import Oracle  # noqa: E402

COLOCATED = JOB + ["--ps", "colocated", "--slices", "3"]
FOLLOWED = COLOCATED + ["--sync", "bsp", "--workers", "3", "--ps-replicas", "1"]


def dedicated():
    """The bits of BSP in three slices with separate servers, and the samples of every policy."""
    run = Oracle(JOB + ["--sync", "bsp", "--slices", "3", "--workers", "3", "--ps", "3"])
    return run.summary["final_digest"], sample_hash(run.metrics)


def expect_the_same(run):
    bits, samples = dedicated()
    summary, hashed, done = finish(run)
    expect(hashed == samples, f"samples lost or repeated; {done}")
    if all(" 0 mixed" in text for text in done):
        expect(summary["final_digest"] == bits, "other bits than with servers of their own")
    return summary, done


def with_steps(words, steps):
    at = words.index("--steps")
    return words[:at + 1] + [str(steps)] + words[at + 2:]


def wait_for_members(run, count):
    """Waits until so many members have committed a step."""
    while True:
        has_ended = run.process.poll() is not None
        if run.last_members() == count:
            return
        expect(not has_ended, f"ended without {count} members\n{run.logs()}")
        expect(time.monotonic() - run.started < run.timeout, f"never {count}\n{run.logs()}")
        time.sleep(0.01)


def members_at_the_end(run):
    run.wait()
    return run.last_members()


def expect_roles(run, shards):
    """Expects that each of three workers runs a server, by status and by events.jsonl."""
    members = json.loads(run.command("status", "--json").stdout)["members"]
    roles = sorted((m["server"], m["role"], m["leads"], m["follows"]) for m in members)
    carried = [(i, "worker+server", list(range(i * shards, (i + 1) * shards)), [])
               for i in range(3)]
    expect(roles == carried, f"status says {members}")
    told = events(run, "ps_servers")
    expect(len(told) == 1, f"{len(told)} events say who carries the servers")
    said = [(s["server"], s["member"], s["computes"], s["leads"]) for s in told[0]["servers"]]
    by_server = sorted((m["server"], m["id"], True, m["leads"]) for m in members)
    expect(said == by_server, f"events.jsonl says {told[0]}")


def bsp_has_the_bits_of_servers_of_their_own():
    for shards in ("1", "2"):
        run = Run(COLOCATED + ["--sync", "bsp", "--workers", "3", "--shards", shards] +
                  lingering(5))
        run.wait_for_step(5)
        expect(not servers_pids(run), "a server has a process of its own")
        expect_roles(run, int(shards))
        expect(members_at_the_end(run) == 3, f"{run.last_members()} members")
        _, done = expect_the_same(run)
        expect(len(done) == 3 * int(shards), f"{len(done)} shards gave an account")


def every_policy_uses_every_sample_once():
    _, samples = dedicated()
    for args in (["--sync", "asp"], ["--sync", "ssp:1"], ["--phases", "bsp:40%,asp"]):
        _, hashed, done = finish(Run(COLOCATED + args + ["--workers", "3"]))
        expect(hashed == samples, f"{args}: samples lost or repeated; {done}")


def a_worker_is_lost_with_its_server_and_nothing_else_is():
    for worker, shards in ((0, "1"), (1, "2")):
        run = Run(FOLLOWED + ["--shards", shards, "--chaos",
                              f"kill@step=15:worker={worker},join@step=30"])
        run.wait()
        taken = [e["detail"] for e in events(run, "shard_taken_over")]
        expect(len(taken) == int(shards), f"taken over: {taken}\n{run.logs()}")
        lost = events(run, "ps_server_lost")
        led = [shard for server in lost[0]["servers"] for shard in server["leads"]]
        expect(len(lost) == 1 and lost[0]["lost"] == [worker] and
               sorted(led) == list(range(3 * int(shards))), f"said of the servers: {lost}")
        counts = [m["members"] for m in run.metrics()]
        expect(counts[0] == 3 and 2 in counts, f"members of the steps: {counts}")
        summary, _ = expect_the_same(run)
        lost = [r for r in summary["recoveries"] if r["cause"] == "lost"]
        expect(len(lost) == 1, f"one loss was {len(lost)} changes of view")


def a_worker_may_be_asked_to_leave():
    run = Run(FOLLOWED + ["--chaos", "drain@step=15:worker=2"])
    run.wait()
    expect(len(events(run, "shard_taken_over")) == 1, run.logs())
    expect_the_same(run)


def a_lost_worker_ends_the_job_without_followers():
    run = Run(COLOCATED + ["--sync", "bsp", "--workers", "2", "--chaos", "kill@step=15:worker=1"])
    expect(run.wait() == 1, f"it did not fail\n{run.logs()}")
    texts = [e["detail"] for e in events(run, "fatal")]
    expect(texts and "1 of 2 parameter servers is lost" in texts[0], f"said: {texts}")
    run.remove()


def a_stopped_worker_comes_back_without_its_server():
    run = Run(with_steps(FOLLOWED, 4000))
    run.wait_for_step(5)
    victim = run.worker_pids()[1]
    kill(victim, signal.SIGSTOP)
    wait_for_members(run, 2)  # the other workers go on without it
    kill(victim, signal.SIGCONT)
    wait_for_members(run, 3)
    expect(run.command("stop").returncode == 0 and run.wait() == 3, run.logs())
    expect(len(events(run, "shard_taken_over")) == 1, run.logs())
    run.remove()


def by_hand(numbers, steps=STEPS):
    """Starts a coordinator, and workers one by one. Workers without a number get the default, 0."""
    cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"),
                      with_steps(COLOCATED, steps) + ["--sync", "bsp", "--workers", "3"])
    cluster.start_coordinator(3)
    for number in numbers:
        cluster.start_worker(cluster.endpoint(), extra=["--worker-number", str(number)])
    return cluster


def workers_are_started_by_hand_and_one_more_joins():
    cluster = by_hand((2, 0, 1), 4000)
    cluster.run.wait_for_step(2)
    late = cluster.start_worker(cluster.endpoint())  # under a number that is taken
    comes_back = "joining again without the parameter server"
    cluster.wait_for(lambda: comes_back in late.output(), f"does not say: {comes_back}")
    cluster.wait_for(lambda: cluster.run.last_members() == 4, "there are never four")
    cluster.coordinators[0].signal(signal.SIGTERM)
    code = cluster.wait_for_end(cluster.coordinators[0], "the job does not end")
    expect(code == 3, cluster.logs())
    cluster.stop_hard()
    cluster.run.remove()


def a_missing_number_is_named():
    cluster = by_hand((0, 1, 1))
    code = cluster.wait_for_end(cluster.coordinators[0], "the job does not end")
    expect(code == 1, cluster.logs())
    texts = [e["detail"] for e in cluster.run.lines("events.jsonl") if e["kind"] == "fatal"]
    expect(texts and "--worker-number" in texts[0], f"said: {texts}")
    cluster.stop_hard()
    cluster.run.remove()


def a_stopped_job_goes_on():
    _, samples = dedicated()
    run = Run(COLOCATED + ["--sync", "asp", "--workers", "2"] + lingering(15))
    run.wait_for_step(15)
    answer = run.command("stop")
    expect(answer.returncode == 0, answer.stderr)
    expect(run.wait() == 3, run.logs())
    first = run.metrics()
    again = Run(COLOCATED + ["--sync", "asp", "--workers", "3", "--resume", run.run_dir])
    _, hashed, _ = finish(again)
    total = [(a + b) % 2**32 for a, b in zip(sample_hash(first), hashed)]
    expect(total == samples, "samples were lost or repeated between the two parts")
    run.remove()


def ranks_of_mpirun_carry_one_each():
    mpi_launch.skip_without_mpirun()
    run = mpi_launch.start(3, COLOCATED + ["--sync", "bsp", "--ps-replicas", "1"] +
                           lingering(10))
    run.wait_for_step(10)
    mpi_launch.kill_rank(run, 1)
    run.wait()
    expect(len(events(run, "shard_taken_over")) == 1, run.logs())
    bits, samples = dedicated()
    expect(sample_hash(run.metrics()) == samples, f"samples lost or repeated\n{run.logs()}")
    done = [e["detail"] for e in events(run, "shard_done")]
    if all(" 0 mixed" in text for text in done):
        expect(run.summary()["final_digest"] == bits, "other bits than with servers of their own")
    run.remove()


def fewer_workers_than_servers_cannot_stay():
    run = Run(with_steps(COLOCATED, 4000) + ["--sync", "bsp", "--workers", "2"])
    run.wait_for_step(2)
    answer = run.command("scale", "1")
    expect(answer.returncode != 0 and "run the parameter servers" in answer.stderr,
           f"{answer.returncode}: {answer.stdout}{answer.stderr}")
    run.remove()


def bad_combinations_are_refused():
    for args, text in ((["--ps", "colocated", "--workers", "2"], "needs --sync or --phases"),
                       (["--ps", "collocated", "--sync", "bsp"], "a number of servers, or coloc"),
                       (["--ps", "colocated", "--sync", "bsp", "--ps-replicas", "1"],
                        "at least two servers (workers 1)"),
                       (["--ps", "colocated", "--sync", "backup:1-of-2", "--workers", "2"],
                        "one shard"),
                       (["--ps", "colocated", "--sync", "bsp", "--workers", "2", "--spares", "1"],
                        "spares are for all-reduce")):
        run = Run(JOB + args)
        expect(run.wait() == 2, f"{args}: not refused")
        said = run.output().strip()
        expect(text in said and "\n" not in said, f"{args}: said {said}")
        expect(not os.path.exists(run.path("events.jsonl")), f"{args}: something was started")
        run.remove()


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        bsp_has_the_bits_of_servers_of_their_own, every_policy_uses_every_sample_once,
        a_worker_is_lost_with_its_server_and_nothing_else_is, a_worker_may_be_asked_to_leave,
        a_lost_worker_ends_the_job_without_followers,
        a_stopped_worker_comes_back_without_its_server,
        workers_are_started_by_hand_and_one_more_joins, a_missing_number_is_named,
        a_stopped_job_goes_on, ranks_of_mpirun_carry_one_each,
        fewer_workers_than_servers_cannot_stay, bad_combinations_are_refused)}))
