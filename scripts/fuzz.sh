#!/usr/bin/env bash
# Runs fuzz targets with their seeds and dictionary.
#
#   scripts/fuzz.sh [--seconds N] [--seed N] [--fresh] [TARGET...]
#
#   TARGET       tail or load; both by default
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
            tail | load) targets+=("$1") ;;
            *) wrong_usage "no target or option is named \`$1\`" ;;
        esac
        shift
    done
    if ((${#targets[@]} == 0)); then
        targets=(tail load)
    fi

    local target
    for target in "${targets[@]}"; do
        echo "$target: seed $seed, $seconds s"
        fuzz "$target" "$seconds" "$seed" "$fresh"
    done
}

fuzz() {
    local target=$1 seconds=$2 seed=$3 fresh=$4 found=fuzz/corpus/$1 length dictionary
    case "$target" in
        tail) dictionary=json length=4096 ;;
        load) dictionary=session length=8192 ;;
    esac
    if [[ "$fresh" == yes ]]; then
        found=$(mktemp -d)
        # Expanded now: the variable is gone when the trap runs.
        # shellcheck disable=SC2064
        trap "rm -rf '$found'" EXIT
    fi
    mkdir -p "$found"
    cargo +nightly fuzz run "$target" "$found" "corpus/fuzz/$target" -- -seed="$seed" -max_total_time="$seconds" \
        -dict="fuzz/dictionaries/$dictionary.dict" -max_len="$length" -verbosity=0 -print_final_stats=1
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
