"""Goal: the commands of docs/cloud_providers.md for the coordinator's machine do what the page
describes, from an unpacked bundle to the release of all servers.
Method: the test reads the commands from the page and runs them in the page's order against the fake
Compute Engine, whose metadata server gives the token. Only names, addresses and sizes are changed.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time

import mayfly_run
from fake_cloud_job import bundle_of
from fake_cloud_process import FakeCloud
from mayfly_run import LISTS_ARE_EXACT, Run, expect

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
PAGE = os.path.join(ROOT, "docs", "cloud_providers.md")
ZONES = ["us-central1-a", "us-central1-b"]
PATIENCE_S = 200


def commands_of_the_page():
    """The commands of the page's first part for the coordinator's machine, with continued lines
    joined."""
    with open(PAGE) as f:
        text = f.read()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition(" # ")[0].strip() for line in lines
            if line.startswith(("mayfly/mayfly ", "tar "))]


def replaced(command, changes):
    for old, new in changes.items():
        command = command.replace(old, new)
    return command


class Page:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="mayfly-docs-page-")
        self.cloud = FakeCloud("--run-startup", "--folder", os.path.join(self.folder, "cloud"))
        self.cloud.control("set", zones=ZONES, boot_s=0.2)
        at = self.cloud.addresses
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "HOME", "MAYFLY_TEST_MAX_ISA")
                if name in os.environ}
        self.environment = {**keep, **LISTS_ARE_EXACT, "SSL_CERT_FILE": at["ca_file"],
                            "GCE_METADATA_HOST": at["metadata"].partition("//")[2]}
        shutil.copy(bundle_of(mayfly_run.BINARY), self.folder)
        changes = {'"$(hostname -I | cut -d\' \' -f1)"': "127.0.0.1", "--port 7000": "--port 0",
                   "--cloud-bundle-port 7001": "--cloud-bundle-port 0",
                   "--threads 8": "--threads 1", "--workers 8": "--workers 2",
                   "scale runs/a 4": "scale runs/a 1",
                   "project=P zone=": f"project={at['project']} endpoint={at['gce']} zone=",
                   " --watch": ""}
        page = commands_of_the_page()
        for old in changes:
            expect(any(old in command for command in page), f"the page does not say {old}")
        self.commands = [replaced(command, changes) for command in page]

    def command(self, *words):
        found = [c for c in self.commands if all(word in c for word in words)]
        expect(len(found) == 1, f"{words}: {len(found)} commands on the page")
        return found[0]

    def run(self, *words):
        done = subprocess.run(self.command(*words), shell=True, cwd=self.folder, text=True,
                              env=self.environment, capture_output=True, timeout=PATIENCE_S)
        expect(done.returncode == 0, f"{words} ends with {done.returncode}\n{done.stdout}"
                                     f"{done.stderr}")
        return done.stdout

    def start_coordinator(self):
        words = self.command("coordinator", "--cloud-dry-run").replace(" --cloud-dry-run", "")
        with open(os.path.join(self.folder, "output.txt"), "wb") as output:
            process = subprocess.Popen(["bash", "-c", "exec " + words], cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, env=self.environment)
        os.symlink(os.path.join(self.folder, "runs", "a"), os.path.join(self.folder, "run"))
        return Run.attach(self.folder, process, PATIENCE_S)

    def alive(self):
        return self.cloud.control("machines", states=["starting", "running"], whole=False)


def from_bundle_to_release():
    page = Page()
    page.run("tar ")
    plan = page.run("coordinator", "--cloud-dry-run")
    expect("instances" in plan and "n1-standard-8" in plan, f"the plan: {plan}")
    expect(not page.alive() and not os.path.exists(os.path.join(page.folder, "runs", "a", "token")),
           "a dry run makes nothing")
    expect("missing" not in page.run("cloud doctor"), "the doctor finds fault")
    run = page.start_coordinator()
    run.wait_for_step(3)
    expect("2 " in page.run("status"), "the status knows two workers")
    listed = page.run("cloud list")
    expect(listed.count("us-central1-") >= 2, f"the list: {listed}")
    page.run("scale")
    deadline = time.monotonic() + PATIENCE_S
    while run.last_members() != 1:
        expect(time.monotonic() < deadline, f"it does not shrink\n{run.logs()}")
        time.sleep(0.02)
    page.run("stop")
    code = run.wait()
    expect(code == 3, f"the coordinator ends with {code}\n{run.logs()}")
    expect(not page.alive(), f"machines are left: {page.alive()}")
    page.run("cloud release")
    page.cloud.stop()
    shutil.rmtree(page.folder, ignore_errors=True)


if __name__ == "__main__":
    mayfly_run.BINARY = os.path.abspath(mayfly_run.BINARY)
    raise SystemExit(mayfly_run.main({"from_bundle_to_release": from_bundle_to_release}))
