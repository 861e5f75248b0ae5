#!/usr/bin/env bash
# Runs fuzz targets with their seeds and dictionary.
#
#   scripts/fuzz.sh [--seconds N] [--seed N] [--fresh] [TARGET...]
#
#   TARGET       tail, load, mutated_session, operations, recover, plan or protocol; all by default
#   --seconds N  how long each target runs, 60 by default
#   --seed N     repeat the run with this seed; a new one is drawn and printed by default
#   --fresh      start from the committed seeds alone and keep nothing that is found but failures
#   --help       print this
#
# Needs a nightly toolchain, a C++ compiler and cargo-fuzz (`cargo install --locked cargo-fuzz`). New inputs are kept
# in fuzz/corpus/, failures in fuzz/artifacts/; neither is committed. fuzz/README.md tells what to do with a failure.
# Exit status: 0 when nothing was found, 2 for wrong usage, another one when something was found or nothing could run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TARGETS=(tail load mutated_session operations recover plan protocol)

main() {
    local targets=() seconds=60 seed=$((RANDOM * 32768 + RANDOM + 1)) fresh=no
    while (($# > 0)); do
        case "$1" in
            --help) usage && return ;;
            --fresh) fresh=yes ;;
            --seconds | --seed)
                [[ "${2:-}" =~ ^[0-9]+$ ]] || wrong_usage "$1 wants a number"
                if [[ "$1" == --seed ]]; then seed=$2; else seconds=$2; fi
                shift
                ;;
            *)
                [[ " ${TARGETS[*]} " == *" $1 "* ]] || wrong_usage "no target or option is named \`$1\`"
                targets+=("$1")
                ;;
        esac
        shift
    done
    if ((${#targets[@]} == 0)); then
        targets=("${TARGETS[@]}")
    fi

    local target
    for target in "${targets[@]}"; do
        echo "$target: seed $seed, $seconds s"
        fuzz "$target" "$seconds" "$seed" "$fresh"
    done
}

fuzz() {
    local target=$1 seconds=$2 seed=$3 fresh=$4 found=fuzz/corpus/$1 length folders options=()
    case "$target" in
        tail) length=4096 options=(-dict=fuzz/dictionaries/json.dict) ;;
        load) length=8192 options=(-dict=fuzz/dictionaries/session.dict) ;;
        protocol) length=4096 options=(-dict=fuzz/dictionaries/protocol.dict) ;;
        plan) length=512 options=(-dict=fuzz/dictionaries/plan.dict) ;;
        # Their inputs are choices, not text: a dictionary has no word for them.
        mutated_session | operations | recover) length=1024 ;;
    esac
    if [[ "$fresh" == yes ]]; then
        found=$(mktemp -d)
        # Expanded now: the variable is gone when the trap runs.
        # shellcheck disable=SC2064
        trap "rm -rf '$found'" EXIT
    fi
    mkdir -p "$found"
    folders=("$found")
    if [[ -d corpus/fuzz/$target ]]; then
        folders+=("corpus/fuzz/$target")
    fi
    cargo +nightly fuzz run "$target" "${folders[@]}" -- -seed="$seed" -max_total_time="$seconds" \
        "${options[@]}" -max_len="$length" -verbosity=0 -print_final_stats=1
    if [[ "$fresh" == yes ]]; then
        rm -rf "$found"
    fi
}

# The comment at the top of this file.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

wrong_usage() {
    echo "$1: type \`scripts/fuzz.sh --help\`" >&2
    exit 2
}

main "$@"
