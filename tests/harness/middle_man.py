"""Attackers on the network: one records all packets that a lab of hosts sends, another forwards
connections and changes bytes in them.
"""
import os
import socket
import subprocess
import sys
import threading
import time

ETH_P_ALL = 3


class Ear:
    """Records every packet on the bridges of a `network.Network` until close()."""

    def __init__(self, network, path):
        self.path = path
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.name + "hub", sys.executable, os.path.abspath(__file__),
             path])
        while not os.path.exists(path):
            time.sleep(0.01)

    def close(self):
        self.process.terminate()
        self.process.wait()

    def heard(self):
        with open(self.path, "rb") as file:
            return file.read()


def listen(path):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        with open(path, "wb", buffering=0) as file:
            while True:
                file.write(sock.recv(1 << 17))


class ChangingProxy:
    """Listens on `endpoint` and forwards connections. It flips a bit in every `every`th byte,
    counted over both directions of all connections, at most `most` times."""

    def __init__(self, port, every, most):
        self.port, self.every, self.most = port, every, most
        self.lock = threading.Lock()
        self.passed = self.changed = self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self._start(self._accept)

    @staticmethod
    def _start(function, *args):
        threading.Thread(target=function, args=args, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            self.connections += 1
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._pass_on, near, far)
            self._start(self._pass_on, far, near)

    def _change(self, data):
        with self.lock:
            place = self.every - self.passed % self.every
            self.passed += len(data)
            if place > len(data) or self.changed == self.most:
                return data
            self.changed += 1
        return data[:place - 1] + bytes([data[place - 1] ^ 4]) + data[place:]

    def _pass_on(self, source, target):
        try:
            while data := source.recv(1 << 14):
                target.sendall(self._change(data))
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for sock in (source, target):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


if __name__ == "__main__":
    listen(sys.argv[1])
