"""Goal: `mayfly plan fit` makes a calibration from run directories that predicts these runs;
`mayfly plan check` compares a run with a prediction, made now or when the run was planned; `mayfly
status` predicts the rest of a job.
Method: small jobs of local workers, one of which is killed; the tables are compared with the
records, and predictions with the tables. The speed of a busy machine varies, so predictions only
need to be of the right order of magnitude.
"""
import csv
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import mayfly_run
from mayfly_run import SMALL_JOB, expect

JOB = SMALL_JOB + ["--workers", "2", "--steps", "60", "--price-per-hour", "0.36",
                   "--checkpoint-every", "10", "--no-rebalance", "--chaos",
                   "kill@step=30:worker=1"]
HOST = socket.gethostname().replace(" ", "-")
NEAR = 20  # times: other jobs may slow down one half of the run only


def plan(*args, text=""):
    return subprocess.run([mayfly_run.BINARY, "plan", *map(str, args)], input=text,
                          capture_output=True, text=True, timeout=120)


def rows_of(folder, table):
    with open(folder / table, newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def predict(folder, **query):
    done = plan("predict", "--calibration", folder, text=json.dumps(query) + "\n")
    expect(done.returncode == 0 and not done.stderr, done.stderr)
    answer = json.loads(done.stdout)
    expect("median" in answer, f"{query}: {answer}")
    expect(answer["low"] <= answer["median"] <= answer["high"], f"no interval: {answer}")
    return answer["median"]


def near(value, truth, what):
    expect(truth / NEAR < value < truth * NEAR, f"{what}: {value} instead of about {truth}")


def predicts(folder):
    run = mayfly_run.Run(JOB)
    run.finish()
    made = folder / "made"
    done = plan("fit", run.run_dir, "-o", made)
    expect(done.returncode == 0 and not done.stderr, done.stderr)
    expect(sorted(path.name for path in folder.iterdir()) == ["made"], "parts are left")
    expect(run.run_dir in (made / "README.md").read_text(), "the run is not named")
    speeds = {int(row["workers"]): float(row["steps_per_s"])
              for row in rows_of(made, "cluster_speed.csv")}
    expect(sorted(speeds) == [1, 2], f"speeds of {speeds}")
    # This process may use as many cores as the workers that it started.
    cores = len(os.sched_getaffinity(0))
    expect({line.get("cores") for line in run.lines("members.jsonl")} - {None} == {cores},
           f"{run.lines('members.jsonl')[-1]} for {cores} cores")
    expect({int(row["cores"]) for row in rows_of(made, "cluster_speed.csv")} == {cores},
           "the cores that the workers shared are not in the table")
    for workers, speed in speeds.items():
        own = [m["images_per_second"] / 16 for m in run.metrics()
               if m["members"] == workers and m["images_per_second"] > 0]
        expect(min(own) <= speed <= max(own), f"{workers} workers: {speed} is of no step")
        near(predict(made, quantity="cluster_speed", gpu=HOST, workers=workers, model="resnet20"),
             speed, f"speed of {workers}")
    near(predict(made, quantity="step_time", gpu=HOST, model="resnet20"), 1 / speeds[1], "step")
    [recovery] = [event["recovery"] for event in run.events("recovery")
                  if event["recovery"]["cause"] == "lost"]
    near(predict(made, quantity="recovery_time", model="resnet20"), recovery["synced_ms"] / 1000,
         "recovery")
    ends = [row["ended_by"] for row in rows_of(made, "lifetime_servers.csv")]
    expect(sorted(ends) == ["revoked", "stopped"], f"lives ended by {ends}")
    noticed(run, folder)
    for row in rows_of(made, "checkpoint.csv"):
        expect(1 < float(row["weights_mb"]) < 5, f"bytes of {row}")
    predict(made, quantity="checkpoint_time", model="resnet20")
    predict(made, quantity="join_time", model="resnet20")
    cost = predict(made, quantity="job_cost", cluster=f"2x{HOST}", model="resnet20", steps=1000,
                   market="on_demand", duration_s=3600)
    expect(abs(cost - 0.72) < 0.001, f"an hour of two workers costs {cost}")
    planned = plan("--calibration", made, "--network", "resnet20", "--parameter-servers", 0,
                   "--steps", 1000, "--deadline", "1000h", "--max-workers", 2)
    expect(planned.returncode == 0 and not planned.stderr, planned.stderr + planned.stdout)
    checks(run, made)
    run.remove()


def noticed(run, folder):
    """If a worker leaves after a notice, the calibration counts its server as lost."""
    left = folder / "left"
    shutil.copytree(run.run_dir, left)
    lines = [json.loads(line) for line in (left / "events.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "lost":
            line.update(kind="left", detail="notice: the server goes")
    (left / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = plan("fit", left, "-o", folder / "left-made")
    expect(done.returncode == 0, done.stderr)
    ends = [row["ended_by"] for row in rows_of(folder / "left-made", "lifetime_servers.csv")]
    expect(sorted(ends) == ["revoked", "stopped"], f"lives ended by {ends}")


def checks(run, made):
    """`mayfly plan check` of the run that the calibration was fitted to."""
    done = plan("check", run.run_dir, "--calibration", made, "--json")
    expect(done.returncode == 0 and not done.stderr, done.stderr)
    check = json.loads(done.stdout)
    apart = check["actual_s"] - check["planned_s"]
    expect(abs(sum(cause["seconds"] for cause in check["causes"]) - apart) < 1e-6,
           f"the causes do not add up to {apart}: {check['causes']}")
    expect(check["causes"][0]["cause"] in check["conclusion"], check["conclusion"])
    compared = {one["name"] for one in check["quantities"] if "inside" in one}
    expect({"speed of 1 worker", "speed of 2 workers", "time lost by a loss", "checkpoint",
            "total time without losses", "cost without losses"} <= compared, f"only {compared}")
    text = plan("check", run.run_dir, "--calibration", made).stdout
    expect(check["conclusion"] in text and "speed of 2 workers" in text, text)
    for args, words in (((made,), "is not a run directory"),
                        ((run.run_dir,), "keeps no plan: start jobs from")):
        done = plan("check", *args)
        said = done.stderr.splitlines()
        expect(done.returncode == 2 and len(said) == 1 and words in said[0], f"{args}: {said}")


def coordinator(job, run_dir, *args):
    return subprocess.run([mayfly_run.BINARY, "coordinator", "--config", job, "--run-dir", run_dir,
                           "--threads", "1", "--bind-host", "127.0.0.1", *map(str, args)],
                          capture_output=True, text=True, timeout=240)


def kept(folder):
    """A job that is started from a plan keeps the plan, and `plan check` compares the job with
    it."""
    measured = mayfly_run.Run(SMALL_JOB + ["--workers", "1", "--steps", "30", "--price-per-hour",
                                           "0.36", "--checkpoint-every", "10"])
    measured.finish()
    made, job, run_dir = folder / "made", folder / "job.toml", folder / "run"
    done = plan("fit", measured.run_dir, "-o", made)
    expect(done.returncode == 0, done.stderr)
    settings = folder / "settings.toml"
    settings.write_text("global_batch = 16\nmicrobatch = 4\ndata = \"procedural:512\"\n"
                        "evaluate = false\nlr = 0.05\nsilence_max_ms = 2000.0\n")
    done = plan("--calibration", made, "--network", "resnet20", "--parameter-servers", 0,
                "--config", settings, "--steps", 40, "--deadline", "1000h", "--max-workers", 1,
                "--cloud-provider", "local", "--write", job)
    expect(done.returncode == 0, done.stderr)
    expect('plan = "job.plan.json"' in job.read_text(), "the job file does not name its plan")
    kept_plan = (folder / "job.plan.json").read_text()

    damaged = folder / "damaged"
    damaged.mkdir()
    shutil.copy(job, damaged)
    for text, words in ((None, "no such file"), (kept_plan.replace("1 x", "9 x"), "was changed")):
        if text:
            (damaged / "job.plan.json").write_text(text)
        done = coordinator(damaged / job.name, run_dir)
        said = done.stderr.splitlines()
        expect(done.returncode == 2 and len(said) == 1 and words in said[0].lower(),
               f"exit code {done.returncode}, {said}")
        expect(not run_dir.exists() or not any(run_dir.iterdir()), "something is left")

    done = coordinator(job, run_dir)
    expect(done.returncode == 0, done.stdout + done.stderr)
    expect((run_dir / "plan.json").read_text() == kept_plan, "the run has another plan")
    said = [json.loads(line)["detail"] for line in (run_dir / "events.jsonl").open()
            if '"checkpoint_interval"' in line]
    minutes = re.search(r"^checkpoint_minutes = (.*)$", job.read_text(), re.MULTILINE)[1]
    expect(len(said) == 1 and said[0].startswith(f"a checkpoint every {float(minutes):.1f} min: ")
           and "by Daly's formula" in said[0], f"{minutes}: {said}")
    done = plan("check", run_dir, "--json")
    expect(done.returncode == 0 and not done.stderr, done.stderr)
    check = json.loads(done.stdout)
    planned = json.loads(kept_plan)
    expect(check["plan"] == planned["plan"] and "composition" not in check, check)
    apart = check["actual_s"] - check["planned_s"]
    expect(abs(sum(cause["seconds"] for cause in check["causes"]) - apart) < 1e-6, check["causes"])
    compared = {one["name"] for one in check["quantities"] if "inside" in one}
    expect({"speed of 1 worker", "total time", "cost", "servers lost"} <= compared, compared)
    text = plan("check", run_dir).stdout
    expect("started from a plan: " + planned["plan"] in text and "total time" in text, text)
    done = plan("check", run_dir, "--calibration", made)
    expect(done.returncode == 0 and "in hindsight" in done.stdout, done.stdout + done.stderr)

    job.write_text(job.read_text().replace("steps = 40", "steps = 60"))
    (folder / "job.plan.json").unlink()
    done = coordinator(job, run_dir, "--resume", run_dir)
    expect(done.returncode == 0, done.stdout + done.stderr)
    expect((run_dir / "plan.json").read_text() == kept_plan, "the plan was not kept")
    done = plan("check", run_dir)
    expect(done.returncode == 0 and "did not run" in done.stdout, done.stdout + done.stderr)
    measured.remove()


def left(_folder):
    """`mayfly status` predicts the rest of a job from its records."""
    run = mayfly_run.Run(SMALL_JOB + ["--workers", "2", "--steps", "100000", "--price-per-hour",
                                      "0.36"])
    run.wait_for_step(80)
    endpoint = pathlib.Path(run.path("coordinator")).read_text().strip()
    for args in ([run.run_dir], [endpoint, "--token-file", run.path("token")]):
        done = subprocess.run([mayfly_run.BINARY, "status", *args, "--json"], capture_output=True,
                              text=True, timeout=30)
        expect(done.returncode == 0, done.stderr)
        status = json.loads(done.stdout)
        rest = status["remaining"]
        expect(rest["steps"] == 100000 - status["committed"], rest)
        seconds, cost = rest["time_s"], rest["cost"]
        expect(0 <= seconds["low"] < seconds["median"] < seconds["high"], rest)
        expect(abs(cost["median"] - seconds["median"] * 2 * 0.36 / 3600) < 1e-6, rest)
        expect("2 members; no plan" in rest["rests_on"] and rest["losses"] == 0, rest)
    text = run.command("status").stdout
    expect("time_left" in text and "cost_left" in text, text)
    run.command("stop")
    run.wait()
    run.remove()


def refused(folder):
    run = mayfly_run.Run(SMALL_JOB + ["--workers", "1", "--steps", "12"])
    run.finish()
    full = folder / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    target = folder / "target"
    before = sorted(path.name for path in folder.iterdir())
    for args, words in (
            ((run.run_dir,), "needs -o DIR"),
            (("-o", target), "expects run directories"),
            ((full, "-o", target), f"{full} is not a run directory"),
            ((run.run_dir, folder / "nowhere", "-o", target), "there is no run directory"),
            ((run.run_dir, "-o", full), "is no empty folder")):
        done = plan("fit", *args)
        said = done.stderr.splitlines()
        expect(done.returncode == 2 and len(said) == 1 and words in said[0] and not done.stdout,
               f"{args}: exit code {done.returncode}, {said} instead of '{words}'")
    expect(before == sorted(path.name for path in folder.iterdir()), "something was written")
    run.remove()


def in_a_folder(test):
    def run():
        with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
            test(pathlib.Path(folder))
    return run


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({test.__name__: in_a_folder(test)
                                      for test in (predicts, kept, left, refused)}))
