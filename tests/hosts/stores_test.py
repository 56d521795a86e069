"""Goal: the stores of hosts (--store --store-peers) lose nothing with a host for which there was
room elsewhere, on a network that does not say that the host is gone either.
Method: workers with stores of their own in network namespaces; a host loses its power when spare
room holds second copies, or gets a notice; the digest of an undisturbed job, and the times of the
last access to the images.
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
