#!/usr/bin/env bash
# Tries the orders in which threads can run in the core: every one up to a bound for the queue (loom), and ones that a
# seed draws for the whole store (shuttle).
#
#   scripts/threads.sh [--schedules N]
#
#   --schedules N  how many orders shuttle draws, 10 000 by default
#   --help         print this
#
# Builds into target/loom and target/shuttle, apart from everything else. Shuttle prints the schedule of a failure, and
# how to replay it. Exit status: 0 when every order holds, 2 for wrong usage, another one when one does not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

main() {
    local schedules=10000
    while (($# > 0)); do
        case "$1" in
            --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && return ;;
            --schedules)
                [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || wrong_usage "$1 wants a number"
                schedules=$2
                shift
                ;;
            *) wrong_usage "no option is named \`$1\`" ;;
        esac
        shift
    done
    RUSTFLAGS="--cfg loom" run cargo test --locked --release -p session-tree --lib --target-dir target/loom loom
    SESSION_TREE_SCHEDULES=$schedules RUSTFLAGS="--cfg shuttle" \
        run cargo test --locked --release -p session-tree --lib --target-dir target/shuttle store::threads -- --nocapture
}

run() {
    echo "+ $*"
    "$@"
}

wrong_usage() {
    echo "$1: type \`scripts/threads.sh --help\`" >&2
    exit 2
}

main "$@"
