"""`mayfly compare`, `mayfly tune-switch` and `mayfly bench ps`, as a user runs them, with as little
work as possible."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "harness"))
from mayfly_run import BINARY, expect, main  # noqa: E402

TINY = ["--quick", "--data", "procedural:256", "--steps", "12", "--global-batch", "16",
        "--workers", "2", "--variants", "allreduce asp",
        "--conditions", "clean kill", "--inject", "slow=2x,worker=1"]


def command(folder, *args):
    return [BINARY, "compare", "--output", folder] + TINY + list(args)


def run(folder, *args):
    return subprocess.run(command(folder, *args), capture_output=True, text=True, timeout=240)


def results(folder):
    with open(os.path.join(folder, "results.jsonl")) as f:
        return [json.loads(line) for line in f]


def report(folder):
    """The numbers that the page of a comparison draws."""
    with open(os.path.join(folder, "report.html")) as f:
        page = f.read()
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


def compare_ends_with_charts():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    out = os.path.join(folder, "comparison")
    done = run(out, "--spot-price", "0.3")
    expect(done.returncode == 0, done.stderr)
    found = results(out)
    expect(len(found) == 4, f"{len(found)} results")
    expect(all(r["outcome"] == "done" and r["samples"] == 12 * 16 for r in found),
           "not the same budget everywhere")
    expect(all(r["accuracy"] and r["loss"] and r["bytes"] > 0 for r in found), f"{found}")
    kinds = {(r["variant"], r["condition"]): r for r in found}
    expect(sum(kinds[("asp", "clean")]["staleness"].values()) == 24, "not every update counted")
    expect(len(kinds[("allreduce", "kill")]["recoveries_ms"]) == 1, "no recovery on record")
    page = report(out)
    expect("mayfly compare --output " in page["command"] and " --variants '" in page["command"],
           page["command"])
    lines = {chart["title"]: chart["series"] for chart in page["line_charts"]}
    expect(all(series["lines"][0] for condition in ("clean", "kill")
               for series in lines["Test accuracy, " + condition]), f"{lines}")
    stale = [series["name"] for series in lines["Staleness, clean"] if series["lines"][0]]
    expect(stale == ["asp"], f"{lines}")
    bars = {chart["title"]: chart["groups"] for chart in page["bar_charts"]}
    expect(all(bar["value"] > 0 for group in bars["Training speed"] for bar in group["bars"]),
           f"{bars}")
    expect("condition" in done.stdout and "asp" in done.stdout, done.stdout)
    expect(all(r["worker_seconds"] > r["train_seconds"] for r in found), f"{found}")
    expect("cost, spot" in done.stdout and "on demand" not in done.stdout, done.stdout)
    shutil.rmtree(folder)


def an_interrupted_comparison_goes_on():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    out = os.path.join(folder, "comparison")
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (os.path.exists(os.path.join(out, "results.jsonl")) and results(out)):
        expect(time.monotonic() < deadline and process.poll() is None, "no first result")
        time.sleep(0.02)
    process.kill()
    process.wait()
    first = results(out)
    done = run(out)
    expect(done.returncode == 0, done.stderr)
    expect(results(out)[:len(first)] == first and len(results(out)) == 4, "a run was made again")
    again = run(out)
    expect(again.returncode == 0 and again.stderr == "", f"ran something again: {again.stderr}")
    other = run(out, "--lr", "0.01")
    expect(other.returncode == 2 and "lr" in other.stderr, other.stderr)
    shutil.rmtree(folder)


def tuning(out, *args):
    return [BINARY, "tune-switch", "--output", out, "--quick", "--data", "procedural:256",
            "--steps", "8", "--global-batch", "16", "--workers", "2", "--runs", "2", "--probes",
            "2", "--tolerance", "0.9"] + list(args)


def tune_switch_searches_and_goes_on():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    out = os.path.join(folder, "search")
    process = subprocess.Popen(tuning(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (os.path.exists(os.path.join(out, "results.jsonl")) and results(out)):
        expect(time.monotonic() < deadline and process.poll() is None, "no first result")
        time.sleep(0.02)
    process.kill()
    process.wait()
    first = results(out)
    done = subprocess.run(tuning(out), capture_output=True, text=True, timeout=240)
    expect(done.returncode == 0, done.stderr)
    found = results(out)
    expect(found[:len(first)] == first, "a run was made again")
    expect([(r["variant"], r["seed"]) for r in found] ==
           [(v, s) for v in ("bsp", "bsp:4steps,asp", "bsp:2steps,asp") for s in (1, 2)],
           f"{[(r['variant'], r['seed']) for r in found]}")
    expect("Switch after 25 %" in done.stdout and '"bsp:2steps,asp"' in done.stdout, done.stdout)
    charts = report(out)["line_charts"]
    expect(len(charts) == 2 and all(len(c["series"][0]["lines"][0]) == 3 for c in charts),
           f"{charts}")
    stricter = subprocess.run(tuning(out, "--json", "--probes", "1"), capture_output=True,
                              text=True, timeout=240)
    expect(stricter.returncode == 0 and stricter.stderr == "", f"ran again: {stricter.stderr}")
    expect(json.loads(stricter.stdout)["phases"] == "bsp:4steps,asp", stricter.stdout)
    for args, text in ((["--then", "fast"], "fast"), (["--no-evaluate"], "evaluate"),
                       (["--lr", "0.01"], "lr")):
        other = subprocess.run(tuning(out, *args), capture_output=True, text=True, timeout=60)
        expect(other.returncode == 2 and text in other.stderr, f"{args}: {other.stderr}")
    shutil.rmtree(folder)


def bench_ps_measures():
    done = subprocess.run([BINARY, "bench", "ps", "--sizes", "64K,1M", "--workers", "2", "--shards",
                           "2", "--rounds", "1", "--gigabytes", "0.01", "--json"],
                          capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    summaries = [line for line in lines if line["kind"] == "summary"]
    expect([s["bytes"] for s in summaries] == [65536, 1048576], f"{lines}")
    expect(all(s["cpu_ratio"] > 0 and s["mayfly_gb_per_second"] > 0 for s in summaries), f"{lines}")
    path = {line["contestant"]: line["shared"] for line in lines if line["kind"] == "exchange"}
    expect(path["mayfly"] > 0.5 and path["mayfly-sockets"] == 0, f"{path}")
    switches = [line for line in lines if line["kind"] == "switch"]
    expect(len(switches) == 2 and all(s["bsp_to_asp_ms"] > 0 for s in switches), f"{lines}")


if __name__ == "__main__":
    sys.exit(main({f.__name__: f for f in (
        compare_ends_with_charts, an_interrupted_comparison_goes_on,
        tune_switch_searches_and_goes_on, bench_ps_measures)}))
