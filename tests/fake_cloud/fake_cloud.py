#!/usr/bin/env python3
"""A cloud for tests and demonstrations: Compute Engine, EC2 and three metadata servers on loopback.

Prints one JSON line with its addresses and keys, and serves until its standard input closes. Tests
inject faults through its control port (the do_... functions of Cloud). Needs only Python's standard
library and the `openssl` program.
"""
import argparse
import http.server
import json
import os
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse

import certificates
import proxy
from ec2 import Ec2, Ec2Error
from faults import TRANSPORT, Faults, misbehave
from gce import Gce, GceError
from machines import Machine, Machines
from metadata import Metadata, Reply
from signatures import Denied, GoogleTokens


QUOTAS = {"CPUS": [4, 24], "PREEMPTIBLE_CPUS": [0, 0]}  # [in use, limit]


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request, applies the next matching fault, and otherwise sends the reply of the
    server's `answer` function."""
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True  # else replies on an open connection wait for acknowledgements

    def log_message(self, *args):
        pass

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        server = self.server
        operation = server.operation_of(self.command, self.path.partition("?")[0], body)
        fault = None
        if server.service != "control":  # the control port has no faults
            server.cloud.record(server.service, operation, self.command, self.path, body)
            fault = server.cloud.faults.take(server.service, operation)
        kind = fault["kind"] if fault else None
        if kind in TRANSPORT and kind != "lose":
            misbehave(self, kind)
            return
        reply = server.answer(self.command, self.path, self.headers, body,
                              None if kind == "lose" else fault)
        if kind == "lose":
            misbehave(self, "close")
            return
        data = reply.body.encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def date_time_string(self, timestamp=None):
        return super().date_time_string(self.server.cloud.now())

    do_GET = do_POST = do_PUT = do_DELETE = _serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, cloud, service, operation_of, answer, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cloud, self.service = cloud, service
        self.operation_of, self.answer = operation_of, answer
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def finish_request(self, request, client_address):
        """Runs on the connection's thread, so a client that never completes the TLS handshake
        blocks no other connection."""
        if self.service == "metadata":
            with self.cloud.lock:
                self.cloud.connections += 1
        try:
            if self.context:
                request.settimeout(10)
                request = self.context.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)
        except (OSError, ValueError):
            pass  # the client has closed, or does not trust the certificate

    def stop(self):
        """Returns at once; the port is free a moment later."""
        def act():
            self.shutdown()
            self.server_close()
        threading.Thread(target=act, daemon=True).start()

    def handle_error(self, request, client_address):
        if os.environ.get("FAKE_CLOUD_DEBUG"):
            super().handle_error(request, client_address)


class Cloud:
    def __init__(self, options, folder):
        self.lock = threading.RLock()
        self.faults = Faults()
        self.folder = folder
        self.clock_offset = 0.0
        self.operation_polls = options.operation_polls
        self.page_size = 500
        self.stock = None
        self.server_quota = None  # the maximum number of EC2 instances at one time
        self.unknown_yet = False  # EC2 answers that it does not know its new machines yet
        self.zones = ["zone-a", "zone-b", "zone-c"]
        self.machine_types = ["n1-standard-8", "p3.2xlarge", "small"]
        self.images = ["ami-1", "debian-12"]  # one of EC2 and one of Compute Engine
        self.quotas = dict(QUOTAS)
        self.aws_secrets = {"AKIAFAKE": "aws/secret+EXAMPLE"}
        self.aws_tokens = {}
        self.role, self.role_lifetime = "worker-role", 21600
        self.requests, self.metadata_servers = [], []
        self.connections = 0
        self.repeated = {}  # records of requests to metadata servers, by content
        self.machines = Machines(options.run_startup, folder, self._serve_metadata)
        self.machines.lock = self.lock
        self.gce, self.ec2 = Gce(self, "fake-project"), Ec2(self, "eu-west-1")
        self.own = Machine("self", "none", "zone-a", "small", "on_demand", {}, "")

    def now(self):
        return time.time() + self.clock_offset

    def role_keys(self):
        self.aws_secrets["ASIAFAKE"] = "role/secret+EXAMPLE"
        self.aws_tokens["ASIAFAKE"] = "role-session-token=="
        return "ASIAFAKE", self.aws_secrets["ASIAFAKE"], self.aws_tokens["ASIAFAKE"]

    def record(self, service, operation, method, path, body):
        text = body.decode(errors="replace")
        with self.lock:
            what = (operation, method, path, text)
            if service == "metadata" and what in self.repeated:
                self.repeated[what]["times"] += 1  # machines ask many times a second
                return
            self.requests.append({"service": service, "operation": operation, "method": method,
                                  "path": path, "body": text, "time": time.time(), "times": 1})
            if service == "metadata":
                self.repeated[what] = self.requests[-1]

    def serve(self, certs):
        good = certs["good"]
        self.trap = Server(self, "trap", lambda *_: "trap", lambda *_: Reply(200, "{}"))
        self.trap_url = f"http://127.0.0.1:{self.trap.port}/"
        gce = Server(self, "gce", lambda m, p, b: self.gce.operation_of(m, p), self._gce, good)
        ec2 = Server(self, "ec2", self._ec2_operation, self._ec2, good)
        oauth = Server(self, "oauth", lambda *_: "token", self._oauth, good)
        control = Server(self, "control", lambda *_: "control", self._control)
        ports = {"gce": f"https://127.0.0.1:{gce.port}", "ec2": f"https://127.0.0.1:{ec2.port}",
                 "oauth": f"https://127.0.0.1:{oauth.port}/token",
                 "control": f"http://127.0.0.1:{control.port}",
                 "metadata": f"http://127.0.0.1:{self._serve_metadata(self.own).port}",
                 "proxy": f"127.0.0.1:{proxy.serve(self)}"}
        for name in ("other_authority", "wrong_host", "expired"):
            bad = Server(self, name, lambda *_: "any", lambda *_: Reply(200, "{}"), certs[name])
            ports[name] = f"https://127.0.0.1:{bad.port}"
        return ports

    def _serve_metadata(self, machine):
        metadata = Metadata(self, machine)
        self.metadata_servers.append(metadata)
        server = Server(self, "metadata", lambda m, p, b: metadata.operation_of(m, p),
                        lambda m, t, h, b, f: Reply(f["status"], "") if f
                        else metadata.handle(m, t, h, b))
        return server

    def _gce(self, method, target, headers, body, fault):
        with self.lock:
            try:
                return Reply(200, json.dumps(self.gce.handle(method, target, headers, body, fault)),
                             Content_Type="application/json")
            except GceError as error:
                return Reply(error.status, json.dumps(error.body()),
                             Content_Type="application/json")

    @staticmethod
    def _ec2_operation(method, path, body):
        form = dict(urllib.parse.parse_qsl(body.decode(errors="replace")))
        return form.get("Action", "look")

    def _ec2(self, method, target, headers, body, fault):
        with self.lock:
            try:
                return Reply(200, self.ec2.handle(method, target, headers, body, fault),
                             Content_Type="text/xml;charset=UTF-8")
            except Ec2Error as error:
                return Reply(error.status, error.body(), Content_Type="text/xml;charset=UTF-8")

    def _oauth(self, method, target, headers, body, fault):
        form = dict(urllib.parse.parse_qsl(body.decode(errors="replace")))
        with self.lock:
            try:
                if fault is not None:
                    return Reply(fault["status"], "")
                if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
                    raise Denied("unsupported_grant_type")
                return Reply(200, json.dumps(self.google.exchange(form.get("assertion", ""),
                                                                  self.now())))
            except Denied as denied:
                return Reply(400, json.dumps({"error": str(denied)}))

    def _control(self, method, target, headers, body, fault):
        """POST /NAME calls do_NAME with the fields of a JSON object as arguments."""
        arguments = json.loads(body) if body else {}
        name = target.strip("/")
        with self.lock:
            function = getattr(self, "do_" + name, None)
            if function is None:
                return Reply(404, f"no control '{name}'")
            return Reply(200, json.dumps(function(**arguments)))

    def do_fault(self, **rule):
        self.faults.add(rule)

    def do_clear_faults(self):
        self.faults.clear()

    def do_reset(self):
        """Restores the initial state between tests: no faults, no machines, the right time."""
        self.faults.clear()
        self.machines.end_all()
        self.machines.by_name.clear()
        self.gce.operations.clear()
        self.gce.by_request.clear()
        self.ec2.by_token.clear()
        self.requests.clear()
        self.repeated.clear()
        self.gce.inserts = self.ec2.runs = self.google.given = 0
        self.clock_offset, self.stock, self.page_size, self.operation_polls = 0.0, None, 500, 1
        self.server_quota = None
        self.unknown_yet, self.machines.boot_s = False, None
        self.quotas = dict(QUOTAS)
        self.google.lifetime, self.role_lifetime, self.role = 3600, 21600, "worker-role"
        self.own.notice.set("withdraw")

    def do_set(self, **settings):
        """Changes settings: boot_s, clock_offset, operation_polls, page_size, quotas, server_quota,
        stock, unknown_yet, role, role_lifetime, token_lifetime, zones."""
        if "token_lifetime" in settings:
            self.google.lifetime = settings.pop("token_lifetime")
        if "boot_s" in settings:
            self.machines.boot_s = settings.pop("boot_s")
        for name, value in settings.items():
            if not hasattr(self, name):
                raise ValueError(name)
            setattr(self, name, value)

    def do_collect(self):
        self.machines.collect()

    def do_forget_imds_tokens(self):
        for metadata in self.metadata_servers:
            metadata.imds_tokens.clear()

    def do_connections(self):
        """The number of connections to metadata servers so far."""
        return self.connections

    def do_token(self):
        return self.google.give()

    def do_revoke_tokens(self):
        self.google.revoke_all()

    def do_notice(self, machine="self", **notice):
        """Gives a machine a notice. Returns the time from which its metadata server announces it;
        nothing if the notice begins later."""
        who = self.own if machine == "self" else self.machines.by_name[machine]
        return who.notice.set(**notice)

    def do_vanish(self, machine):
        """Ends the machine without a notice, as when a cloud takes it back. Returns the time."""
        self.machines.end(self.machines.by_name[machine], "Server.SpotInstanceTermination")
        return self.machines.by_name[machine].ended

    def do_requests(self, service=None, operation=None):
        """The recorded requests. Equal requests to metadata servers are one record with a count."""
        return [r for r in self.requests if service in (None, r["service"])
                and operation in (None, r["operation"])]

    def do_machines(self, states=None, whole=True):
        """The machines in these states. `whole`: with the request that made each, which is long."""
        return [{"name": m.name, "service": m.service, "zone": m.zone, "state": m.state,
                 "type": m.machine_type, "market": m.market, "labels": m.labels,
                 "created": m.created, "ended": m.ended, "reason": m.reason,
                 **({"startup": m.startup, "spec": getattr(m, "spec", None)} if whole else {})}
                for m in self.machines.by_name.values() if states is None or m.state in states]


def service_account(folder, private, token_uri):
    """Writes a key file in Google's format; returns its path."""
    path = os.path.join(folder, "service_account.json")
    with open(private) as key, open(path, "w") as file:
        json.dump({"type": "service_account", "project_id": "fake-project", "private_key_id": "k1",
                   "private_key": key.read(), "client_email": "mayfly@fake-project.example",
                   "token_uri": token_uri}, file)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="for keys, startup scripts and logs; default: temporary")
    parser.add_argument("--run-startup", action="store_true",
                        help="machines run their startup scripts as processes of this host")
    parser.add_argument("--operation-polls", type=int, default=1,
                        help="answers until an operation is done or a machine runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mayfly-fake-cloud-") as temporary:
        folder = options.folder or temporary
        os.makedirs(folder, exist_ok=True)
        cloud = Cloud(options, folder)
        certs = certificates.make()
        addresses = cloud.serve(certs)
        private, public = certs["account"]
        key_file = service_account(folder, private, addresses["oauth"])
        cloud.google = GoogleTokens(public, addresses["oauth"])
        key = next(iter(cloud.aws_secrets))
        print(json.dumps({**addresses, "ca_file": certs["authority"], "key_file": key_file,
                          "project": cloud.gce.project, "region": cloud.ec2.region,
                          "trap": cloud.trap_url, "access_key": key,
                          "secret_key": cloud.aws_secrets[key]}), flush=True)
        try:
            while sys.stdin.buffer.read1(4096):
                pass  # the parent process has not closed the pipe
        except KeyboardInterrupt:
            pass
        finally:
            with cloud.lock:
                cloud.machines.end_all()


if __name__ == "__main__":
    main()
