"""Scripted faults: which requests fail, how often, and in which way."""
import socket
import threading
import time


class Faults:
    """Rules in the order in which they were added. A request gets the first rule that matches it
    and is not used up.

    A rule: {"service": "gce", "operation": "insert", "times": 2, "after": 0, "kind": KIND, ...}.
    "*" matches any service or operation; "after" is the number of requests that succeed first.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._rules = []

    def add(self, rule):
        with self._lock:
            self._rules.append({"service": "*", "operation": "*", "times": 1, "after": 0, **rule})

    def clear(self):
        with self._lock:
            self._rules.clear()

    def take(self, service, operation):
        """Returns the rule for this request, and counts its use; None if no rule applies."""
        with self._lock:
            for rule in self._rules:
                if (rule["service"] not in ("*", service) or rule["times"] <= 0
                        or rule["operation"] not in ("*", operation)):
                    continue
                if rule["after"] > 0:
                    rule["after"] -= 1
                    continue
                rule["times"] -= 1
                return rule
        return None


# Faults that are possible for every request. "lose" carries the request out before it closes.
TRANSPORT = ("hang", "close", "lose", "garbage", "truncate", "huge", "redirect", "not_http", "drip",
             "headers")


def misbehave(handler, kind):
    """Answers `handler`'s request as a broken or hostile server would."""
    out = handler.wfile
    handler.close_connection = True

    def head(status, *headers):
        out.write("\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode())

    try:
        if kind == "hang":
            handler.connection.settimeout(60)
            handler.connection.recv(1)  # until the client gives up
        elif kind == "garbage":
            text = b"<<<\x00{not what you expect"
            head("200 OK", f"Content-Length: {len(text)}", "Content-Type: application/json")
            out.write(text)
        elif kind == "truncate":
            head("200 OK", "Content-Length: 1000")
            out.write(b"{")
        elif kind == "huge":
            head("200 OK", "Content-Type: application/json")
            while True:
                out.write(b"[" * 65536)
        elif kind == "redirect":
            head("302 Found", f"Location: {handler.server.cloud.trap_url}", "Content-Length: 0")
        elif kind == "not_http":
            out.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        elif kind == "drip":
            head("200 OK", "Content-Length: 100000")
            while True:
                out.write(b" ")
                out.flush()
                time.sleep(0.02)
        elif kind == "headers":
            out.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                out.write(b"X-Pad: " + b"y" * 8000 + b"\r\n")
        out.flush()
    except OSError:
        pass  # the client has closed the connection
    finally:
        try:
            handler.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
