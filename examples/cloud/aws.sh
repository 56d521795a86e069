#!/bin/sh
# Servers of EC2 with the aws program, for `mayfly coordinator`:
#   --cloud-provider exec --cloud-command examples/cloud/aws.sh
# Environment: IMAGE (ami-...), SUBNET, SECURITY_GROUP, and the variables of aws itself. EC2 makes a
# request idempotent by its client token, which is the request id.
# shellcheck source=examples/cloud/common.sh
. "$(dirname "$0")/common.sh"

JOB=$(field job)
case "$(field op)" in request | doctor) need IMAGE ;; esac

classify() {
    case "$1" in
        *InsufficientInstanceCapacity* | *SpotMaxPriceTooLow*) echo capacity ;;
        *LimitExceeded* | *MaxSpotInstanceCountExceeded*)
            case "$1" in *RequestLimitExceeded*) echo rate ;; *) echo quota ;; esac ;;
        *AuthFailure* | *UnauthorizedOperation* | *credentials*) echo auth ;;
        *Invalid* | *MissingParameter* | *Unsupported*) echo config ;;
        *) echo rate ;;
    esac
}

# A stopped instance still exists: its disk is billed until the instance is terminated.
SERVERS='[.[] | {
    id: .InstanceId,
    state: ({pending: "starting", running: "running", terminated: "gone"}[.State.Name]
            // "stopping"),
    request_id: (.ClientToken // ""),
    machine_type: .InstanceType,
    zone: .Placement.AvailabilityZone,
    market: (if .InstanceLifecycle == "spot" then "spot" else "on_demand" end)}]'

case "$(field op)" in
    request)
        STARTUP=$(mktemp)
        trap 'rm -f "$STARTUP"' EXIT
        LIFETIME=$(field lifetime_max_s)
        if [ "$LIFETIME" = 0 ]; then
            field startup_text >"$STARTUP"
        else
            # EC2 has no limit of the lifetime, but terminates an instance that shuts itself down.
            {
                printf '#!/bin/sh\nshutdown -P +%s\n' "$(((LIFETIME + 59) / 60))"
                # shellcheck disable=SC2016  # for the instance
                printf '%s\n' 'umask 077' 'script=$(mktemp "${TMPDIR:-/var/tmp}/mayfly-XXXXXX")' \
                    "base64 -d >\"\$script\" <<'END'"
                field startup_text | base64
                # shellcheck disable=SC2016
                printf '%s\n' END 'chmod 700 "$script"' 'exec "$script"'
            } >"$STARTUP"
        fi
        set -- --image-id "$IMAGE" --instance-type "$(field machine_type)" \
            --count "$(field count)" --client-token "$(field request_id)" \
            --user-data "file://$STARTUP" --instance-initiated-shutdown-behavior terminate \
            --tag-specifications "ResourceType=instance,Tags=[{Key=mayfly-job,Value=$JOB}]" \
            --output json
        [ -z "${SUBNET:-}" ] || set -- "$@" --subnet-id "$SUBNET"
        [ -z "${SECURITY_GROUP:-}" ] || set -- "$@" --security-group-ids "$SECURITY_GROUP"
        [ -z "$(field zone)" ] || set -- "$@" --placement "AvailabilityZone=$(field zone)"
        if [ "$(field market)" = spot ]; then
            set -- "$@" --instance-market-options 'MarketType=spot'
        fi
        run_or_fail aws ec2 run-instances "$@" | jq -c ".Instances | {servers: $SERVERS}"
        ;;
    release)
        if ! COMPLAINT=$(aws ec2 terminate-instances --instance-ids "$(field server)" 2>&1); then
            case "$COMPLAINT" in
                *InvalidInstanceID.NotFound*) ;;
                *) fail "$(classify "$COMPLAINT")" "$COMPLAINT" ;;
            esac
        fi
        echo '{}'
        ;;
    list | status)
        run_or_fail aws ec2 describe-instances --output json \
            --filters "Name=tag:mayfly-job,Values=$JOB" |
            jq -c "[.Reservations[].Instances[]] | {servers: $SERVERS}"
        ;;
    doctor)
        if WHO=$(aws sts get-caller-identity --query Arn --output text 2>&1); then
            finding true "aws speaks as $WHO"
        else
            finding false "aws has no credentials: $WHO"
        fi
        ;;
    *) fail config "unknown operation" ;;
esac
