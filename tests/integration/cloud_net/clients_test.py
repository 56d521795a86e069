"""Goal: the clouds' own clients work with the fake cloud. They sign requests as AWS requires and
use Google's formats, so provider tests with the fake cloud are meaningful.
Method: `aws` and `gcloud` are run against it. Skipped with a reason if they are not installed.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from fake_cloud_process import FakeCloud
import mayfly_run
from mayfly_run import SKIP, expect


def run(words, environment):
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    home = tempfile.mkdtemp(prefix="mayfly-clients-")
    done = subprocess.run(words, env={**keep, "HOME": home, **environment}, capture_output=True,
                          text=True, timeout=200, stdin=subprocess.DEVNULL)
    shutil.rmtree(home, ignore_errors=True)
    return done


def usable(program, *words):
    """Whether a client is installed and starts; some machines have only a placeholder script."""
    if shutil.which(program) is None:
        return False
    return run([program, *words], {}).returncode == 0


def aws():
    cloud = FakeCloud()
    at = cloud.addresses
    environment = {"AWS_ACCESS_KEY_ID": at["access_key"], "AWS_SECRET_ACCESS_KEY": at["secret_key"],
                   "AWS_CA_BUNDLE": at["ca_file"], "AWS_DEFAULT_REGION": at["region"],
                   "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true"}

    def ec2(*words, **changed):
        return run(["aws", "--endpoint-url", at["ec2"], "--output", "json", "ec2", *words],
                   {**environment, **changed})

    request = ["run-instances", "--image-id", "ami-1", "--instance-type", "p3.2xlarge", "--count",
               "2", "--client-token", "token-1", "--instance-market-options",
               "MarketType=spot,SpotOptions={SpotInstanceType=one-time}", "--tag-specifications",
               "ResourceType=instance,Tags=[{Key=mayfly-job,Value=j}]"]
    made = ec2(*request)
    expect(made.returncode == 0, made.stderr)
    ids = [i["InstanceId"] for i in json.loads(made.stdout)["Instances"]]
    again = ec2(*request)
    expect([i["InstanceId"] for i in json.loads(again.stdout)["Instances"]] == ids, "made twice")
    seen = json.loads(ec2("describe-instances", "--filters",
                          "Name=tag:mayfly-job,Values=j").stdout)["Reservations"]
    expect([i["InstanceId"] for r in seen for i in r["Instances"]] == ids, f"{seen}")
    expect(seen[0]["Instances"][0]["InstanceLifecycle"] == "spot", f"{seen}")
    expect(ec2("terminate-instances", "--instance-ids", *ids).returncode == 0, "not terminated")
    wrong = ec2("describe-instances", AWS_SECRET_ACCESS_KEY="another")
    expect("AuthFailure" in wrong.stderr, f"a wrong secret is accepted: {wrong.stdout}")
    cloud.control("fault", service="ec2", operation="RunInstances", kind="stock_out")
    short = ec2(*request[:-2], "--client-token", "token-2")
    expect("InsufficientInstanceCapacity" in short.stderr, short.stderr)
    cloud.stop()


def gcloud():
    cloud = FakeCloud()
    at = cloud.addresses
    folder = tempfile.mkdtemp(prefix="mayfly-gcloud-")
    token_file = os.path.join(folder, "token")
    # Mayfly's provider gets a token for the service account; here any valid token is sufficient.
    with open(token_file, "w") as f:
        f.write(cloud.control("token")["access_token"])
    environment = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": at["gce"] + "/compute/v1/",
                   "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": token_file,
                   "CLOUDSDK_CORE_PROJECT": at["project"], "CLOUDSDK_CONFIG": folder,
                   "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": at["ca_file"],
                   "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
                   "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
                   "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1"}

    def compute(*words):
        return run(["gcloud", "compute", "instances", *words, "--format", "json"], environment)

    create = ["--zone", "zone-a", "--machine-type", "n1-standard-8", "--provisioning-model", "SPOT",
              "--instance-termination-action", "DELETE", "--image",
              "projects/debian-cloud/global/images/debian-12", "--labels", "mayfly-job=j"]
    made = compute("create", "one", *create)
    expect(made.returncode == 0, made.stderr)
    machine = cloud.control("machines")[0]
    expect(machine["market"] == "spot" and machine["labels"] == {"mayfly-job": "j"}, f"{machine}")
    listed = compute("list", "--filter", "labels.mayfly-job=j")
    expect(listed.returncode == 0, listed.stderr)
    expect([i["name"] for i in json.loads(listed.stdout)] == ["one"], listed.stdout)
    cloud.control("fault", service="gce", operation="insert", kind="stock_out")
    short = compute("create", "two", *create)
    expect("ZONE_RESOURCE_POOL_EXHAUSTED" in short.stderr or "resource" in short.stderr,
           short.stderr)
    deleted = compute("delete", "one", "--zone", "zone-a", "--quiet")
    expect(deleted.returncode == 0, deleted.stderr)
    cloud.stop()
    shutil.rmtree(folder, ignore_errors=True)


PROGRAMS = {"aws": ("aws", "--version"), "gcloud": ("gcloud", "--version")}

if __name__ == "__main__":
    for name in sys.argv[1:] or list(PROGRAMS):
        if not usable(*PROGRAMS[name]):
            print(f"skipped: {name} is not installed")
            raise SystemExit(SKIP)
    raise SystemExit(mayfly_run.main({"aws": aws, "gcloud": gcloud}))
