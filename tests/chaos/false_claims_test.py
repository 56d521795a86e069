"""Goal: a worker that knows the token and sends false claims about its steps, its sums, its state
or the job's end is evicted with a record of the reason. The job goes on with the other workers, and
every step has the bits of the undisturbed run.
Method: one of four real workers is connected through a proxy that changes some of its messages. The
coordinator finds most false claims when it compares the reports at the end of a view, so another
worker is killed.
"""
import os
import struct

import hostile
import mayfly_run
from endless_job import EndlessJob
from altering_proxy import AlteringProxy, Stopped
from mayfly_run import expect


FLIPS_A_BIT = ["--launched", "--chaos", "flip_weights@step=60"]


class FalseClaims:
    """Changes messages of one member, from step 5 on until it is evicted and joins again.
    `change(stopped)` changes the report Stopped, at most `times` times. `change_progress` changes
    every Progress message, because the coordinator ignores those that arrive while a view ends."""

    def __init__(self, change=None, change_progress=None, times=1):
        self.change, self.change_progress, self.left = change, change_progress, times
        self.is_armed, self.is_made = False, False

    def alter(self, kind, body):
        if kind == hostile.READY:
            self.is_armed = False
        if not self.is_armed or self.left == 0:
            return body
        if kind == hostile.STOPPED and self.change is not None:
            stopped = Stopped(body)
            if self.change(stopped) is not False:
                self.left -= 1
                self.is_made = self.left == 0
            return stopped.encoded()
        if kind == hostile.PROGRESS and self.change_progress is not None:
            self.is_made = True
            view, committed = struct.unpack_from("<QQ", body)
            return struct.pack("<QQ", view, self.change_progress(committed)) + body[16:]
        return body


def play(name, claims, *words, kills=1, kind="evicted"):
    """Runs three honest workers and one with false claims, and then kills `kills` of the honest
    ones. The worker with false claims must be evicted with `words` as the reason."""
    job = EndlessJob(4, timeout=120)
    proxy = AlteringProxy(job.ports["run"], claims.alter)
    job.start_workers(3)
    worker = job.start_worker(proxy.endpoint)
    job.run.wait_for_step(5)
    member = next(m["id"] for m in job.status()["members"] if m["pid"] == worker.pid)
    claims.is_armed = True
    while claims.change_progress is not None and not claims.is_made:
        job.wait_for_more_steps(1)  # the claim is sent now, and detected when the view ends
    for number in range(kills):
        job.workers[number].kill()
    job.wait_for_event(kind)
    claims.is_armed = False
    found = job.events(kind)[:1]
    print(f"{name}: {found[0]['detail']}")
    expect([e["member"] for e in found] == [member], f"{name}: member {member} lies: {found}")
    for word in words:
        expect(word in found[0]["detail"], f"{name}: not the reason: {found[0]['detail']}")
    job.wait_for_more_steps(20)
    expect(claims.is_made, f"{name}: no false claim was made")
    job.wait_for(lambda: "joining again" in worker.output(), f"{name}: it does not join again")
    lost = job.events("lost")
    expect(len(lost) == kills, f"{name}: nobody else goes: {lost}")
    job.finish()
    proxy.close()


def steps():
    def later(stopped):
        stopped.committed += 5
    play("later steps", FalseClaims(later), "says that it has committed", "while the others are at")

    def earlier(stopped):
        stopped.committed -= 3
    play("earlier steps", FalseClaims(earlier), "says that it has committed")
    play("progress", FalseClaims(change_progress=lambda committed: committed + 1000),
         "says that it has committed")


def sums():
    def of_others(stopped):
        stopped.held = b"\x01\x00\x04"  # one run: the four microbatches of a step
    play("sums of others", FalseClaims(of_others), "says that it holds microbatch")


def false_hashes(stopped):
    """Replaces the hashes of the state by random ones, which no other member has."""
    contradicts_itself, unanswered = 0, 0
    stopped.dispute = (b"\x01" + struct.pack("<I", 2) + os.urandom(16) +
                       bytes([contradicts_itself, unanswered]))


def digest():
    """A bit flips in the state of one of five members, and the members find that their states
    differ. When they report their hashes, another member sends false ones, even if its group was
    aborted before it saw a difference. The state that three members have in common is right."""
    job = EndlessJob(5, timeout=120)
    claims = FalseClaims(false_hashes, times=100)  # as often as states are compared
    proxy = AlteringProxy(job.ports["run"], claims.alter)
    job.start_workers(3)
    lying = job.start_worker(proxy.endpoint)
    flipped = job.start_worker(job.endpoint(), extra=FLIPS_A_BIT)
    job.run.wait_for_step(5)
    ids = {m["pid"]: m["id"] for m in job.status()["members"]}
    claims.is_armed = True
    job.wait_for_event("corrupted", 2)
    claims.is_armed = False
    found = job.events("corrupted")
    print("a flipped bit and a false digest:", [e["detail"] for e in found])
    expect(sorted(e["member"] for e in found) == sorted([ids[lying.pid], ids[flipped.pid]]),
           f"these two go: {ids}, {found}")
    job.wait_for_more_steps(20)
    job.finish()
    proxy.close()


def false_alarm():
    """Members stop because one of them is killed, and one member falsely reports that states
    differ. The members of the next view compare their states, which are equal."""
    job = EndlessJob(4, timeout=120)
    claims = FalseClaims(false_hashes, times=2)
    proxy = AlteringProxy(job.ports["run"], claims.alter)
    job.start_workers(3)
    job.start_worker(proxy.endpoint)
    job.run.wait_for_step(5)
    claims.is_armed = True
    for number in range(2):
        job.workers[number].kill()
        job.wait_for_event("lost", number + 1)
        job.wait_for_more_steps(5)
    expect(claims.is_made, "no false claim was made")
    expect(not job.events("corrupted"), f"nobody is corrupted: {job.events('corrupted')}")
    job.finish()
    proxy.close()


def end():
    def finished(stopped):
        stopped.finished = 1
    play("the end", FalseClaims(finished), "is the last one; the job's last is step")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "steps": steps, "sums": sums, "digest": digest, "false_alarm": false_alarm, "end": end}))
