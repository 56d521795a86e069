# shellcheck shell=sh
# Functions that the programs of this folder share. Source it. It needs jq. The programs follow the
# contract of docs/cloud.md: one JSON object in, one out.

set -eu
exec 3>&1 # for answers, also from within a pipe
REQUEST=$(cat)

field() { printf '%s' "$REQUEST" | jq -r --arg name "$1" '.[$name] // empty'; }

# fail KIND TEXT: answers with an error. KIND: capacity, quota, auth, rate or config.
fail() {
    DETAIL=$(printf '%s' "$2" | tail -c 800 | tr '\n' ' ')
    jq -cn --arg kind "$1" --arg detail "$DETAIL" '{error: {kind: $kind, detail: $detail}}'
    exit 0
}

# finding OK TEXT: answers to doctor.
finding() { jq -cn --argjson ok "$1" --arg text "$2" '{findings: [{ok: $ok, text: $text}]}'; }

# need NAME...: checks variables that the user must set. Without one it ends the program with an
# answer: the shell's own error would count as rate, and the same request would be repeated.
need() {
    for WANTED in "$@"; do
        eval "[ -n \"\${$WANTED:-}\" ]" && continue
        [ "$(field op)" = doctor ] || fail config "the variable $WANTED is not set"
        finding false "the variable $WANTED is not set"
        exit 0
    done
}

# run_or_fail COMMAND...: prints the command's output. If it fails, classify, which each program
# defines, turns its message into a kind of error. Without a known kind the command may have had its
# effect: rate.
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
