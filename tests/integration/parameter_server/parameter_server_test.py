"""Jobs with parameter servers, as a user runs them: every policy to its end, the bits of BSP,
deaths of workers and servers, joins, stops."""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "harness"))
from cluster import Cluster  # noqa: E402
from mayfly_run import (SMALL_JOB, Run, expect, expect_refused, kill, lingering,  # noqa: E402
                        main)
from oracle import Oracle  # noqa: E402
from sample_ledger import sample_hash  # noqa: E402

STEPS = 60
JOB = SMALL_JOB + ["--threads", "1", "--steps", str(STEPS), "--quiet"]


def events(run, kind):
    return [e for e in run.lines("events.jsonl") if e["kind"] == kind]


def finish(run):
    """Waits for the end; returns the summary, the samples' hash and the reports of the shards."""
    summary = run.finish()
    expect(summary["steps"] == STEPS, f"{summary['steps']} steps, not {STEPS}")
    done = [e["detail"] for e in events(run, "shard_done")]
    result = summary, sample_hash(run.metrics()), done
    run.remove()
    return result


def reference():
    """The result of all-reduce with one worker, which has the bits of BSP in one slice and the
    samples of every policy."""
    alone = Oracle(JOB + ["--reduction", "fp32", "--workers", "1"])
    return alone.summary["final_digest"], sample_hash(alone.metrics)


def three_slices():
    """The bits of BSP in three slices."""
    alone = Oracle(JOB + ["--sync", "bsp", "--slices", "3", "--workers", "1"])
    return alone.summary["final_digest"]


def servers_pids(run):
    """The pids of the launcher's living parameter servers, by their number."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
            with open(f"/proc/{entry}/comm") as f:
                comm = f.read()
        except (OSError, NotADirectoryError):
            continue
        ours = "ps-server" in words and run.run_dir + "/config.toml" in words
        if ours and "sentinel" not in comm:
            found[int(words[words.index("--ps-index") + 1])] = int(entry)
    return found


def bsp_has_the_bits_of_all_reduce():
    digest, samples = reference()
    for args in (["--workers", "1", "--slices", "1"],
                 ["--workers", "2", "--slices", "1", "--ps", "2", "--shards", "2", "--ps-hashes"]):
        summary, hashed, done = finish(Run(JOB + ["--sync", "bsp"] + args))
        expect(summary["final_digest"] == digest, f"{args}: other bits than all-reduce")
        expect(hashed == samples, f"{args}: other samples")
        for text in done:
            numbers = {words: int(count) for count, words in
                       (part.split(" ", 1) for part in text.split(": ", 1)[1].split(", "))
                       if count.isdigit()}
            expect(numbers["in shared memory"] > numbers["bytes in"], f"{args}: sockets: {text}")


def bsp_does_not_depend_on_workers():
    found = set()
    for workers, servers in ((1, 1), (2, 1), (3, 2)):
        summary, _, _ = finish(Run(JOB + ["--sync", "bsp", "--slices", "3", "--workers",
                                          str(workers), "--ps", str(servers)]))
        found.add(summary["final_digest"])
    expect(len(found) == 1, f"{len(found)} different ends of the same job")


def every_policy_uses_every_sample_once():
    _, samples = reference()
    for sync in ("asp", "ssp:1", "backup:2-of-3"):
        summary, hashed, done = finish(Run(JOB + ["--sync", sync, "--workers", "3"]))
        expect(hashed == samples, f"{sync}: not the samples of {STEPS} steps, each once")
        expect(summary["membership_changes"] == 0, f"{sync}: somebody was lost")
        expect(len(done) == 1, f"{sync}: {len(done)} shards gave an account")


def phases_follow_each_other():
    _, samples = reference()
    run = Run([word for word in JOB if word != "--no-evaluate"] +
              ["--phases", "bsp:25%,asp:50%,bsp", "--workers", "3", "--shards", "2",
               "--checkpoint-every", "20"])
    run.wait()
    states = [e["step"] for e in events(run, "state")]
    expect(states == [20, 40, 60], f"states recorded after steps {states}")
    summary, hashed, _ = finish(run)
    expect(hashed == samples, "not every sample once")
    expect(summary["test_top1"] is not None, "no evaluation at the end")


def a_switch_from_bsp_to_bsp_changes_nothing():
    ends = {finish(Run(JOB + ["--phases", phases, "--workers", "2"]))[0]["final_digest"]
            for phases in ("bsp", "bsp:40%,bsp")}
    expect(len(ends) == 1, "a switch between equal phases changed the bits")


def lose_and_join(sync, shards):
    run = Run(JOB + ["--sync", sync, "--workers", "3", "--slices", "3", "--shards", shards,
                     "--chaos", "kill@step=10:worker=1,join@step=20,kill@step=35:worker=0"])
    return finish(run)


def workers_die_and_come():
    _, samples = reference()
    bits = three_slices()
    for sync, shards in (("bsp", "2"), ("bsp", "1"), ("asp", "2"), ("ssp:1", "1")):
        summary, hashed, done = lose_and_join(sync, shards)
        expect(hashed == samples, f"{sync}: samples lost or repeated; {done}")
        lost = [r for r in summary["recoveries"] if r["cause"] == "lost"]
        expect(len(lost) == 2, f"{sync}: {len(lost)} workers were lost")
        if sync == "bsp" and all(" 0 mixed" in text for text in done):
            expect(summary["final_digest"] == bits, "bsp: deaths changed the bits")


def lose_one_server_of(workers, servers, more=()):
    """Kills a server. The job must fail, and report the number of lost updates and the step of the
    last checkpoint. Returns that step."""
    run = Run(JOB + ["--sync", "bsp", "--workers", workers, "--ps", servers, *more] + lingering(15))
    run.wait_for_step(15)
    kill(servers_pids(run)[int(servers) - 1])
    started = time.monotonic()
    code = run.wait()
    expect(code == 1, f"exit code {code}\n{run.logs()}")
    expect(time.monotonic() - started < 60, "the job did not end soon")
    texts = [e["detail"] for e in events(run, "fatal")]
    expect(len(texts) >= 1 and f"1 of {servers} parameter servers is lost" in texts[0],
           f"said: {texts}")
    updates = int(texts[0].split("with it ")[1].split()[0])
    since = int(texts[0].split("since step ")[1].split(";")[0])
    steps = run.last_step()
    expect(steps - 1 <= since + updates <= steps + 1, f"{texts}, but {steps} steps on record")
    run.remove()
    return since


def a_lost_server_ends_the_job_with_the_number_of_updates():
    expect(lose_one_server_of(workers="2", servers="2") == 0, "no checkpoint was written")
    since = lose_one_server_of(workers="2", servers="2",
                               more=["--checkpoint-every", "10", "--eval-every-epochs", "0.1"])
    expect(since % 10 == 0 and since > 0, f"step {since} has an evaluation and no checkpoint")


def a_lost_server_of_one_worker_ends_the_job_likewise():
    lose_one_server_of(workers="1", servers="1")


def a_stopped_job_goes_on():
    _, samples = reference()
    run = Run(JOB + ["--sync", "asp", "--workers", "2"] + lingering(15))
    run.wait_for_step(15)
    answer = run.command("stop")
    expect(answer.returncode == 0, answer.stderr)
    code = run.wait()
    expect(code == 3, f"exit code {code}\n{run.logs()}")
    first = run.metrics()
    saved = run.path("checkpoints", f"step-{first[-1]['step']}")
    expect(os.path.isdir(saved), f"no {saved}")
    again = Run(JOB + ["--sync", "bsp", "--workers", "2", "--resume", run.run_dir])
    _, hashed, _ = finish(again)
    total = [(a + b) % 2**32 for a, b in zip(sample_hash(first), hashed)]
    expect(total == samples, "samples were lost or repeated between the two parts")
    run.remove()


def only_the_coordinator_resumes():
    """Servers and workers have directories of their own, as on several hosts. The coordinator sends
    them the state from which the job is resumed; it ends with the bits of an unstopped job."""
    digest, _ = reference()
    sync = ["--sync", "bsp", "--slices", "1"]
    first = Run(JOB + sync + ["--workers", "2"] + lingering(15))
    first.wait_for_step(15)
    expect(first.command("stop").returncode == 0 and first.wait() == 3, first.logs())
    for servers in (["--ps", "2"], ["--ps", "colocated"]):
        cluster = Cluster(tempfile.mkdtemp(prefix="mayfly-test-"), JOB + sync + servers)
        cluster.start_coordinator(2, extra=["--resume", first.run_dir])
        for number in (0, 1):
            if servers[1] == "2":
                cluster.start_server(cluster.endpoint(), number)
            cluster.start_worker(cluster.endpoint(), extra=["--worker-number", str(number)])
        code = cluster.wait_for_end(cluster.coordinators[0], "the job does not end")
        expect(code == 0, cluster.logs())
        summary = cluster.run.summary()
        expect(summary["final_digest"] == digest, f"{servers}: {summary}\n{cluster.logs()}")
        cluster.stop_hard()
        cluster.run.remove()
    first.remove()


def bad_settings_are_refused():
    expect_refused(JOB, ((["--sync", "asap"], "is not bsp, asp"),
                         (["--sync", "backup:2-of-3", "--ps", "2"], "one shard"),
                         (["--sync", "asp", "--slices", "9"], "microbatches"),
                         (["--phases", "bsp,asp"], "has no length"),
                         (["--sync", "asp", "--wire", "int16"], "all-reduce")))


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        bsp_has_the_bits_of_all_reduce, bsp_does_not_depend_on_workers,
        every_policy_uses_every_sample_once, phases_follow_each_other,
        a_switch_from_bsp_to_bsp_changes_nothing, workers_die_and_come,
        a_lost_server_ends_the_job_with_the_number_of_updates,
        a_lost_server_of_one_worker_ends_the_job_likewise, a_stopped_job_goes_on,
        only_the_coordinator_resumes, bad_settings_are_refused)}))
