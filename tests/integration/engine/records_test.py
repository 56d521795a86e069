"""Goal: the records of a job have one time axis, which continues when its coordinator is restarted.
They contain the end of each member and the cost of the job.
Method: a real job of workers with a price, one of which is killed; another one whose coordinator is
killed and started again while its workers go on.
"""
import os
import subprocess
import tempfile
import time

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, kill, lingering

EVALUATED = [word for word in SMALL_JOB if word != "--no-evaluate"]
PRICE = 36.0  # per hour of a worker, which is a cent a second


def expect_one_axis(run):
    """Expects that every line has a time, and that the times of events, and those of the steps of
    one view, never decrease."""
    for name in ("events.jsonl", "metrics.jsonl", "members.jsonl"):
        lines = run.lines(name)
        expect(lines and all("t" in line for line in lines), f"a line of {name} has no time")
    times = [event["t"] for event in run.lines("events.jsonl")]
    expect(times == sorted(times), "times of events decrease")
    steps = run.metrics()
    for before, after in zip(steps, steps[1:]):
        expect(before["view"] != after["view"] or before["t"] < after["t"],
               f"step {after['step']} is before the one before it")
    return steps


def seconds_of_recoveries(run):
    """The total time of all recoveries. On a busy machine there may be more recoveries than the
    test has caused."""
    facts = [event["recovery"] for event in run.events("recovery")]
    seconds, until = 0, 0
    for begin, end in sorted((one["detected"], one["detected"] + one["step_ms"] / 1000)
                             for one in facts if "detected" in one):
        seconds += max(0, end - max(begin, until))
        until = max(until, end)
    return seconds


def members_and_money():
    run = Run(EVALUATED + ["--workers", "3", "--threads", "1", "--steps", "60",
                           "--price-per-hour", str(PRICE), "--checkpoint-every", "20"]
              + lingering(20, 40))
    run.wait_for_step(20)
    status = run.command("status").stdout
    expect("cost_per_hour     108" in status, status)
    kill(run.worker_pids()[0])
    summary = run.finish()
    steps = expect_one_axis(run)
    recovery = next(event for event in run.events("recovery")
                    if event["recovery"]["cause"] == "lost")
    facts = recovery["recovery"]
    first = next(step for step in steps if step["view"] == facts["view"])
    expect(abs(facts["detected"] + facts["step_ms"] / 1000 - first["t"]) < 0.1,
           f"detected at {facts['detected']}, its step at {first['t']}")
    lost = [line for line in run.lines("members.jsonl") if line["phase"] == "lost"]
    expect(len({line["member"] for line in lost}) == 1 and lost[0]["detail"], lost)
    last = {line["member"]: line for line in run.lines("members.jsonl")}
    expect(all(line["cpu_seconds"] > 0 and line["memory_mib"] > 1 for line in last.values()
               if line["t"] - line["joined"] > 3), f"{last}")
    samples = sum(line["samples"] for line in last.values())
    expect(abs(samples - summary["samples"]) <= len(last), f"{samples} of {summary['samples']}")
    expect({line["phase"] for line in last.values()} <= {"lost", "left", "ended"},
           last)
    # The cost: each member is charged from its connection to its end.
    begun, bill = {}, 0
    for event in run.lines("events.jsonl"):
        if event["kind"] == "connected":
            begun[event["member"]] = event["t"]
        elif event["kind"] in ("lost", "left", "disconnected") and event.get("member") in begun:
            bill += PRICE / 3600 * (event["t"] - begun.pop(event["member"]))
    costs = [event["spent"] for event in run.lines("events.jsonl") if "spent" in event]
    expect(costs == sorted(costs) and costs[-1] == summary["cost"], costs)
    expect(abs(bill - summary["cost"]) < 0.005, f"{summary['cost']} instead of {bill}")
    expect(f"cost          {summary['cost']:.4f}" in run.output(), run.output())
    lost_seconds = summary["lost_seconds"]
    expect(abs(lost_seconds["recoveries"] - seconds_of_recoveries(run)) < 0.05, lost_seconds)
    expect(lost_seconds["evaluations"] > 0 and lost_seconds["checkpoints"] > 0, lost_seconds)
    run.remove()


def restarted():
    """Steps committed while there was no coordinator are recorded with the times of the commits."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir, token = os.path.join(folder, "run"), os.path.join(folder, "token")
    subprocess.run([mayfly_run.BINARY, "token", token], check=True)
    job = ["--run-dir", run_dir, "--token-file", token, "--price-per-hour", str(PRICE),
           "--bind-host", "127.0.0.1", "--workers", "2", "--steps", "240",
           "--inject", "slow=4x"] + SMALL_JOB

    def start(*words):
        with open(os.path.join(folder, "output.txt"), "ab") as output:
            return subprocess.Popen([mayfly_run.BINARY, *words], stdout=output,
                                    stderr=subprocess.STDOUT)

    coordinator = start("coordinator", *job)
    run = Run.attach(folder, coordinator, 200)
    run.wait_for("the coordinator", lambda: os.path.exists(run.path("coordinator")))
    with open(run.path("coordinator")) as file:
        endpoint = file.read().strip()
    workers = [start("worker", "--coordinator", endpoint, "--token-file", token, "--threads", "1")
               for _ in range(2)]
    run.wait_for_step(20)
    kill(coordinator.pid)
    coordinator.wait()
    time.sleep(2)
    again = start("coordinator", "--run-dir", run_dir)
    run = Run.attach(folder, again, 200)
    summary = run.finish()
    expect(all(worker.wait(60) == 0 for worker in workers), "a worker failed")
    steps = expect_one_axis(run)
    restart = run.events("coordinator_restarted")[0]["t"]
    before = max(event["t"] for event in run.lines("events.jsonl") if event["t"] < restart)
    away = [step for step in steps if before + 0.5 < step["t"] < restart - 0.1]
    expect(len(away) > 5, f"{len(away)} steps between {before} and {restart}")
    gaps = [b["t"] - a["t"] for a, b in zip(steps, steps[1:])]
    expect(max(gaps) < 1, f"a step of {max(gaps)} s: its time is that of its report")
    end = run.lines("events.jsonl")[-1]["t"]
    expect(summary["cost"] > 2 * PRICE / 3600 * (end - 5), "the time without it is not billed")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"members_and_money": members_and_money,
                                      "restarted": restarted}))
