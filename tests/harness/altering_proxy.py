"""A proxy between the control connection of a real worker and the coordinator. It does not know the
token and changes some of the worker's messages, so the coordinator sees a member that makes false
claims.
"""
import socket
import struct
import threading

import hostile


def number(data, at):
    """Decodes a number with seven bits in each byte; returns (value, position after it)."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


class Stopped:
    """The message Stopped (elastic/core/messages.cpp), with the fields that tests change."""

    def __init__(self, body):
        self.view, self.committed = struct.unpack_from("<QQ", body)
        runs, at = number(body, 16)
        for _ in range(2 * runs):
            _, at = number(body, at)
        self.held = body[16:at]
        self.finished, self.failed, has_culprit = body[at:at + 3]
        begin = at + 3
        at = begin + (8 if has_culprit else 0)
        self.culprit = body[at - (8 if has_culprit else 0) - 1:at]
        length = struct.unpack_from("<I", body, at)[0]
        end = at + 4 + length + 9  # detail, observed, contributed
        self.middle, self.dispute = body[at:end], body[end:]

    def encoded(self):
        return (struct.pack("<QQ", self.view, self.committed) + self.held +
                bytes([self.finished, self.failed]) + self.culprit + self.middle + self.dispute)


class AlteringProxy:
    """Listens on `endpoint`. `alter(kind, body)` returns the body that the coordinator receives:
    the same one, a changed one, or None to drop the message."""

    def __init__(self, coordinator_port, alter):
        self.port, self.alter = coordinator_port, alter
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self._start(self._accept)

    @staticmethod
    def _start(function, *args):
        threading.Thread(target=function, args=args, daemon=True).start()

    def _accept(self):
        while True:
            try:
                worker, _ = self.listener.accept()
            except OSError:
                return
            coordinator = hostile.open_door(("tcp", self.port))
            if coordinator is None:
                worker.close()
                continue
            for sock in (worker, coordinator):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            is_transfer = threading.Event()
            self._start(self._pass_on, coordinator, worker, lambda kind, body: body, is_transfer)
            self._start(self._pass_on, worker, coordinator, self.alter, is_transfer)

    @staticmethod
    def _pass_on(source, target, change, is_transfer):
        """Forwards messages through `change`. On a transfer connection it forwards all bytes after
        the handshake unchanged."""
        try:
            while not is_transfer.is_set():
                kind, body = hostile.receive_frame(source)
                if kind == hostile.HELLO and body[4] == hostile.TRANSFER:
                    is_transfer.set()  # before the Hello is forwarded, so the answer finds it set
                body = change(kind, body)
                if body is not None:
                    target.sendall(hostile.frame(kind, body))
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
