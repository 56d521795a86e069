#!/usr/bin/env python3
"""Servers that are there already, started and ended over ssh, for `mayfly coordinator`:

    --cloud-provider exec --cloud-command "examples/cloud/ssh.py HOSTS_FILE"

HOSTS_FILE names one host per line. A host runs one worker of one job at a time; which one, says a
file on the host itself (/tmp/mayfly-server: job, request id and process id), so it may be asked by
anybody and no state is kept here. SSH_COMMAND replaces the program ssh and its options.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

STATE = "/tmp/mayfly-server"
LOOK = f"""
    if [ -e {STATE} ]; then
        read job request pid < {STATE}
        if kill -0 "$pid" 2>/dev/null; then echo "$job $request"; else rm -f {STATE}; echo free; fi
    else echo free; fi"""


def remote(host, script, text=""):
    """(exit code, output, complaint) of a shell script on that host."""
    words = shlex.split(os.environ.get("SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=5"))
    done = subprocess.run(words + [host, "sh -c " + shlex.quote(script)], input=text, text=True,
                          capture_output=True, timeout=30, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def look(host):
    """(host, job, request id); job is None for a free host and "?" for one that does not answer."""
    try:
        code, output, _ = remote(host, LOOK)
    except subprocess.TimeoutExpired:
        return host, "?", ""
    if code != 0 or not output:
        return host, "?", ""
    job, _, request = output.partition(" ")
    return (host, None, "") if job == "free" else (host, job, request)


def look_at_all(hosts):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(look, hosts))


def start(host, request):
    """True if the worker was started there."""
    script = f"""
        set -C
        echo "{request['job']} {request['request_id']} $$" > {STATE} || exit 1
        set +C
        cat > {STATE}.sh
        MAYFLY_SERVER={host} setsid nohup sh {STATE}.sh > {STATE}.log 2>&1 < /dev/null &
        echo "{request['job']} {request['request_id']} $!" > {STATE}"""
    code, _, _ = remote(host, script, request["startup_text"])
    return code == 0


def server(host, request_id, state="running"):
    return {"id": host, "state": state, "request_id": request_id}


def finding(host, job):
    text = "no answer" if job == "?" else f"has a worker of {job}" if job else "free"
    return {"ok": job != "?", "text": f"{host}: {text}"}


def answer(request, hosts):
    operation = request["op"]
    if operation == "doctor":
        return {"findings": [finding(host, job) for host, job, _ in look_at_all(hosts)]}
    if operation in ("list", "status"):
        return {"servers": [server(host, owner) for host, job, owner in look_at_all(hosts)
                            if job == request["job"]]}
    if operation == "release":
        script = f"""[ ! -e {STATE} ] || {{ read job request pid < {STATE}
                     [ "$job" != {request['job']} ] || kill "$pid" 2>/dev/null; }}; true"""
        code, _, complaint = remote(request["server"], script)
        if code == 0:
            return {}
        return {"error": {"kind": "rate", "detail": f"{request['server']}: {complaint}"}}
    if operation == "request":
        seen = look_at_all(hosts)
        servers = [server(host, owner) for host, _, owner in seen if owner == request["request_id"]]
        for host, job, _ in seen:
            if len(servers) < request["count"] and job is None and start(host, request):
                servers.append(server(host, request["request_id"], "starting"))
        if len(servers) == request["count"]:
            return {"servers": servers}
        return {"servers": servers,
                "error": {"kind": "capacity",
                          "detail": "every host has a worker or does not answer"}}
    return {"error": {"kind": "config", "detail": "unknown operation"}}


def main():
    if len(sys.argv) != 2:
        print("usage: ssh.py HOSTS_FILE", file=sys.stderr)
        return 78
    with open(sys.argv[1], encoding="utf-8") as lines:
        hosts = [line.split("#")[0].strip() for line in lines]
    print(json.dumps(answer(json.load(sys.stdin), [host for host in hosts if host])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
