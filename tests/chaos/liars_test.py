"""Goal: a worker that knows the token and says what is not true of its steps, its sums, its state
or the job's end is evicted with a note that says why; the job goes on with the others, and every
step has the bits of the undisturbed run.
Method: one of four real workers speaks through a proxy that changes some of its messages. Most lies
come out when members are compared, so another worker is killed.
"""
import os
import struct

import hostile
import mayfly_run
from endless_job import EndlessJob
from lying_proxy import LyingProxy, Stopped
from mayfly_run import expect


FLIPS_A_BIT = ["--launched", "--chaos", "flip_weights@step=60"]


class Liar:
    """Lies `times` times at most, from step 5 on and until it is evicted and joins again;
    `change(stopped)` changes its report. What it says of its progress it says again and again:
    nobody listens to that while a view ends."""

    def __init__(self, change=None, change_progress=None, times=1):
        self.change, self.change_progress, self.left = change, change_progress, times
        self.is_armed, self.has_lied = False, False

    def lie(self, kind, body):
        if kind == hostile.READY:
            self.is_armed = False
        if not self.is_armed or self.left == 0:
            return body
        if kind == hostile.STOPPED and self.change is not None:
            stopped = Stopped(body)
            if self.change(stopped) is not False:
                self.left -= 1
                self.has_lied = self.left == 0
            return stopped.encoded()
        if kind == hostile.PROGRESS and self.change_progress is not None:
            self.has_lied = True
            view, committed = struct.unpack_from("<QQ", body)
            return struct.pack("<QQ", view, self.change_progress(committed)) + body[16:]
        return body


def play(name, liar, *words, kills=1, kind="evicted"):
    """Three honest workers, the liar; then one of the honest is killed."""
    job = EndlessJob(4, timeout=120)
    proxy = LyingProxy(job.ports["run"], liar.lie)
    job.start_workers(3)
    worker = job.start_worker(proxy.endpoint)
    job.run.wait_for_step(5)
    member = next(m["id"] for m in job.status()["members"] if m["pid"] == worker.pid)
    liar.is_armed = True
    while liar.change_progress is not None and not liar.has_lied:
        job.wait_for_more_steps(1)  # what is said before the view ends comes out at its end
    for number in range(kills):
        job.workers[number].kill()
    job.wait_for_event(kind)
    liar.is_armed = False
    found = job.events(kind)[:1]
    print(f"{name}: {found[0]['detail']}")
    expect([e["member"] for e in found] == [member], f"{name}: member {member} lies: {found}")
    for word in words:
        expect(word in found[0]["detail"], f"{name}: not the reason: {found[0]['detail']}")
    job.wait_for_more_steps(20)
    expect(liar.has_lied, f"{name}: it has not lied")
    job.wait_for(lambda: "joining again" in worker.output(), f"{name}: it does not join again")
    lost = job.events("lost")
    expect(len(lost) == kills, f"{name}: nobody else goes: {lost}")
    job.finish()
    proxy.close()


def steps():
    def later(stopped):
        stopped.committed += 5
    play("later steps", Liar(later), "says that it has committed", "while the others are at")

    def earlier(stopped):
        stopped.committed -= 3
    play("earlier steps", Liar(earlier), "says that it has committed")
    play("progress", Liar(change_progress=lambda committed: committed + 1000),
         "says that it has committed")


def sums():
    def of_others(stopped):
        stopped.held = b"\x01\x00\x04"  # one run: the four microbatches of a step
    play("sums of others", Liar(of_others), "says that it holds microbatch")


def false_hashes(stopped):
    """Whatever the others have in common, this is something else."""
    contradicts_itself, unanswered = 0, 0
    stopped.dispute = (b"\x01" + struct.pack("<I", 2) + os.urandom(16) +
                       bytes([contradicts_itself, unanswered]))


def digest():
    """Members find that their states differ, because a bit flips in one of five; and when they say
    what they have, another one lies, even if its group was aborted before it saw a difference. What
    three have in common is right."""
    job = EndlessJob(5, timeout=120)
    liar = Liar(false_hashes, times=100)  # as often as states are compared
    proxy = LyingProxy(job.ports["run"], liar.lie)
    job.start_workers(3)
    lying = job.start_worker(proxy.endpoint)
    flipped = job.start_worker(job.endpoint(), extra=FLIPS_A_BIT)
    job.run.wait_for_step(5)
    ids = {m["pid"]: m["id"] for m in job.status()["members"]}
    liar.is_armed = True
    job.wait_for_event("corrupted", 2)
    liar.is_armed = False
    found = job.events("corrupted")
    print("a flipped bit and a false digest:", [e["detail"] for e in found])
    expect(sorted(e["member"] for e in found) == sorted([ids[lying.pid], ids[flipped.pid]]),
           f"these two go: {ids}, {found}")
    job.wait_for_more_steps(20)
    job.finish()
    proxy.close()


def false_alarm():
    """Members stop because one is killed, and one says that states differ: nobody else has seen
    that, the next view compares, and all is well."""
    job = EndlessJob(4, timeout=120)
    liar = Liar(false_hashes, times=2)
    proxy = LyingProxy(job.ports["run"], liar.lie)
    job.start_workers(3)
    job.start_worker(proxy.endpoint)
    job.run.wait_for_step(5)
    liar.is_armed = True
    for number in range(2):
        job.workers[number].kill()
        job.wait_for_event("lost", number + 1)
        job.wait_for_more_steps(5)
    expect(liar.has_lied, "it has not lied")
    expect(not job.events("corrupted"), f"nobody is corrupted: {job.events('corrupted')}")
    job.finish()
    proxy.close()


def end():
    def finished(stopped):
        stopped.finished = 1
    play("the end", Liar(finished), "is the last one; the job's last is step")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "steps": steps, "sums": sums, "digest": digest, "false_alarm": false_alarm, "end": end}))
