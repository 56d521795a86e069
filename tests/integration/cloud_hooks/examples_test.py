"""The programs of examples/cloud answer as docs/cloud.md specifies. Imitations of the clouds' own
programs are first in PATH."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import mayfly_run
from mayfly_run import expect

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
EXAMPLES = os.path.join(ROOT, "examples", "cloud")
ID = "6f1f3c1e-8a70-4c2e-9d5b-0c4e5a1f7b11"
REQUEST = {"version": 1, "op": "request", "job": "j", "request_id": ID, "count": 1,
           "machine_type": "type=a", "zone": "z", "market": "spot", "lifetime_max_s": 3600,
           "labels": {}, "startup_text": "#!/bin/sh\nexec sleep 60\n"}
INSTANCE = {"name": "mayfly-" + ID, "zone": "zones/z", "status": "STAGING",
            "machineType": "types/n1", "labels": {"mayfly-request": ID},
            "scheduling": {"provisioningModel": "SPOT"}}


def ask(example, words, body, unset=(), **request):
    """The answer of an example program. `body`: the shell script in place of the cloud's program;
    `unset`: variables that are removed."""
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        for name in ("gcloud", "aws", "az", "kubectl"):
            with open(os.path.join(folder, name), "w") as file:
                file.write("#!/bin/sh\n" + body + "\n")
            os.chmod(os.path.join(folder, name), 0o755)
        environment = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], PROJECT="p",
                           IMAGE="i", RESOURCE_GROUP="g")
        for name in unset:
            del environment[name]
        done = subprocess.run([os.path.join(EXAMPLES, example)] + words, text=True, timeout=60,
                              input=json.dumps(dict(REQUEST, **request)), capture_output=True,
                              env=environment, check=False)
    expect(done.returncode == 0, f"{example}: {done.stderr}")
    return json.loads(done.stdout)


def complaints():
    for example, text, kind in (
            ("gcloud.sh", "ZONE_RESOURCE_POOL_EXHAUSTED in z", "capacity"),
            ("gcloud.sh", "Quota 'PREEMPTIBLE_GPUS' exceeded", "quota"),
            ("gcloud.sh", "connection reset", "rate"),
            ("aws.sh", "InsufficientInstanceCapacity", "capacity"),
            ("aws.sh", "RequestLimitExceeded", "rate"),
            ("aws.sh", "VcpuLimitExceeded", "quota"),
            ("az.sh", "SkuNotAvailable", "capacity"),
            ("az.sh", "AuthorizationFailed", "auth"),
            ("kubectl.sh", "Error from server (Forbidden): exceeded quota", "quota")):
        answer = ask(example, [], f'case "$*" in *list*) ;; *) echo "{text}" >&2; exit 1;; esac')
        expect(answer["error"]["kind"] == kind, f"{example} of {text}: {answer}")


def grants():
    body = f"""case "$*" in *"instances list"*) ;; *) echo '[{json.dumps(INSTANCE)}]';; esac"""
    answer = ask("gcloud.sh", [], body)
    expect(answer["servers"] == [{"id": "z/mayfly-" + ID, "state": "starting", "request_id": ID,
                                  "machine_type": "n1", "zone": "z", "market": "spot"}], answer)
    expect(ask("kubectl.sh", [], "true")["servers"][0]["id"] == "mayfly-" + ID, "kubectl")
    # A repeated request: its name is taken, by the server of the first request.
    again = ask("kubectl.sh", [], "echo 'jobs AlreadyExists' >&2; exit 1")
    expect(again["servers"][0]["id"] == "mayfly-" + ID, again)
    expect(ask("aws.sh", [], "echo InvalidInstanceID.NotFound >&2; exit 1", op="release",
               server="i-1") == {}, "what is gone is released")
    expect(ask("az.sh", [], "true", op="doctor")["findings"][0]["ok"], "az doctor")


def unset():
    """If the user has forgotten a variable, no request is repeated, and the doctor names it."""
    for example, name in (("gcloud.sh", "PROJECT"), ("aws.sh", "IMAGE"), ("kubectl.sh", "IMAGE"),
                          ("az.sh", "RESOURCE_GROUP")):
        text = f"the variable {name} is not set"
        refused = ask(example, [], "true", unset=[name])
        expect(refused == {"error": {"kind": "config", "detail": text}}, f"{example}: {refused}")
        told = ask(example, [], "true", unset=[name], op="doctor")
        expect(told == {"findings": [{"ok": False, "text": text}]}, f"{example}: {told}")
    listed = ask("aws.sh", [], "echo '{\"Reservations\": []}'", unset=["IMAGE"], op="list")
    expect(listed == {"servers": []}, f"what runs can be listed without an image: {listed}")


def states():
    """An existing server is never listed as gone: it would be replaced, and never be released."""
    machine = {"name": "mayfly-" + ID, "provisioningState": "Failed", "location": "z",
               "tags": {"mayfly-job": "j", "mayfly-request": ID}, "priority": "Spot",
               "hardwareProfile": {"vmSize": "n1"}}
    servers = ask("az.sh", [], f"echo '[{json.dumps(machine)}]'", op="list")["servers"]
    expect([one["state"] for one in servers] == ["stopping"], servers)
    for state, told in (("running", "running"), ("stopped", "stopping"),
                        ("shutting-down", "stopping"), ("terminated", "gone")):
        listed = json.dumps({"Reservations": [{"Instances": [{
            "InstanceId": "i-1", "State": {"Name": state}, "Placement": {}}]}]})
        servers = ask("aws.sh", [], f"echo '{listed}'", op="list")["servers"]
        expect([one["state"] for one in servers] == [told], f"{state}: {servers}")
    for status, state in (("REPAIRING", "running"), ("PENDING_STOP", "stopping"),
                          ("TERMINATED", "stopping"), ("SUSPENDED", "stopping")):
        listed = json.dumps(dict(INSTANCE, status=status))
        servers = ask("gcloud.sh", [], f"echo '[{listed}]'", op="list")["servers"]
        expect([one["state"] for one in servers] == [state], f"{status}: {servers}")


def lifetime():
    """An instance of EC2 has a limited lifetime, and runs any startup script."""
    body = """while [ $# -gt 1 ]; do
        [ "$1" = --user-data ] && cat "${2#file://}" >"$TOLD"
        shift
    done
    echo '{"Instances": []}'"""
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        os.environ["TOLD"] = os.path.join(folder, "user-data")
        expect(ask("aws.sh", [], body, startup_text="#!/bin/sh\necho hi\n") == {"servers": []},
               "aws")
        with open(os.environ["TOLD"], encoding="utf-8") as file:
            script = "shutdown() { echo shutdown $*; }\n" + file.read()
        done = subprocess.run(["sh", "-c", script], text=True, capture_output=True, check=True,
                              timeout=60, env=dict(os.environ, TMPDIR=folder))
    expect(done.stdout == "shutdown -P +60\nhi\n", f"{script}: {done.stdout}")


def failed_creation():
    """A machine of Azure that could not be created is deleted; the job does not wait for it."""
    with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
        os.environ["TOLD"] = os.path.join(folder, "calls")
        answer = ask("az.sh", [], 'echo "$*" >>"$TOLD"; case "$*" in *create*) '
                     'echo AllocationFailed >&2; exit 1;; esac')
        expect(answer["error"]["kind"] == "capacity", answer)
        with open(os.environ["TOLD"], encoding="utf-8") as file:
            calls = file.read()
    expect(f"vm delete --resource-group g --name mayfly-{ID} --yes --no-wait" in calls, calls)


def no_address():
    """A machine of Azure gets no public address, because that would outlive the machine."""
    body = """while [ $# -gt 1 ]; do
        [ "$1" = --public-ip-address ] && [ -z "$2" ] && exit 0
        shift
    done
    echo "an address" >&2; exit 1"""
    expect(ask("az.sh", [], body)["servers"][0]["id"] == "mayfly-" + ID, "az")


def main():
    if shutil.which("jq") is None:
        print("skipped: the shell examples need jq")
        return mayfly_run.SKIP
    complaints()
    grants()
    unset()
    states()
    lifetime()
    failed_creation()
    no_address()
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
