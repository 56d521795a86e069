"""Runs the fake cloud (tests/fake_cloud) as a child process of a test or a demonstration."""
import atexit
import json
import os
import subprocess
import sys
import urllib.request

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fake_cloud",
                       "fake_cloud.py")


class FakeCloud:
    """`addresses`: the addresses that the fake cloud prints when it starts. It ends with this
    process."""

    def __init__(self, *options):
        self.process = subprocess.Popen([sys.executable, PROGRAM, *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.stop)
        self.addresses = json.loads(self.process.stdout.readline())

    def control(self, name, **arguments):
        """Calls one of the do_... functions of tests/fake_cloud/fake_cloud.py."""
        request = urllib.request.Request(f"{self.addresses['control']}/{name}", method="POST",
                                         data=json.dumps(arguments).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()
