#!/bin/sh
# Servers of Azure with the az program, for `mayfly coordinator`:
#   --cloud-provider exec --cloud-command examples/cloud/az.sh
# Environment: RESOURCE_GROUP, IMAGE (Debian12). The offer's zone is a location. The name of a
# machine is derived from its request id, so that creating it again changes nothing. It has no
# public address and no security group of its own, because both would outlive the machine, and an
# address costs money. If the coordinator is not in the same network, the network needs a way out,
# such as a NAT gateway. lifetime_max_s is ignored: a machine that no coordinator can reach any more
# must be deleted by hand.
# shellcheck source=examples/cloud/common.sh
. "$(dirname "$0")/common.sh"

JOB=$(field job)
need RESOURCE_GROUP

classify() {
    case "$1" in
        *SkuNotAvailable* | *AllocationFailed* | *OverconstrainedAllocation*) echo capacity ;;
        *QuotaExceeded* | *"exceeding approved"*) echo quota ;;
        *AuthorizationFailed* | *"az login"*) echo auth ;;
        *InvalidParameter* | *NotFound* | *"unrecognized arguments"*) echo config ;;
        *) echo rate ;;
    esac
}

# Every listed machine exists and may be billed. A machine whose creation has failed is listed, too,
# and must be released.
SERVERS='[.[] | {
    id: .name,
    state: ({Creating: "starting", Deleting: "stopping", Failed: "stopping"}[.provisioningState]
            // "running"),
    request_id: (.tags["mayfly-request"] // ""),
    machine_type: .hardwareProfile.vmSize, zone: .location,
    market: (if .priority == "Spot" then "spot" else "on_demand" end)}]'

list() {
    run_or_fail az vm list --resource-group "$RESOURCE_GROUP" --output json |
        jq -c --arg job "$JOB" \
            "[.[] | select(.tags[\"mayfly-job\"] == \$job)] | {servers: $SERVERS}"
}

case "$(field op)" in
    request)
        ID=$(field request_id)
        STARTUP=$(mktemp)
        trap 'rm -f "$STARTUP"' EXIT
        field startup_text >"$STARTUP"
        set -- --resource-group "$RESOURCE_GROUP" --name "mayfly-$ID" \
            --image "${IMAGE:-Debian12}" --size "$(field machine_type)" \
            --custom-data "$STARTUP" --generate-ssh-keys --nic-delete-option Delete \
            --os-disk-delete-option Delete --public-ip-address "" --nsg "" \
            --tags "mayfly-job=$JOB" "mayfly-request=$ID"
        [ -z "$(field zone)" ] || set -- "$@" --location "$(field zone)"
        if [ "$(field market)" = spot ]; then
            set -- "$@" --priority Spot --eviction-policy Delete --max-price -1
        fi
        # Ends within the minute for which the coordinator waits. A later list has the machines that
        # are still being created then.
        COMPLAINT=$(timeout 45 az vm create "$@" --output none 2>&1) && STATUS=0 || STATUS=$?
        case $STATUS in
            0) STATE=running ;;
            124) STATE=starting ;;
            *)
                KIND=$(classify "$COMPLAINT")
                case $KIND in
                    capacity | quota) # Azure keeps a failed machine
                        az vm delete --resource-group "$RESOURCE_GROUP" --name "mayfly-$ID" \
                            --yes --no-wait >/dev/null 2>&1 || true
                        ;;
                esac
                fail "$KIND" "$COMPLAINT"
                ;;
        esac
        jq -cn --arg id "mayfly-$ID" --arg state "$STATE" '{servers: [{id: $id, state: $state}]}'
        ;;
    release)
        if ! COMPLAINT=$(az vm delete --resource-group "$RESOURCE_GROUP" --name "$(field server)" \
            --yes --no-wait 2>&1); then
            case "$COMPLAINT" in
                *ResourceNotFound*) ;;
                *) fail "$(classify "$COMPLAINT")" "$COMPLAINT" ;;
            esac
        fi
        echo '{}'
        ;;
    list | status) list ;;
    doctor)
        if az group show --name "$RESOURCE_GROUP" >/dev/null 2>&1; then
            finding true "az may use resource group $RESOURCE_GROUP"
        else
            finding false "az cannot see resource group '$RESOURCE_GROUP': az login"
        fi
        ;;
    *) fail config "unknown operation" ;;
esac
