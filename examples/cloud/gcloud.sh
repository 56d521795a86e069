#!/bin/sh
# Servers of Google Compute Engine with the gcloud program, for `mayfly coordinator`:
#   --cloud-provider exec --cloud-command examples/cloud/gcloud.sh
# Environment: PROJECT (default: that of gcloud's configuration), IMAGE_FAMILY (debian-12),
# IMAGE_PROJECT (debian-cloud). The offer's zone is a Compute Engine zone. The name of an instance
# is derived from its request id, so a repeated request finds the instance that exists already.
# shellcheck source=examples/cloud/common.sh
. "$(dirname "$0")/common.sh"

PROJECT=${PROJECT:-$(gcloud config get-value project 2>/dev/null)}
need PROJECT
ZONE=$(field zone)
JOB=$(field job)

classify() {
    case "$1" in
        *ZONE_RESOURCE_POOL_EXHAUSTED* | *"does not have enough resources"*) echo capacity ;;
        *QUOTA_EXCEEDED* | *"Quota '"*) echo quota ;;
        *PERMISSION_DENIED* | *"Required '"*"permission"*) echo auth ;;
        *credentials* | *"auth login"*) echo auth ;;
        *"Invalid value"* | *"was not found"* | *INVALID_ARGUMENT*) echo config ;;
        *) echo rate ;;
    esac
}

# Converts gcloud's JSON to one server per line, in the terms of the contract. Its id is ZONE/NAME.
# A stopped or suspended instance still exists: its disk is billed until the instance is deleted.
SERVERS='[.[] | {
    id: ((.zone | split("/") | last) + "/" + .name),
    state: ({PENDING: "starting", PROVISIONING: "starting", STAGING: "starting",
             RUNNING: "running", REPAIRING: "running"}[.status] // "stopping"),
    request_id: (.labels["mayfly-request"] // ""),
    machine_type: (.machineType | split("/") | last),
    zone: (.zone | split("/") | last),
    market: (if .scheduling.provisioningModel == "SPOT" then "spot" else "on_demand" end)}]'

list() {
    run_or_fail gcloud compute instances list --project "$PROJECT" --format json \
        --filter "labels.mayfly-job=$JOB $1" | jq -c "{servers: $SERVERS}"
}

case "$(field op)" in
    request)
        NAME="mayfly-$(field request_id)"
        if [ -n "$(gcloud compute instances list --project "$PROJECT" --filter "name=$NAME" \
            --format 'value(name)' 2>/dev/null)" ]; then
            list "AND name=$NAME"
            exit 0
        fi
        STARTUP=$(mktemp)
        trap 'rm -f "$STARTUP"' EXIT
        field startup_text >"$STARTUP"
        set -- --project "$PROJECT" --zone "$ZONE" --machine-type "$(field machine_type)" \
            --image-family "${IMAGE_FAMILY:-debian-12}" \
            --image-project "${IMAGE_PROJECT:-debian-cloud}" \
            --labels "mayfly-job=$JOB,mayfly-request=$(field request_id)" \
            --metadata-from-file "startup-script=$STARTUP" --format json
        if [ "$(field market)" = spot ]; then
            set -- "$@" --provisioning-model SPOT --instance-termination-action DELETE
        fi
        if [ "$(field lifetime_max_s)" != 0 ]; then
            set -- "$@" --max-run-duration "$(field lifetime_max_s)s" \
                --instance-termination-action DELETE
        fi
        run_or_fail gcloud compute instances create "$NAME" "$@" | jq -c "{servers: $SERVERS}"
        ;;
    release)
        SERVER=$(field server)
        if ! COMPLAINT=$(gcloud compute instances delete "${SERVER#*/}" --zone "${SERVER%%/*}" \
            --project "$PROJECT" --quiet 2>&1); then
            case "$COMPLAINT" in
                *"was not found"*) ;; # gone already
                *) fail "$(classify "$COMPLAINT")" "$COMPLAINT" ;;
            esac
        fi
        echo '{}'
        ;;
    list | status) list "" ;;
    doctor)
        if gcloud compute regions list --project "$PROJECT" --limit 1 >/dev/null 2>&1; then
            finding true "gcloud may use project $PROJECT"
        else
            finding false "gcloud cannot use project '$PROJECT': gcloud auth login, PROJECT=..."
        fi
        ;;
    *) fail config "unknown operation" ;;
esac
