"""The dashboard's page in a real browser: its numbers, its keys, and scripts that must not run."""

import atexit
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SKIP = 77  # what CTest takes for "skipped"
BINARY = os.environ.get("MAYFLY_TEST_BINARY", "build/release/mayfly")
DRIVER = "/usr/bin/chromedriver"
START = 1_700_000_000
SCRIPT = "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script>"

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    print("SKIPPED: python3-selenium is not installed (scripts/packages-browser.txt)")
    sys.exit(SKIP)
if not os.path.exists(DRIVER):
    print("SKIPPED: chromium-driver is not installed (scripts/packages-browser.txt)")
    sys.exit(SKIP)


def expect(condition, text):
    if not condition:
        print("FAILED: " + text)
        sys.exit(1)


class Run:
    """A run directory, written line by line."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        (self.folder / "config.toml").write_text(
            'model = "resnet20"\nworkers = 2\nsteps = 400\nglobal_batch = 100\n')
        (self.folder / "token").write_text("secret of the job\n")
        self.start(0)

    def line(self, name, *records):
        with open(self.folder / name, "a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def event(self, t, kind, **more):
        self.line("events.jsonl", {"time": START + t, "t": t, "kind": kind, **more})

    def start(self, t):
        metrics = self.folder / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        self.event(t, "started", metrics_bytes=size)

    def view(self, t, committed, members, host="node"):
        for member in members:
            self.event(t, "connected", member=member, detail=f"{host}{member}")
        self.event(t, "view", view=1, committed=committed, members=members,
                   hosts=[f"{host}{member}" for member in members])

    def steps(self, first, last, spike=0, begin=1):
        self.line("metrics.jsonl", *(
            {"step": step, "t": begin + step / 10, "samples": 100, "epoch": step / 100,
             "loss": 500 if step == spike else 2 + 1 / step, "accuracy": 0.5, "learning_rate": 0.1,
             "images_per_second": 1000, "data_wait_ms": 5, "members": 2, "view": 1}
            for step in range(first, last + 1)))

    def loss_of(self, t, member, step):
        self.event(t, "lost", member=member, detail="the worker's process died")
        self.event(t, "view", view=2, committed=step, members=[1], hosts=["node1"])
        self.event(t + 0.05, "recovery", recovery={
            "cause": "lost", "members": [member], "step": step, "view": 2,
            "redone_microbatches": 1, "detail": "the worker's process died",
            "detected": t, "told_ms": 0, "stopped_ms": 5, "formed_ms": 10, "synced_ms": 12,
            "step_ms": 50})


def browser():
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--hide-scrollbars", "--window-size=1300,1500"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(DRIVER), options=options)


def wait_for(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, "not in time: " + what)
        time.sleep(0.05)


def state(page):
    return page.execute_script("return window.mayfly.state()")


def open_page(page, address):
    page.get(address)
    wait_for("the first picture",
             lambda: page.execute_script("return document.body.dataset.drawn") == "yes")


def press(page, key):
    page.find_element("tag name", "body").send_keys(key)
    time.sleep(0.3)


def no_complaints(page):
    log = page.get_log("browser")
    expect(log == [], f"the browser's console has {log}")


def write_report(folder, *runs):
    report = os.path.join(folder, "report.html")
    subprocess.run([BINARY, "dashboard", *map(str, runs), "--report", report], check=True,
                   stdout=subprocess.DEVNULL)
    return report


class Served:
    def __init__(self, run, *more):
        self.process = subprocess.Popen([BINARY, "dashboard", str(run.folder), *more],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # in case the test fails
        self.address = self.process.stdout.readline().strip()

    def stop(self):
        self.process.terminate()
        expect(self.process.wait(10) == 0, "the server ends with 0")


def divided_as_printed(page, shown, run):
    """Expects that the state, the picture and the text divide a step like `mayfly profile`."""
    done = subprocess.run([BINARY, "profile", str(run.folder), "--json"], check=True,
                          stdout=subprocess.PIPE, text=True)
    printed = json.loads(done.stdout)
    steps = printed["steps"]
    expect(shown["steps"] == steps == 2, f"steps with times: {shown}, {printed}")
    lines = []
    for kind, seconds in shown["kinds"]:
        mean = printed["step"][kind + "_ms"]
        expect(abs(1000 * seconds / steps - mean) < 0.001, f"{kind}: {shown}, {printed}")
        lines.append(f"in a step: {kind}\t{mean:.3f} ms")
    expect([row[:2] for row in shown["slowest"]] ==
           [[member["member"], member["steps"]] for member in printed["slowest"]], f"{shown}")
    lines += [f"ready last: member {member['member']}\t"
              f"{member['compute_ms'] + member['fetch_ms'] + member['prep_ms']:.3f} ms"
              for member in printed["slowest"]]
    lines += [f"late in the exchange: member {member['member']}\t{member['exchange_ms']:.3f} ms"
              for member in printed["held_up"]]
    page.execute_script("document.querySelector('#track-time details').open = true")
    wait_for("the text", lambda: page.find_elements("css selector", "#track-time table"))
    rows = page.execute_script(
        "return [...document.querySelectorAll('#track-time tr')].map("
        "row => [...row.cells].map(cell => cell.textContent).join('\\t'))")
    for line in lines:
        expect(any(row.startswith(line) for row in rows), f"{line} in {rows}")
    words = page.find_element("css selector", "#track-time .division").get_attribute("textContent")
    expect(words.startswith("a step of 24 ms:") and "fetch 25 %" in words, words)
    stretches = state(page)["tracks"]["step"]
    expect([(s["first"], s["last"], s["ms"], s["member"]) for s in stretches] ==
           [(4001, 4001, [8, 4, 2, 7, 1], 1), (4002, 4002, [8, 8, 2, 7, 1], 2)], f"{stretches}")
    expect(all(s["to"] > s["from"] for s in stretches), f"{stretches}")


def report(folder, page):
    """A report file opens in the browser and shows a spike in every picture; the keyboard finds the
    last loss."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2])
    run.steps(1, 4000, spike=1234)
    run.loss_of(301, 2, 3000)
    run.line("metrics.jsonl", *(
        {"step": 4000 + i, "t": 401 + i / 10, "samples": 100, "epoch": 40, "loss": 2,
         "accuracy": 0.5, "learning_rate": 0.1, "images_per_second": 1000, "data_wait_ms": 5,
         "members": 2, "view": 1,
         "before": {"slowest": i, "compute_ms": 8, "fetch_ms": 4 * i, "prep_ms": 2,
                    "exchange_ms": 7, "update_ms": 1,
                    "held_up": {"member": 3, "ms": 2.5}}} for i in (1, 2)))
    run.line("members.jsonl", *(
        {"t": t, "member": member, "host": f"node{member}", "phase": "active", "joined": 1,
         "microbatches": 4, "microbatch_ms": ms, "steps": 0, "samples": 0}
        for t, member, ms in ((2, 1, 10), (2, 2, 10), (150, 2, 25))))
    path = write_report(folder, run.folder)
    open_page(page, "file://" + path)
    now = state(page)
    expect([m["speeds"] for m in now["state"]["members"]] ==
           [[[2, 10, 4]], [[2, 10, 4], [150, 25, 4]]], "speeds of members")
    legend = page.find_element("css selector", "#track-speed .legend").get_attribute("textContent")
    expect(legend == "light: 10 ms, dark: 25 ms", legend)
    expect(now["source"] == "report" and now["rows"] == 4002, f"rows: {now['rows']}")
    expect(max(now["tracks"]["loss"]["max"]) == 500, "the spike is in the whole picture")
    recovery = now["state"]["recoveries"][0]
    expect(abs(recovery["first_step"] - recovery["detected"] - 0.05) < 1e-6, "the recovery's time")
    total = sum(share[1] for share in now["state"]["time"])
    expect(abs(total - now["state"]["end"]) < 1e-6, "kinds of time add up to the wall time")
    divided_as_printed(page, now["state"]["profile"], run)
    press(page, "]")
    said = page.execute_script("return document.getElementById('said').textContent")
    expect("member 2 after step 3000" in said and "50 ms" in said, f"the keyboard says: {said}")
    press(page, "a")
    expect(state(page)["axis"] == "step", "key a changes the axis")
    press(page, "0")
    low, high = state(page)["view"]
    expect(low == 0 and high >= 4000, "key 0 shows all")
    press(page, "t")
    expect(state(page)["theme"] in ("dark", "light"), "key t changes the theme")
    # The address of a view opens the same view again.
    page.get("about:blank")
    open_page(page, "file://" + path + "#axis=step&from=1200&to=1300&theme=dark")
    now = state(page)
    expect(now["view"] == [1200, 1300] and now["theme"] == "dark", "the view of a link")
    expect(max(now["tracks"]["loss"]["max"]) == 500, "the spike is there when zoomed in")
    no_complaints(page)


def served(folder, page):
    """A page follows a job, and shows the same numbers during the job, afterwards, and in a
    report."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2])
    run.steps(1, 50)
    server = Served(run)
    page.get(server.address.split("#")[0])
    wait_for("a refusal without the key", lambda: page.execute_script(
        "return document.body.dataset.drawn") == "refused")
    page.get("about:blank")
    page.get_log("browser")
    open_page(page, server.address)
    expect("key" not in page.current_url, "the key leaves the address")
    wait_for("all steps", lambda: state(page)["rows"] == 50)
    run.steps(51, 60)
    run.loss_of(62, 2, 60)
    run.steps(61, 80)
    wait_for("new steps", lambda: state(page)["rows"] == 80)
    wait_for("a recovery", lambda: len(state(page)["state"]["recoveries"]) == 1)
    # Another server starts at the same port: the page reconnects by itself.
    port = server.address.split(":")[2].split("/")[0]
    server.stop()
    run.steps(81, 90)
    again = Served(run, "--port", port)
    expect(again.address == server.address, "the address stays the same")
    wait_for("steps from the second server", lambda: state(page)["rows"] == 90)
    (run.folder / "summary.json").write_text('{"outcome": "done", "steps": 90}')
    wait_for("the end", lambda: state(page)["state"]["head"]["phase"] == "ended")
    live = [state(page)["state"]] + [page.execute_script(f"return window.mayfly.curve('{name}')")
                                     for name in ("loss", "images_per_second")]
    again.stop()
    open_page(page, "file://" + write_report(folder, run.folder))
    after = [state(page)["state"]] + [page.execute_script(f"return window.mayfly.curve('{name}')")
                                      for name in ("loss", "images_per_second")]
    expect(live == after, "equal numbers live and in the report")


def crowded(folder, page):
    """If too many pages are open, the server refuses another one. That page shows the reason, and
    continues when other pages are closed."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2])
    run.steps(1, 50)
    server = Served(run)
    place, key = server.address.split("/")[2], server.address.split("key=")[1]
    others = []
    for _ in range(16):
        connection = http.client.HTTPConnection(place)
        connection.request("GET", "/events", headers={"Authorization": "Bearer " + key})
        others.append(connection.getresponse())  # the response owns the socket from now on
        expect(others[-1].status == 200, "sixteen pages may be open")
    page.get(server.address)
    said = lambda: page.execute_script("return document.getElementById('said').textContent")
    wait_for("the page says that it gets no news", lambda: "too many pages are open" in said())
    expect(state(page) is None, "there is nothing to show yet")
    for other in others:
        other.close()
    wait_for("all steps", lambda: (state(page) or {}).get("rows") == 50)
    expect(said() == "", "the page is silent again")
    page.get_log("browser")  # removes the refusals from the browser's log
    server.stop()


def long(folder, page):
    """If a run has more steps than a page loads, the page loads the visible part in full detail."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2])
    run.steps(1, 120_000, spike=77_777)
    server = Served(run)
    open_page(page, server.address + "&axis=step")
    wait_for("the curves", lambda: state(page)["rows"] == 30_000)
    expect(state(page)["level"] == 1, "buckets of four steps")
    expect(max(state(page)["tracks"]["loss"]["max"]) == 500, "the spike is in the whole picture")
    page.execute_script("location.hash = 'axis=step&from=77700&to=77900'")
    wait_for("every step", lambda: len(state(page)["tracks"]["loss"]["x"]) > 195)
    shown = state(page)["tracks"]["loss"]
    expect(shown["rows"] == 1 and shown["last"][shown["x"].index(77_777)] == 500,
           "the spike is at its step")
    no_complaints(page)
    server.stop()


def hostile(folder, page):
    """The page shows a host name that contains a script as text."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2], host=SCRIPT)
    run.event(2, "lost", member=2, detail=SCRIPT)
    run.steps(1, 20)
    server = Served(run)
    for address in (server.address, "file://" + write_report(folder, run.folder)):
        page.get("about:blank")
        open_page(page, address)
        wait_for("its event", lambda: len(state(page)["state"]["events"]) > 3)
        shown = page.execute_script("return document.getElementById('events').textContent")
        expect(SCRIPT in shown, "the name is shown as text")
        page.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        time.sleep(0.3)
        expect(page.execute_script("return window.hurt") is None, "a script of others ran")
        expect(page.execute_script("return document.querySelectorAll('main img').length") == 0,
               "an element of others")
    no_complaints(page)
    server.stop()


def resumed(folder, page):
    """Undone steps are not drawn as a zigzag; the user can choose between two runs."""
    run = Run(folder + "/run")
    run.view(1, 0, [1, 2])
    run.steps(1, 100)
    run.start(60)
    run.view(61, 70, [1, 2])
    run.steps(71, 150, begin=54)
    other = Run(folder + "/other")
    other.view(1, 0, [1])
    other.steps(1, 10)
    open_page(page, "file://" + write_report(folder, run.folder, other.folder))
    now = state(page)
    expect(now["runs"] == 2 and now["rows"] == 150 and now["undone"] == 30, "kept and undone")
    for axis in ("time", "step", "epoch"):
        page.execute_script(f"document.getElementById('axis-{axis}').click()")
        time.sleep(0.3)
        xs = state(page)["tracks"]["loss"]["x"]
        expect(all(a <= b for a, b in zip(xs, xs[1:])), f"no zigzag on the axis {axis}")
    page.execute_script("const s = document.getElementById('run'); s.value = '1';"
                        "s.dispatchEvent(new Event('change'))")
    time.sleep(0.3)
    expect(state(page)["rows"] == 10, "the other run")
    no_complaints(page)


def picture(folder, page):
    """The report of a real job with losses and joins contains everything that the picture in docs/
    shows.

    If the next argument is a folder, such as docs, the test writes dashboard.png into it, from a
    job with four times as many images in each step."""
    path = folder + "/report.html"
    size = ["--data", "procedural:6400", "--global-batch", "64", "--microbatch", "8"]
    if len(sys.argv) == 2:  # the steps are short; some are slowed down, so that workers can join
        size = ["--data", "procedural:1600", "--global-batch", "16", "--microbatch", "2",
                "--inject", ";".join(f"slow=8x,from=step{step + 1},to=step{step + 20}"
                                     for step in (110, 200, 300))]
    subprocess.run([BINARY, "train", "--run-dir", folder + "/spot", "--report", path, "--quiet",
                    "--steps", "360", *size, "--workers", "4", "--threads", "1", "--lr", "0.05",
                    "--price-per-hour", "0.9", "--eval-every-epochs", "2", "--chaos",
                    "kill@step=70:worker=1,join@step=110,drain@step=170:worker=2,join@step=200,"
                    "kill@step=260:worker=0,join@step=300"],
                   check=True, timeout=150, stdout=subprocess.DEVNULL)
    page.set_window_size(1000, 1090)
    open_page(page, "file://" + path)
    now = state(page)["state"]
    expect([r["cause"] for r in now["recoveries"]].count("lost") == 2, "two losses")
    expect(len(now["members"]) == 7, "four workers, and three that joined")
    shown = page.find_element("tag name", "body").text
    for word in ("spent", "goodput", "Throughput", "Where the time goes"):
        expect(word in shown, f"the page says {word}")
    said = ""
    while "no further" not in said:  # from the middle of the run to its end
        press(page, "]")
        said = page.find_element("id", "said").text
    while not said.startswith("lost: member"):  # and back to the last loss of a member
        press(page, "[")
        said = page.find_element("id", "said").text
    expect("the worker's process died" in said, "who was lost last, and why: " + said)
    press(page, "0")
    png = page.get_screenshot_as_png()
    expect(len(png) > 40_000, f"a picture of {len(png)} bytes shows little")
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2], "dashboard.png").write_bytes(png)
    no_complaints(page)


def main():
    case = {"report": report, "served": served, "hostile": hostile, "long": long,
            "resumed": resumed, "crowded": crowded, "picture": picture}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="mayfly-dashboard-") as folder:
        page = browser()
        try:
            case(folder, page)
        finally:
            page.quit()


main()
