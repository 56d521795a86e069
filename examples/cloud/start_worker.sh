#!/bin/sh
# The script that a new machine of Compute Engine or EC2 runs (cloud_startup, without cloud_bundle).
# It fetches the bundle that `mayfly bundle` made, checks it, and trains until the cloud takes the
# machine or the job is over. Fill in the two lines below; the coordinator replaces the words in
# braces when it requests a server. See docs/cloud_providers.md.
bundle_url=https://storage.googleapis.com/YOUR-BUCKET/mayfly-worker.tar.gz
bundle_sha256=PUT-THE-HASH-HERE

set -eu
umask 077
home=$(mktemp -d "${TMPDIR:-/var/tmp}/mayfly-XXXXXX")
cd "$home"

# Shuts the machine down after the worker, because it would be billed without being used. (EC2 then
# terminates the instance, as Mayfly has requested; a stopped instance of Compute Engine is deleted
# by Mayfly.)
trap 'shutdown -P now' EXIT

curl --fail --silent --show-error --location --retry 5 --max-time 600 -o bundle "$bundle_url"
echo "$bundle_sha256  bundle" | sha256sum --check --quiet
tar -xzf bundle

printf '%s\n' '{token}' >token
gce=http://${GCE_METADATA_HOST:-169.254.169.254}/computeMetadata/v1/instance
aws=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest
ask() { curl -fs --noproxy '*' --max-time 2 "$@"; }
# MAYFLY_SERVER tells the coordinator on which of its servers this worker runs.
if name=$(ask -H 'Metadata-Flavor: Google' "$gce/name"); then
  notice=gce
  zone=$(ask -H 'Metadata-Flavor: Google' "$gce/zone")
  MAYFLY_SERVER=${zone##*/}/$name
else
  notice=ec2
  session=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$aws/api/token")
  MAYFLY_SERVER=$(ask -H "X-aws-ec2-metadata-token: $session" "$aws/meta-data/instance-id")
fi
export MAYFLY_SERVER

./mayfly/mayfly worker --coordinator '{coordinator}' --token-file token --run-dir run \
  --bind-host "${WORKER_HOST:-$(hostname -I | cut -d' ' -f1)}" \
  --notice "$notice" {worker_args}
