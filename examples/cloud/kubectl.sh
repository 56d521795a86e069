#!/bin/sh
# Servers as Kubernetes jobs of one pod each, for `mayfly coordinator`:
#   --cloud-provider exec --cloud-command examples/cloud/kubectl.sh
# Environment: IMAGE (with mayfly in it), NAMESPACE (default). The offer's machine type is a node
# selector NAME=VALUE. A job's name is derived from its request id, so that creating it again is a
# harmless error with a clear message.
# shellcheck source=examples/cloud/common.sh
. "$(dirname "$0")/common.sh"

JOB=$(field job)
NAMESPACE=${NAMESPACE:-default}
case "$(field op)" in request | doctor) need IMAGE ;; esac

classify() {
    case "$1" in
        *"exceeded quota"*) echo quota ;;
        *Forbidden* | *Unauthorized* | *"must be logged in"*) echo auth ;;
        *Invalid* | *"error validating"* | *NotFound*) echo config ;;
        *) echo rate ;;
    esac
}

SERVERS='[.items[] | {
    id: .metadata.name,
    state: (if (.metadata.deletionTimestamp != null) then "stopping"
            elif ((.status.active // 0) == 0 and (.status.startTime != null)) then "gone"
            elif ((.status.ready // 0) > 0) then "running" else "starting" end),
    request_id: (.metadata.labels["mayfly-request"] // "")}]'

case "$(field op)" in
    request)
        ID=$(field request_id)
        NAME="mayfly-$ID"
        MANIFEST=$(mktemp)
        trap 'rm -f "$MANIFEST"' EXIT
        printf '%s' "$REQUEST" | jq --arg name "$NAME" --arg image "$IMAGE" '{
            apiVersion: "batch/v1", kind: "Job",
            metadata: {name: $name,
                       labels: {"mayfly-job": .job, "mayfly-request": .request_id}},
            spec: ({backoffLimit: 0, ttlSecondsAfterFinished: 300, template: {
                spec: ({restartPolicy: "Never", terminationGracePeriodSeconds: 25,
                        enableServiceLinks: false,
                        containers: [{name: "worker", image: $image,
                                      # not as an argument: it may hold the job token
                                      command: ["/bin/sh", "-c", "eval \"$STARTUP\""],
                                      env: [{name: "MAYFLY_SERVER", value: $name},
                                            {name: "STARTUP", value: .startup_text}]}]}
                       + (if .machine_type == "" then {} else
                          {nodeSelector: ([.machine_type | split("=")
                                           | {key: .[0], value: .[1]}] | from_entries)} end))}}
                + (if .lifetime_max_s == 0 then {} else
                   {activeDeadlineSeconds: .lifetime_max_s} end))}' >"$MANIFEST"
        if ! COMPLAINT=$(kubectl --namespace "$NAMESPACE" create -f "$MANIFEST" 2>&1); then
            case "$COMPLAINT" in
                *AlreadyExists*) ;;
                *) fail "$(classify "$COMPLAINT")" "$COMPLAINT" ;;
            esac
        fi
        jq -cn --arg id "$NAME" '{servers: [{id: $id, state: "starting"}]}'
        ;;
    release)
        run_or_fail kubectl --namespace "$NAMESPACE" delete job "$(field server)" \
            --ignore-not-found --wait=false >/dev/null
        echo '{}'
        ;;
    list | status)
        run_or_fail kubectl --namespace "$NAMESPACE" get jobs -l "mayfly-job=$JOB" -o json |
            jq -c "{servers: $SERVERS}"
        ;;
    doctor)
        if kubectl --namespace "$NAMESPACE" auth can-i create jobs >/dev/null 2>&1; then
            finding true "kubectl may create jobs in namespace $NAMESPACE"
        else
            finding false "kubectl may not create jobs in namespace $NAMESPACE"
        fi
        ;;
    *) fail config "unknown operation" ;;
esac
