"""A hostile client that sends arbitrary data to the ports of a job, and functions that measure the
sockets and memory of the job's processes meanwhile. It implements the first messages of the control
protocol (elastic/core/messages), the hello of a group (collectives/tcp/tcp_handshake) and the
request for a state (engine/state/state_transfer).
"""
import hashlib
import hmac
import os
import random
import socket
import struct
import time

CHALLENGE, HELLO, WELCOME, REFUSED, READY, STOPPED, FORMED, SYNCED, PROGRESS = range(9)
HEARTBEAT, DISMISS = 9, 18
WORKER, SENTINEL, OPERATOR, TRANSFER = range(4)
GROUP_MAGIC = int.from_bytes(b"mymesh01", "little")
PART_MAGIC = int.from_bytes(b"mypart01", "little")


# --- the sockets of processes

def listening(pid):
    """The sockets on which a process listens: ("tcp", port) and ("unix", name)."""
    inodes = set()
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{entry}")
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        with open(f"/proc/{pid}/net/tcp") as f:
            tcp = [line.split() for line in f.readlines()[1:]]
        with open(f"/proc/{pid}/net/unix") as f:
            unix = [line.split() for line in f.readlines()[1:]]
    except OSError:
        return []
    doors = [("tcp", int(w[1].split(":")[1], 16)) for w in tcp if w[3] == "0A" and w[9] in inodes]
    return doors + [("unix", w[7]) for w in unix
                    if len(w) > 7 and w[3] == "00010000" and w[6] in inodes]


def open_door(door, timeout=2):
    """A connection to a socket that listening() returned; None if it cannot be connected to."""
    kind, where = door
    sock = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
    sock.settimeout(timeout)
    try:
        if kind == "tcp":
            sock.connect(("127.0.0.1", where))
        else:
            sock.connect("\0" + where[1:] if where.startswith("@") else where)
    except OSError:
        sock.close()
        return None
    return sock


def usage(pid):
    """Resident MiB and open descriptors of a process, or None if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        return {"mib": int(fields["VmRSS"].split()[0]) / 1024,
                "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}
    except (OSError, KeyError):
        return None


# --- the control protocol

def blob(data):
    return struct.pack("<I", len(data)) + data


def frame(kind, body):
    return struct.pack("<IB", 1 + len(body), kind) + body


def receive(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError("the other side closed")
        data += part
    return data


def receive_frame(sock):
    """(kind, body) of the next message."""
    length = struct.unpack("<I", receive(sock, 4))[0]
    message = receive(sock, length)
    return message[0], message[1:]


def hello_body(nonce, proof, role=WORKER, protocol=None, member=0, address="", fingerprint=()):
    """The body of a Hello (elastic/core/messages.hpp) from a new worker without a server's name."""
    pairs = b"".join(blob(n.encode()) + blob(v.encode()) for n, v in fingerprint)
    return (struct.pack("<IB", protocol, role) + blob(nonce) + blob(proof) +
            struct.pack("<Q", member) + blob(b"hostile") + struct.pack("<I", os.getpid()) +
            blob(address.encode()) + blob(b"") + struct.pack("<I", len(fingerprint)) + pairs +
            struct.pack("<QQQQBI", 0, 0, 0, 0, 0, 0))


def greeted(port, timeout=10):
    """Connects to a coordinator; returns the connection and the nonce of the challenge."""
    sock = open_door(("tcp", port), timeout)
    kind, body = receive_frame(sock)
    assert kind == CHALLENGE, kind
    return sock, body[4:]


def proof_of(token, challenge, nonce, role):
    return hmac.new(token, challenge + nonce + bytes([role]), hashlib.sha256).digest()


def say_hello(port, token, protocol, role=WORKER, **more):
    """Goes through the handshake; returns (socket, kind, body) of the answer."""
    sock, challenge = greeted(port)
    nonce = os.urandom(32)
    proof = proof_of(token, challenge, nonce, role)
    sock.sendall(frame(HELLO, hello_body(nonce, proof, role, protocol, **more)))
    kind, body = receive_frame(sock)
    return sock, kind, body


def refusal(body):
    length = struct.unpack_from("<I", body)[0]
    return body[4:4 + length].decode()


# --- attacks

def nonsense(chance, protocol):
    """The bytes of one random attack, which may be sent to any port."""
    which = chance.randrange(8)
    if which == 0:
        return chance.randbytes(chance.randrange(1, 6000))
    if which == 1:  # half a frame
        return frame(HELLO, chance.randbytes(200))[:chance.randrange(1, 100)]
    if which == 2:  # a frame with an impossible length
        return struct.pack("<I", chance.choice([0, 65537, 1 << 24, 0xffffffff])) + b"x" * 64
    if which == 3:  # a worker of another version, with a wrong proof
        version = chance.choice([0, protocol - 1, protocol + 1, 0xffffffff])
        return frame(HELLO, hello_body(os.urandom(32), os.urandom(32), protocol=version))
    if which == 4:  # a message that only members may send
        return frame(chance.randrange(2, 28), chance.randbytes(24))
    if which == 5:  # the hello of a group, for a view that the job may or may not reach
        view = chance.choice([0, 1, 2, 1 << 32, (1 << 64) - 1])
        return struct.pack("<QQQII", GROUP_MAGIC, view, chance.getrandbits(64),
                           chance.randrange(4), chance.randrange(4))
    if which == 6:  # half of a group's hello
        return struct.pack("<QQ", GROUP_MAGIC, 1)
    return struct.pack("<QQQ", PART_MAGIC, chance.randrange(4), chance.getrandbits(64))


def attack(door, chance, protocol):
    """Opens a hostile connection and leaves it open; returns it, or None if it was refused."""
    sock = open_door(door, 0.5)
    if sock is None:
        return None
    try:
        sock.setblocking(False)
        if chance.randrange(4):
            sock.send(nonsense(chance, protocol))
        if chance.randrange(3) == 0:
            sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    return sock


def still_open(socks):
    """The connections of `socks` that the other side has not closed."""
    left = []
    for sock in socks:
        sock.setblocking(False)
        try:
            while sock.recv(1 << 16):
                pass
            sock.close()
        except BlockingIOError:
            left.append(sock)
        except OSError:
            sock.close()
    return left


def wait_until_closed(socks, seconds):
    """Waits at most so many seconds until the other side has closed all connections; returns the
    number of connections that are still open."""
    deadline = time.monotonic() + seconds
    while socks and time.monotonic() < deadline:
        socks = still_open(socks)
        time.sleep(0.05)
    for sock in socks:
        sock.close()
    return len(socks)


def rng(seed):
    return random.Random(f"hostile {seed}")
