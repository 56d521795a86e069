"""Goal: when a host is lost, even silently, the stores of the other hosts (--store --store-peers)
still have all images for which they had room.
Method: workers with stores of their own in network namespaces. A host loses its power after second
copies have filled the spare room, or it gets a notice. The digest must be that of an undisturbed
job; the images' times of last access show whether one was read from storage again.
"""
import signal

import mayfly_run
import network
from mayfly_run import expect
from store_hosts import wait_for_second_copies, spares_storage


def hosts_of_network():
    lack = network.reason_to_skip()
    if lack is not None:
        print(f"skipped: {lack}")
        raise SystemExit(mayfly_run.SKIP)
    return network.Network(4)


def power_cut():
    def cut(hosts):
        hosts.cluster.network.pull_out(2)
        hosts.cluster.workers[1].kill()
    spares_storage(1.2, cut, before=wait_for_second_copies, network=hosts_of_network())


def notice():
    def warn(hosts):
        cluster, worker = hosts.cluster, hosts.cluster.workers[1]
        worker.signal(signal.SIGTERM)
        code = cluster.wait_for_end(worker, "the worker that was told to leave is still there")
        expect(code == 0, worker.output())
        cluster.network.pull_out(2)
    spares_storage(0.6, warn, network=hosts_of_network())


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"power_cut": power_cut, "notice": notice}))
