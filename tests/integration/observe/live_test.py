"""Goal: the page that a coordinator serves while its job runs, the page that `mayfly dashboard`
serves afterwards, and the report show equal numbers; no viewer disturbs the job.
Method: real jobs and an HTTP client that sends the requests of a page. dashboard_test.py tests the
page itself in a browser.
"""
import base64
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import zlib

import mayfly_run
import mpi_launch
from mayfly_run import SMALL_JOB, Run, expect, expect_refused, kill, lingering

JOB = SMALL_JOB + ["--workers", "2", "--threads", "1", "--price-per-hour", "36"]


class Viewer:
    """Follows a run like a page: keeps the newest state and curves until the server ends."""

    def __init__(self, address):
        self.host, self.port, self.key = re.fullmatch(r"http://([^:]+):(\d+)/#key=(\w+)",
                                                      address).groups()
        self.state, self.curves, self.news = None, None, 0
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def ask(self, target):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=60)
        connection.request("GET", target, headers={"Authorization": "Bearer " + self.key})
        return connection.getresponse()

    def get(self, target):
        answer = self.ask(target)
        expect(answer.status == 200, f"{target}: status {answer.status}")
        return answer.read()

    def look(self):
        self.state = json.loads(self.get("/api/state?run=0"))
        self.curves = without_header(self.get("/api/series?run=0"))

    def follow(self):
        try:
            stream = self.ask("/events")
            for line in stream:
                if line.startswith(b"data:"):
                    self.look()
                    self.news += 1
        except (OSError, http.client.HTTPException, AttributeError):
            pass  # the server has ended


def without_header(series):
    """The numbers of an answer about curves, without the header, which contains versions."""
    length = int.from_bytes(series[:4], "little")
    return series[4 + length:]


def address_in(run):
    found = []

    def look():
        found.extend(re.findall(r"dashboard at (\S+)", run.output()))
        return found
    run.wait_for("the page's address", look)
    return found[0]


def served_afterwards(run_dir):
    server = subprocess.Popen([mayfly_run.BINARY, "dashboard", run_dir], stdout=subprocess.PIPE,
                              text=True)
    try:
        viewer = Viewer(server.stdout.readline().strip())
        viewer.look()
        return viewer.state, viewer.curves
    finally:
        server.terminate()
        server.wait()


def reported(path):
    with open(path) as file:
        text = file.read()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
    packed = [data["runs"][0][name]["data"] for name in ("kept", "undone")]
    return data["runs"][0]["state"], b"".join(zlib.decompress(base64.b64decode(each), -15)
                                              for each in packed)


def equal_numbers():
    report = os.path.join(tempfile.mkdtemp(prefix="mayfly-test-"), "report.html")
    run = Run(JOB + ["--steps", "120", "--dashboard", "0", "--report", report,
                     "--checkpoint-every", "50"] + lingering(30, 60))
    viewer = Viewer(address_in(run))
    # Viewers that never read their answers, and connections that never send a request.
    request = (f"GET /events HTTP/1.1\r\nHost: {viewer.host}:{viewer.port}\r\n"
               f"Authorization: Bearer {viewer.key}\r\n\r\n").encode()
    stopped = []
    for number in range(40):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        one.connect((viewer.host, int(viewer.port)))
        if number < 4:
            one.sendall(request)
        stopped.append(one)
    run.wait_for_step(30)
    kill(run.worker_pids()[0])
    run.wait_for("news of the loss",
                 lambda: viewer.state and viewer.state["recoveries"])
    summary = run.finish()
    viewer.thread.join(10)
    expect(not viewer.thread.is_alive(), "the server is still there")
    live = viewer.state
    expect(live["head"]["phase"] == "ended" and live["head"]["rows"] == 120, live["head"])
    expect([m["step"] for m in run.metrics()] == list(range(1, 121)), "records are missing")
    # Boost.JSON reads a number within one unit of its last binary digit.
    expect(abs(live["head"]["spent"] - summary["cost"]) < 1e-12 * summary["cost"],
           f"{live['head']} {summary['cost']}")
    total = sum(share[1] for share in live["time"])
    expect(abs(total - live["end"]) <= 0.001 * live["end"], f"{total} of {live['end']} s")
    for what, (state, curves) in (("afterwards", served_afterwards(run.run_dir)),
                                  ("the report", reported(report))):
        different = [key for key in live if live[key] != state.get(key)]
        expect(not different, f"{what}: {[(live[key], state.get(key)) for key in different]}")
        expect(curves == viewer.curves, f"{what}: other curves")
    expect(report in run.output(), "the report is not named")
    expect(not os.path.exists(run.path("dashboard")), "the address of a page that has gone")
    for one in stopped:
        one.close()
    run.remove()


def refused():
    """A port in use causes a one-line error, and the command leaves nothing behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        expect_refused(JOB + ["--steps", "5"],
                       [(["--dashboard", str(port)], f"127.0.0.1:{port}"),
                        (["--dashboard", "many"], "PORT"),
                        (["--dashboard", "127.0.0.1:99999"], "99999")])


def coordinator_restarted():
    """A restarted coordinator serves at the same address, and an open page continues."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    run_dir = os.path.join(folder, "run")
    words = ["coordinator", "--run-dir", run_dir, "--bind-host", "127.0.0.1", "--workers", "1",
             "--steps", "120", "--dashboard", "0", "--inject", "slow=4x"] + SMALL_JOB

    def start(*words):
        with open(os.path.join(folder, "output.txt"), "ab") as output:
            return subprocess.Popen([mayfly_run.BINARY, *words], stdout=output,
                                    stderr=subprocess.STDOUT)

    first = start(*words)
    run = Run.attach(folder, first, 200)
    address = address_in(run)
    run.wait_for("the coordinator", lambda: os.path.exists(run.path("coordinator")))
    with open(run.path("coordinator")) as file:
        endpoint = file.read().strip()
    worker = start("worker", "--coordinator", endpoint, "--token-file", run.path("token"),
                   "--threads", "1")
    run.wait_for_step(20)
    kill(first.pid)
    first.wait()
    time.sleep(0.5)
    second = start("coordinator", "--run-dir", run_dir)
    run = Run.attach(folder, second, 200)
    run.wait_for("its records", lambda: run.events("coordinator_restarted"))
    run.wait_for("its page", lambda: run.output().count(address) == 2)
    viewer = Viewer(address)
    run.wait_for("news", lambda: viewer.news > 1)
    expect(run.wait() == 0 and worker.wait(60) == 0, run.output())
    viewer.thread.join(10)
    expect(viewer.state["head"]["rows"] == 120 and viewer.state["head"]["phase"] == "ended",
           viewer.state["head"])
    run.remove()


def under_mpirun():
    """The coordinator that rank 0 starts serves the page of a job that mpirun launched."""
    run = mpi_launch.start(2, SMALL_JOB + ["--threads", "1", "--steps", "60", "--dashboard", "0",
                                           "--price-per-hour", "36"] + lingering(20, 60))
    viewer = Viewer(address_in(run))
    run.wait_for("steps on the page", lambda: viewer.state and viewer.state["head"]["rows"] > 20)
    summary = run.finish()
    viewer.thread.join(10)
    expect(viewer.state["head"]["rows"] == 60, viewer.state["head"])
    expect(abs(viewer.state["head"]["spent"] - summary["cost"]) < 1e-12 * summary["cost"],
           f"{viewer.state['head']} {summary['cost']}")
    run.remove()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"equal_numbers": equal_numbers, "refused": refused,
                                      "coordinator_restarted": coordinator_restarted,
                                      "under_mpirun": under_mpirun}))
