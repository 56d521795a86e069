"""Goal: Prometheus' own programs can read /metrics. Its size does not grow with the events of a
job, and it has the series that the board and the alerts of examples/monitoring use.
Method: promtool checks the metrics of a run with a thousand losses; a real Prometheus server
scrapes a real job. Debian's package `prometheus` has both programs
(scripts/packages-monitoring.txt); without it the tests that need them are skipped.
"""
import atexit
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import mayfly_run
from live_test import Viewer, address_in
from mayfly_run import SKIP, SMALL_JOB, Run, expect, kill

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/monitoring")
START = 1_700_000_000
SERIES_MAX = 300
OPEN = "application/openmetrics-text; version=1.0.0"


def needs(program):
    if shutil.which(program) is None:
        print(f"SKIPPED: {program} is not installed (scripts/packages-monitoring.txt)")
        sys.exit(SKIP)


def write_run(folder, losses=1000):
    """Writes the records of a run with so many lost members, each replaced by a new member on a new
    server."""
    os.mkdir(folder)
    with open(os.path.join(folder, "config.toml"), "w") as file:
        file.write('model = "resnet20"\nworkers = 4\ncloud_budget = 100.0\n'
                   'data = "a \\" quoted name"\n')
    causes = ["lost", "group_failed", "corrupted", "join", "promote", "leave", "rebalance"]
    with open(os.path.join(folder, "events.jsonl"), "w") as events:
        def event(t, kind, **more):
            events.write(json.dumps({"time": START + t, "t": t, "kind": kind, **more}) + "\n")
        event(0, "started", metrics_bytes=0)
        event(1, "view", view=1, committed=0, members=[1, 2], hosts=["a", "b"])
        for i in range(losses):
            t, member, server = 2 + i, 3 + i, f"zone/w{i}"
            event(t, "server_requested", request=f"r{i}", detail="1 x t4 in zone (spot)")
            event(t, "server_granted", server=server, detail="t4 in zone (spot)", spent=i * 0.01,
                  per_hour=36, billing=1)
            event(t, "connected", member=member, detail=f"host{i}")
            event(t, "lost", member=member, detail="the worker's process died")
            event(t, "recovery", recovery={
                "cause": causes[i % 7], "members": [member], "step": i, "view": 2 + i,
                "redone_microbatches": 1, "detail": "", "detected": t, "told_ms": 1,
                "stopped_ms": 5, "formed_ms": 10, "synced_ms": 12, "step_ms": 50})
            event(t, "server_ended", server=server, detail="", cost=0.01)
            event(t, "checkpoint", step=i, detail="")
            event(t, "evaluation", step=i, test_top1=0.5, test_loss=1, ms=100)
    with open(os.path.join(folder, "metrics.jsonl"), "w") as metrics:
        for step in range(1, losses + 1):
            metrics.write(json.dumps({
                "step": step, "t": step + 1, "samples": 100, "epoch": step / 100, "loss": 1,
                "accuracy": 0.5, "learning_rate": 0.1, "images_per_second": 100,
                "data_wait_ms": 5, "members": 2, "view": 1}) + "\n")


class Served:
    def __init__(self, run_dir):
        self.process = subprocess.Popen([mayfly_run.BINARY, "dashboard", run_dir],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # in case the test fails
        address = self.process.stdout.readline().strip()
        self.place, self.key = re.fullmatch(r"http://([^/]+)/#key=(\w+)", address).groups()

    def metrics(self, accept="text/plain"):
        connection = http.client.HTTPConnection(self.place, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + self.key,
                                                       "Accept": accept})
        answer = connection.getresponse()
        return answer.getheader("Content-Type"), answer.read().decode()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def names_in(text):
    """The names of series in a text of metrics; in an expression, all words that may be names."""
    return set(re.findall(r"\bmayfly_[a-z_]+", text)) - {"mayfly_job_phase"}


def bounded():
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    write_run(folder + "/run")
    served = Served(folder + "/run")
    served.metrics()
    begin = time.monotonic()
    kind, text = served.metrics()
    took = time.monotonic() - begin
    series = [line for line in text.splitlines() if not line.startswith("#")]
    print(f"{len(series)} series, {len(text)} bytes, {1000 * took:.1f} ms")
    expect(len(series) <= SERIES_MAX, f"{len(series)} series")
    expect(len(text) <= 50_000, f"{len(text)} bytes")
    expect("version=0.0.4" in kind, kind)
    for words in ('mayfly_steps_total{run="run"} 1000', 'reason="lost"} 1000',
                  'mayfly_checkpoints_total{run="run"} 1000', 'outcome="granted"} 1000',
                  'data="a \\\\\\" quoted name"'):
        expect(words in text, f"no {words} in\n{text}")
    kind, text = served.metrics(OPEN)
    expect("openmetrics-text; version=1.0.0" in kind and text.endswith("# EOF\n"), kind)
    expect("# TYPE mayfly_steps counter" in text and "# UNIT mayfly_step_seconds seconds" in text,
           text)
    known = names_in("\n".join(series))
    with open(os.path.join(EXAMPLES, "grafana.json")) as file:
        board = json.load(file)
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    with open(os.path.join(EXAMPLES, "alerts.yml")) as file:
        asked.append(file.read())
    unknown = names_in("\n".join(asked)) - known
    expect(not unknown, f"the board or the alerts ask for {unknown}")
    served.stop()


def promtool():
    needs("promtool")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    write_run(folder + "/run", losses=20)
    served = Served(folder + "/run")
    _, text = served.metrics()
    served.stop()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True)
    expect(done.returncode == 0 and not done.stdout and not done.stderr,
           done.stdout + done.stderr)
    with open(os.path.join(folder, "mayfly.key"), "w") as file:
        file.write("key")
    for name in ("prometheus.yml", "alerts.yml", "alerts_test.yml"):
        shutil.copy(os.path.join(EXAMPLES, name), folder)
    for words in (["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"],
                  ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True)
        expect(done.returncode == 0, f"{words}: {done.stdout}{done.stderr}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def scraped():
    """Prometheus scrapes a job in which a worker is lost; each expression of the board can be
    evaluated, and those that need no provider have data."""
    needs("prometheus")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run = Run(SMALL_JOB + ["--workers", "2", "--threads", "1", "--steps", "3000", "--dashboard",
                           "0", "--price-per-hour", "36", "--checkpoint-every", "20",
                           "--inject", "slow=4x"])
    viewer = Viewer(address_in(run))
    with open(os.path.join(folder, "key"), "w") as file:
        file.write(viewer.key)
    with open(os.path.join(folder, "prometheus.yml"), "w") as file:
        json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [{
            "job_name": "mayfly",
            "authorization": {"credentials_file": os.path.join(folder, "key")},
            "static_configs": [{"targets": [f"{viewer.host}:{viewer.port}"]}]}]}, file)
    port = free_port()
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/db",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"], cwd=folder)
    atexit.register(server.kill)

    def query(expression):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/api/v1/query?" +
                               urllib.parse.urlencode({"query": expression}))
            answer = json.load(connection.getresponse())
        except OSError:
            return []
        expect(answer["status"] == "success", f"{expression}: {answer}")
        return answer["data"]["result"]

    try:
        run.wait_for_step(10)
        kill(run.worker_pids()[0])
        run.wait_for("a scrape of the loss", lambda: query("mayfly_recovery_seconds_count > 0"))
        time.sleep(4)
        with open(os.path.join(EXAMPLES, "grafana.json")) as file:
            board = json.load(file)
        for panel in board["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$run", ".*")
                expression = re.sub(r"\[(1m|5m|1h)\]", "[4s]", expression)
                found = query(expression)
                needs_provider = re.search("budget|mayfly_server|test_accuracy|checkpoint",
                                           expression)
                expect(found or needs_provider, f"no data for {expression}")
        expect(float(query("scrape_duration_seconds")[0]["value"][1]) < 0.5, "a slow scrape")
        expect(int(query("scrape_samples_scraped")[0]["value"][1]) <= SERIES_MAX, "many series")
        run.process.terminate()
        run.wait()
    finally:
        server.terminate()
        server.wait()
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"bounded": bounded, "promtool": promtool,
                                      "scraped": scraped}))
