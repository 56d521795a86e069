"""Goal: an attacker may connect to any port of a job and send anything, or nothing, without an
effect on the job: the result has the same bits, every worker can join, and no process uses more and
more memory. Every such connection is closed, and the log names the attacker's address.
Method: real processes on loopback. The attacker connects to every socket on which they listen, and
may even know the token. The oracle is the digest of the undisturbed run.
"""
import os
import re
import socket
import struct
import threading
import time

import hostile
import mayfly_run
from endless_job import EndlessJob
from mayfly_run import expect

CLOSED_WITHIN = 20  # seconds, on a busy machine; the job's own limits are a few seconds
# With this setting a joining worker receives even a small state from a donor, which listens for it.
# An attack mostly waits, so the workers are slowed down: they sleep most of the time.
JOB = ["--observe-from-mib", "0", "--inject", "slow=4x"]


def start(workers=3):
    job = EndlessJob(workers, JOB)
    job.start_workers(workers)
    job.run.wait_for_step(3)
    return job


def protocol_of(job):
    """The protocol version, from the coordinator's refusal of a client with another version."""
    sock, kind, body = hostile.say_hello(job.ports["run"], job.token(), 0)
    sock.close()
    expect(kind == hostile.REFUSED, f"version 0 is answered by message {kind}")
    return int(re.search(r"speaks (\d+)", hostile.refusal(body)).group(1))


def doors(job):
    return sorted({door for pid in job.living() for door in hostile.listening(pid)})


class Watch(threading.Thread):
    """Records the maximum of memory and of open descriptors of each of the job's processes."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.first, self.most, self.over = job, {}, {}, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            for pid in self.job.living():
                now = hostile.usage(pid)
                if now:
                    most = self.most.setdefault(pid, dict(now))
                    self.first.setdefault(pid, now)
                    most.update({key: max(most[key], number) for key, number in now.items()})

    def expect_growth_below(self, mib, descriptors):
        self.over.set()
        self.join()
        for pid, most in self.most.items():
            first = self.first[pid]
            expect(most["descriptors"] <= first["descriptors"] + descriptors,
                   f"process {pid}: descriptors grew from {first} to {most}")
            expect(most["mib"] <= first["mib"] + mib, f"process {pid} grew from {first} to {most}")
        print("at most", max(m["descriptors"] for m in self.most.values()), "descriptors,",
              f"{max(m['mib'] - self.first[p]['mib'] for p, m in self.most.items()):.0f} MiB more")


def change_members(job):
    """Kills a worker and starts another one. Returns how long the new one took to join, in
    seconds."""
    lost, joined = len(job.events("lost")), len(job.events("join"))
    next(w for w in job.workers if w.alive()).kill()
    job.wait_for_event("lost", lost + 1)
    begin = time.monotonic()
    job.start_workers(1)
    job.wait_for_event("join", joined + 1)
    return time.monotonic() - begin


def expect_told(text, door, who, words, verb="turned"):
    """Expects that the log names the attackers, but that they cannot fill it. A client that may be
    one of the user's workers is "refused", because the user looks for that reason; others are
    "turned away".
    """
    lines = [line for line in text.splitlines() if f"{door}: {verb} {who}" in line]
    expect(lines, f"the log says nothing of {who} at the {door}:\n{text[-2000:]}")
    expect(len(lines) < 150, f"{len(lines)} lines in the log")
    for word in words:
        expect(any(word in line for line in lines), f"nobody was turned away for '{word}': {lines}")


def thousand_silent():
    """Connections to every listening socket that send nothing. Members can still join and leave,
    and every such connection is closed while the job runs."""
    job = start()
    change_members(job)  # now one worker is a donor, and listens
    watch = Watch(job)
    where = doors(job)
    expect(len(where) >= 8, f"a port and a Unix socket each, a donor, the coordinator: {where}")
    silent = [hostile.open_door(door) for door in where for _ in range(1000 // len(where))]
    silent = [sock for sock in silent if sock is not None]
    expect(len(silent) > 900, f"only {len(silent)} connections")
    print(f"{len(silent)} connections at {len(where)} doors; then somebody died and another joined "
          f"in {change_members(job):.1f} s")
    left = hostile.wait_until_closed(silent, CLOSED_WITHIN)
    expect(left == 0, f"{left} silent connections are kept")
    watch.expect_growth_below(mib=64, descriptors=300)
    expect_told(job.coordinator_log(), "control port", "127.0.0.1", ["no handshake in time"])
    workers = "".join(worker.output() for worker in job.workers)
    expect_told(workers, "gradient port", "127.0.0.1", ["no hello in time"])
    expect_told(workers, "state donor", "127.0.0.1", ["sent no request in time"])
    job.finish()


def nonsense_everywhere():
    """Random bytes, incomplete messages, impossible lengths, other versions and hellos for views
    that never exist are sent to every listening socket, all the time, while members join and
    leave."""
    job = start()
    change_members(job)
    protocol = protocol_of(job)
    chance = hostile.rng(os.environ.get("MAYFLY_TEST_SEEDS", "1"))
    watch, over, count = Watch(job), threading.Event(), [0]

    def attack_all():
        held = []
        while not over.is_set():
            for door in doors(job):
                held += [hostile.attack(door, chance, protocol) for _ in range(4)]
                count[0] += 4
            held = hostile.still_open([sock for sock in held if sock is not None])
            time.sleep(0.02)  # leaves processor time for the job
        count.append(hostile.wait_until_closed(held, CLOSED_WITHIN))

    attacker = threading.Thread(target=attack_all)
    attacker.start()
    try:
        for _ in range(3):
            change_members(job)
            job.wait_for_more_steps(20)
    finally:
        over.set()
        attacker.join()
    print(f"{count[0]} attacks")
    expect(count[0] > 200, f"only {count[0]} attacks")
    expect(count[1] == 0, f"{count[1]} hostile connections are kept")
    watch.expect_growth_below(mib=64, descriptors=300)
    expect_told(job.coordinator_log(), "control port", "127.0.0.1", ["no handshake"])
    workers = "".join(worker.output() for worker in job.workers)
    expect_told(workers, "gradient port", "127.0.0.1", ["uses another protocol"])
    lost = job.events("lost")
    expect(len(lost) == 4, f"only those were lost that we killed: {lost}")
    expect(not job.events("evicted"), f"somebody was evicted: {job.events('evicted')}")
    job.finish()


def wrong_token_and_replay():
    """Attackers with the token of another job, and attackers that replay a recorded proof."""
    job = start()
    port, token, protocol = job.ports["run"], job.token(), protocol_of(job)
    for role in (hostile.WORKER, hostile.SENTINEL, hostile.OPERATOR):
        sock, kind, body = hostile.say_hello(port, os.urandom(32), protocol, role, member=1)
        expect(kind == hostile.REFUSED and hostile.refusal(body) == "wrong token", (kind, body))
        sock.close()
    sock, challenge = hostile.greeted(port)
    nonce = os.urandom(32)
    proof = hostile.proof_of(token, challenge, nonce, hostile.OPERATOR)
    said = hostile.frame(hostile.HELLO,
                         hostile.hello_body(nonce, proof, hostile.OPERATOR, protocol))
    sock.sendall(said)
    expect(hostile.receive_frame(sock)[0] == hostile.WELCOME, "the right token is refused")
    replayed, _ = hostile.greeted(port)
    replayed.sendall(said)
    kind, body = hostile.receive_frame(replayed)
    expect(kind == hostile.REFUSED and hostile.refusal(body) == "wrong token", "a replay is heard")
    for old in (sock, replayed):
        old.close()
    expect_told(job.coordinator_log(), "control port", "127.0.0.1",
                ["wrong token", "protocol version 0"], verb="refused")
    expect(not job.events("lost"), job.events("lost"))
    job.finish()


def join_as_impostor(job, protocol, address=""):
    """Opens a session as a worker with the job's fingerprint (model, data set and so on). It learns
    the fingerprint from the coordinator's refusals: each one names a property."""
    fingerprint = {}
    while True:
        sock, kind, body = hostile.say_hello(
            job.ports["run"], job.token(), protocol, address=address,
            fingerprint=sorted(fingerprint.items()))
        if kind == hostile.WELCOME:
            return sock, struct.unpack_from("<Q", body)[0]
        sock.close()
        told = re.match(r"(.*?): the job has (.*), this worker has ", hostile.refusal(body))
        expect(told and told.group(1) not in fingerprint, f"refused: {hostile.refusal(body)}")
        fingerprint[told.group(1)] = told.group(2)


def ready_impostors():
    """An attacker that knows the token reports that it is ready and then only sends heartbeats. It
    is given work, does not join the group, and is evicted."""
    job = start()
    protocol = protocol_of(job)
    deaf = socket.create_server(("127.0.0.1", 0))  # accepts connections and never answers
    host, port = deaf.getsockname()
    for address in ("nowhere", f"{host}:{port}"):
        sock, member = join_as_impostor(job, protocol, address)
        sock.sendall(hostile.frame(hostile.READY, struct.pack("<QQ", 0, 1000)))
        stop = threading.Event()
        threading.Thread(target=live_on, args=(sock, stop), daemon=True).start()
        def gone():
            return [e for e in job.events("lost") + job.events("evicted")
                    if e.get("member") == member]
        job.wait_for(gone, f"an impostor at '{address}' stays")
        stop.set()
        print(f"at '{address}': {gone()[0]['kind']}, {gone()[0]['detail']}")
        job.wait_for_more_steps(5)
    deaf.close()
    expect(sorted(m["id"] for m in job.status()["members"]) == [1, 2, 3], job.status())
    job.finish()


def live_on(sock, stop):
    """Sends ten heartbeats a second and reads no answers."""
    try:
        while not stop.wait(0.1):
            sock.sendall(hostile.frame(hostile.HEARTBEAT, b"\0\0"))
            hostile.still_open([sock])
            sock.setblocking(True)
    except OSError:
        pass


def impostors():
    """Attackers that know the token and send invalid messages, or none, are soon disconnected. No
    other member is affected."""
    job = start()
    protocol = protocol_of(job)
    watch = Watch(job)
    far = struct.pack("<QQ", 99, 1 << 40)
    sayings = {
        "nothing": [],
        "the coordinator's words": [hostile.frame(hostile.DISMISS,
                                                  b"\0\0" + hostile.blob(b"x") + b"\0")],
        "a frame that is too long": [struct.pack("<I", 1 << 30)],
        "half a message": [hostile.frame(hostile.PROGRESS, far + b"\0" * 8)[:-5]],
        "no message": [hostile.frame(250, b"")],
        "everything out of order": [hostile.frame(hostile.SYNCED, struct.pack("<Q", 1)),
                                    hostile.frame(hostile.FORMED, struct.pack("<Q", 1 << 63)),
                                    hostile.frame(hostile.PROGRESS, far + b"\0" * 8),
                                    hostile.frame(hostile.READY, struct.pack("<QQ", 1 << 50, 8))],
    }
    for name, frames in sayings.items():
        sock, member = join_as_impostor(job, protocol)
        sock.sendall(b"".join(frames))
        left = hostile.wait_until_closed([sock], CLOSED_WITHIN)
        expect(left == 0, f"an impostor that says {name} stays")
        gone = [e for e in job.events("lost") + job.events("evicted") if e.get("member") == member]
        expect(len(gone) == 1, f"{name}: no word of member {member} in events.jsonl: {gone}")
        print(f"{name}: {gone[0]['kind']}, {gone[0]['detail']}")
    job.wait_for_more_steps(5)
    expect(sorted(m["id"] for m in job.status()["members"]) == [1, 2, 3], job.status())
    watch.expect_growth_below(mib=64, descriptors=100)
    job.finish()


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "thousand_silent": thousand_silent, "nonsense_everywhere": nonsense_everywhere,
        "wrong_token_and_replay": wrong_token_and_replay, "impostors": impostors,
        "ready_impostors": ready_impostors}))
