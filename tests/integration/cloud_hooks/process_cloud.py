"""A program for the provider exec whose servers are processes of this host. A test injects faults
by files in FOLDER.

    process_cloud.py FOLDER      one JSON object in, one out (docs/cloud.md)

lose-answers: the number of requests that are carried out but answered with exit code 75. hold: as
long as this file exists no request is carried out; requests whose caller has ended meanwhile are
dropped. linger: servers outlive their workers. first: the number of next servers whose workers have
the number 1; later workers have 0. prices: by zone, the price that is listed for its servers.
sold-out: a zone with no stock. room: the number of servers that the cloud has room for; it asks for
the return of servers beyond that. refuse: the kind of error that answers every request for servers.
log.jsonl: every request except lists, as it was received.
"""
import fcntl
import json
import os
import signal
import subprocess
import sys
import time


def take_one(path):
    """If the count in the file is not zero, decrements it and returns True."""
    if not os.path.exists(path):
        return False
    with open(path) as file:
        left = int(file.read())
    with open(path, "w") as file:
        file.write(str(max(left - 1, 0)))
    return left > 0


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read().strip()


def alive(pid):
    """Whether the process runs. A zombie that no parent reaps counts as ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def price_in(folder, zone):
    prices = json.loads(text_of(os.path.join(folder, "prices")) or "{}")
    return {"price_per_hour": prices[zone]} if zone in prices else {}


def servers(folder, job=None):
    """The servers of one job, or of all jobs."""
    for name in sorted(os.listdir(folder)):
        if name.startswith("server-"):
            with open(os.path.join(folder, name)) as file:
                server = json.load(file)
            server["state"] = "running" if alive(server.pop("pid")) else "gone"
            server.update(price_in(folder, server["zone"]))
            if server.pop("job") == job or job is None:
                yield server


def start(folder, request, index):
    name = f"{request['request_id'][:8]}-{index}"
    script = os.path.join(folder, f"script-{name}.sh")
    with open(script, "w") as file:
        file.write(request["startup_text"])
    with open(os.path.join(folder, f"{name}.log"), "w") as log:
        lingers = os.path.exists(os.path.join(folder, "linger"))
        life = ["sh", "-c", 'sh "$0"; sleep 1000', script] if lingers else ["sh", script]
        environment = dict(os.environ, MAYFLY_SERVER=name)
        if take_one(os.path.join(folder, "first")):
            environment["MAYFLY_WORKER_NUMBER"] = "1"
        process = subprocess.Popen(life, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True, env=environment)
    with open(os.path.join(folder, f"server-{name}"), "w") as file:
        json.dump({"id": name, "request_id": request["request_id"], "zone": request["zone"],
                   "machine_type": request["machine_type"], "market": request["market"],
                   "job": request["job"], "pid": process.pid}, file)


def request_servers(folder, request):
    kind = text_of(os.path.join(folder, "refuse"))
    if kind:
        return {"error": {"kind": kind, "detail": "told to refuse"}}
    if request["zone"] == text_of(os.path.join(folder, "sold-out")):
        return {"error": {"kind": "capacity", "detail": "sold out"}}
    room = text_of(os.path.join(folder, "room"))
    if room and sum(server["state"] == "running" for server in servers(folder)) >= int(room):
        return {"error": {"kind": "capacity", "detail": "no room"}}
    made = [s for s in servers(folder) if s["request_id"] == request["request_id"]]
    for index in range(len(made), request["count"]):
        start(folder, request, index)
    if take_one(os.path.join(folder, "lose-answers")):
        sys.exit(75)
    return {"servers": [s for s in servers(folder) if s["request_id"] == request["request_id"]]}


def release(folder, server):
    path = os.path.join(folder, "server-" + server)
    if os.path.exists(path):
        with open(path) as file:
            pid = json.load(file)["pid"]
        if alive(pid):
            os.killpg(pid, signal.SIGTERM)
    return {}


def main():
    folder = sys.argv[1]
    request = json.load(sys.stdin)
    caller = os.getppid()
    while os.path.exists(os.path.join(folder, "hold")):
        time.sleep(0.01)
        if os.getppid() != caller:
            sys.exit(1)
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if request["op"] != "list":
            with open(os.path.join(folder, "log.jsonl"), "a") as log:
                log.write(json.dumps(request) + "\n")
        if request["op"] == "request":
            answer = request_servers(folder, request)
        elif request["op"] == "release":
            answer = release(folder, request["server"])
        elif request["op"] == "doctor":
            answer = {"findings": [{"ok": True, "text": "processes of this host"}]}
        else:
            answer = {"servers": list(servers(folder, request["job"]))}
            running = sum(server["state"] == "running" for server in answer["servers"])
            room = text_of(os.path.join(folder, "room"))
            answer["give_up"] = max(0, running - int(room)) if room else 0
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
