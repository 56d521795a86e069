# shellcheck shell=sh
# What the programs of this folder share. Source it. It needs jq.
# They speak the contract of docs/cloud.md: one JSON object in, one out.

set -eu
exec 3>&1 # where answers go, also from within a pipe
REQUEST=$(cat)

field() { printf '%s' "$REQUEST" | jq -r --arg name "$1" '.[$name] // empty'; }

# fail KIND TEXT: the answer that says why not. KIND: capacity, quota, auth, rate or config.
fail() {
    DETAIL=$(printf '%s' "$2" | tail -c 800 | tr '\n' ' ')
    jq -cn --arg kind "$1" --arg detail "$DETAIL" '{error: {kind: $kind, detail: $detail}}'
    exit 0
}

# finding OK TEXT: the answer to doctor.
finding() { jq -cn --argjson ok "$1" --arg text "$2" '{findings: [{ok: $ok, text: $text}]}'; }

# need NAME...: variables that the user sets. Without one a request ends at once: the shell's own
# error would count as rate, after which the same request is repeated.
need() {
    for WANTED in "$@"; do
        eval "[ -n \"\${$WANTED:-}\" ]" && continue
        [ "$(field op)" = doctor ] || fail config "the variable $WANTED is not set"
        finding false "the variable $WANTED is not set"
        exit 0
    done
}

# run_or_fail COMMAND...: its output; what it complains of is classified by classify, which each
# program defines: text in, kind out. What nobody can classify may have happened: rate.
run_or_fail() {
    COMPLAINT=$(mktemp)
    if "$@" 2>"$COMPLAINT"; then
        rm -f "$COMPLAINT"
        return 0
    fi
    TEXT=$(cat "$COMPLAINT")
    rm -f "$COMPLAINT"
    fail "$(classify "$TEXT")" "$TEXT" >&3
}
