#!/usr/bin/env bash
# Proves that the tests can fail: applies each committed break of the core to a copy of the tracked tree, runs the
# suite that the break declares, and expects it to fail by a case or test that cites the break's requirement.
#
#   scripts/breaks.sh            every break
#   scripts/breaks.sh NAME...    these breaks
#   scripts/breaks.sh --ci       two of them, others with every commit
#   scripts/breaks.sh --suite S  those that the suite S catches, by that suite alone
#   scripts/breaks.sh --list     names, suites, requirements and stories; runs nothing
#
# `--suite conformance` shows that every break of the format is caught by the corpus alone: what a file is taken for, what
# a call answers to it, and which bytes are written; or, where the contract leaves that open, what the unbroken core does.
#
# Exit status: 0 every break was caught, 1 some escaped, 2 wrong usage, 3 the script could not do its work: the
# unbroken copy is not clean, or a patch does not apply or does not build.
#
# A patch begins with lines of the form `Key: value`:
#   Break           the bug, in one line
#   Requirement     ids, with commas; the case or test that catches must cite one of them
#   Caught-by       `conformance`, `faults` or `crash`, the suites of the harness, or `tests`, `cargo test`
#   Also-caught-by  suites of the harness that catch it too, with commas
#   Not-by          a suite of the harness that cannot catch it although it is of its kind, a colon and why
#   Test            of `tests`: PACKAGE::TARGET::FILTER, where TARGET is a test target or `lib`
#   Hangs           `yes` where the broken core does not end: only then does running out of time count as caught
set -euo pipefail

readonly CI_COUNT=2
# Seconds that a suite or a test may run, its build not included; the unbroken ones take a small part of this.
readonly SUITE_SECONDS=${BREAKS_SUITE_SECONDS:-240}
readonly HANG_SECONDS=${BREAKS_HANG_SECONDS:-30}
# Kilobytes of address space, so that a break which allocates for ever ends as a failure.
readonly MEMORY_KB=$((6 * 1024 * 1024))

# The suite that has to catch the breaks, whichever they name first; none for that one.
by=
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root breaks=$root/scripts/breaks

# The comment at the head of this file.
help() {
    sed -n '2,/^set -euo/{/^#/!d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
}

usage() {
    echo "usage: scripts/breaks.sh [--ci] [--suite SUITE] [--list] [NAME...]" >&2
    exit 2
}

fail() {
    echo "breaks: $*" >&2
    exit 3
}

main() {
    local mode=all list=no name
    local -a chosen=()
    while (($#)); do
        case $1 in
        --ci) mode=ci ;;
        --suite)
            [[ ${2:-} =~ ^(conformance|faults|crash)$ ]] || usage
            by=$2
            shift
            ;;
        --list) list=yes ;;
        --help) help ;;
        -*) usage ;;
        *) chosen+=("$1") ;;
        esac
        shift
    done
    for name in "${chosen[@]}"; do
        [[ -f $breaks/$name.patch ]] || { echo "breaks: no break is called $name" >&2 && usage; }
    done
    if ((${#chosen[@]} == 0)); then
        if [[ $mode == ci ]]; then mapfile -t chosen < <(names_for_ci); else mapfile -t chosen < <(names); fi
        if [[ -n $by ]]; then mapfile -t chosen < <(of_suite "$by" "${chosen[@]}"); fi
    fi
    ((${#chosen[@]})) || fail "no break is caught by $by"
    if [[ $list == yes ]]; then list "${chosen[@]}"; else run "${chosen[@]}"; fi
}

names() {
    find "$breaks" -name '*.patch' -printf '%f\n' | sed 's/\.patch$//' | LC_ALL=C sort
}

# Two in a row of an order that visits every break once: the step is a prime that no number of breaks divides by. A
# shallow clone has no history to count, so there the commit's own number says where to begin.
names_for_ci() {
    local -a all
    mapfile -t all < <(names)
    local commit at step=7919
    if [[ $(git -C "$root" rev-parse --is-shallow-repository) == true ]]; then
        commit=$((16#$(git -C "$root" rev-parse HEAD | cut -c 1-7)))
    else
        commit=$(git -C "$root" rev-list --count HEAD)
    fi
    for ((at = 0; at < CI_COUNT; at++)); do
        echo "${all[$(((commit * CI_COUNT + at) * step % ${#all[@]}))]}"
    done | LC_ALL=C sort -u
}

# The value of a header field of a break; nothing where it has none.
field() { # NAME KEY
    sed -n "/^--- /q; s/^$2: *//p" "$breaks/$1.patch" | head -n 1
}

# Those among the breaks that a suite catches, first of all or too.
of_suite() { # SUITE NAME...
    local suite=$1 name
    shift
    for name in "$@"; do
        [[ ,$(all_suites "$name"), == *,"$suite",* ]] && echo "$name"
    done
    return 0
}

# The suites that catch a break, with commas.
all_suites() { # NAME
    echo "$(field "$1" Caught-by),$(field "$1" Also-caught-by)" | sed 's/ //g; s/,$//'
}

# The suite that is to catch a break now.
suite_of() { # NAME
    echo "${by:-$(field "$1" Caught-by)}"
}

list() { # NAME...
    local name
    for name in "$@"; do
        printf '%-44s %-18s %-24s %s\n' "$name" "$(all_suites "$name")" "$(field "$name" Requirement)" \
            "$(field "$name" Break)"
    done
    [[ -z $by ]] || list_excused "$by"
}

# What is of a suite's kind and cannot be caught by it, with the reason.
list_excused() { # SUITE
    local name reason
    while IFS= read -r name; do
        reason=$(field "$name" Not-by)
        [[ $reason == "$1:"* ]] && printf '%-44s not by %s\n' "$name" "$reason"
    done < <(names)
    return 0
}

run() { # NAME...
    local name began caught=0
    local -a escaped=()
    for name in "$@"; do check_header "$name"; done
    prepare_copy
    began=$SECONDS
    control "$@"
    for name in "$@"; do
        local at=$SECONDS
        restore_copy
        apply "$name"
        build "$(suite_of "$name")" "$(field "$name" Test)" || fail "$name does not build"
        if judge "$name"; then
            printf 'caught   %-44s by %s (%s s)\n' "$name" "$catcher" $((SECONDS - at))
            caught=$((caught + 1))
        else
            printf 'ESCAPED  %-44s %s\n' "$name" "$catcher"
            escaped+=("$name")
        fi
    done
    restore_copy
    echo "$caught of $# breaks caught, in $((SECONDS - began)) s"
    if ((${#escaped[@]})); then
        echo "escaped: ${escaped[*]}"
        exit 1
    fi
}

check_header() { # NAME
    local key
    for key in Break Requirement Caught-by; do
        [[ -n $(field "$1" $key) ]] || fail "$1 has no line \`$key:\`"
    done
    case $(suite_of "$1") in
    conformance | faults | crash) ;;
    tests) [[ $(field "$1" Test) =~ ^[a-z-]+::[a-z_]+::.+$ ]] || fail "$1 needs a line \`Test: PACKAGE::TARGET::FILTER\`" ;;
    *) fail "$1 is caught by none of \`conformance\`, \`faults\`, \`crash\` and \`tests\`" ;;
    esac
}

# ------------------------------------------------------------------------------------------------ the copy

prepare_copy() {
    local target=${CARGO_TARGET_DIR:-$root/target}
    cache=$(cd "$root" && mkdir -p "$target/breaks" 2>/dev/null && cd "$target/breaks" && pwd) || cache=$(mktemp -d)
    # One place for all runs: cargo knows by where the sources lie what it has built of them.
    copy=$cache/tree
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    exec 9>"$cache/lock"
    flock -n 9 || fail "another run uses $cache"
    git -C "$root" ls-files >"$work/tracked"
    # What is not tracked any more must not be built any more.
    (cd "$copy" 2>/dev/null && find . -type f -printf '%P\n' | LC_ALL=C sort |
        LC_ALL=C comm -23 - <(LC_ALL=C sort "$work/tracked") | xargs -r -d '\n' rm -f) || true
    copy_changed <"$work/tracked"
    # Which requirements stand behind a promise, which reports name by its name alone.
    sed -nE 's/^ *[A-Za-z]+ = ("[a-z-]+"), (\[[^]]*\]),.*/{\1: \2}/p' "$root/harness/src/promise.rs" |
        jq -s 'add // {}' >"$work/promises.json"
    [[ $(jq length "$work/promises.json") != 0 ]] || fail "the promises of the harness are not written as expected"
}

# Files that did not change keep their times, so that cargo builds again only what did.
copy_changed() { # < paths
    local path
    while IFS= read -r path; do
        [[ -e $root/$path ]] || continue
        cmp -s "$root/$path" "$copy/$path" && continue
        mkdir -p "$(dirname "$copy/$path")"
        cp "$root/$path" "$copy/$path"
    done
}

restore_copy() {
    grep '^core/src/' "$work/tracked" | copy_changed
}

apply() { # NAME
    local patch=$breaks/$1.patch
    # Without the ceiling git would find the repository around the copy and read the paths from its root.
    if ! (cd "$copy" && GIT_CEILING_DIRECTORIES=$cache git apply "$patch" 2>"$work/apply"); then
        (cd "$copy" && patch -s -p1 "-F$(fuzz "$patch")" --no-backup-if-mismatch -r - <"$patch") >"$work/apply" 2>&1 || {
            cat "$work/apply" >&2
            restore_copy
            fail "$1 does not apply"
        }
    fi
    diff -rq "$root/core/src" "$copy/core/src" >/dev/null && fail "$1 changes nothing"
    return 0
}

# How many lines of context may differ. A hunk that only adds lines has nothing else to say where it belongs: with all
# of its context given up it would land anywhere, and break something else than it says.
fuzz() { # PATCH
    awk '/^@@/ { only_adds += hunks && !removes; hunks++; removes = 0 }
        /^-/ && hunks { removes = 1 }
        END { print (only_adds || !removes) ? 1 : 3 }' "$1"
}

cargo_in_copy() {
    (cd "$copy" && CARGO_TARGET_DIR=$cache/target CARGO_PROFILE_DEV_DEBUG=none CARGO_TERM_COLOR=never cargo "$@")
}

# ------------------------------------------------------------------------------------------------ suites

target_flag() { # TARGET
    if [[ $1 == lib ]]; then echo --lib; else echo "--test=$1"; fi
}

# Splits PACKAGE::TARGET::FILTER.
split_test() { # TEST
    package=${1%%::*}
    local rest=${1#*::}
    test_target=${rest%%::*}
    filter=${rest#*::}
}

build() { # CAUGHT-BY TEST
    if [[ $1 != tests ]]; then
        cargo_in_copy build -q -p session-harness --bin session-harness
    else
        local package test_target filter
        split_test "$2"
        cargo_in_copy test -q -p "$package" "$(target_flag "$test_target")" --no-run
    fi >"$work/build" 2>&1 || {
        tail -n 40 "$work/build" >&2
        return 1
    }
}

# Runs a suite, bounded in time and memory; leaves its output in `output` and its exit status in `status`.
bounded() { # SECONDS COMMAND...
    local seconds=$1
    shift
    status=0
    (
        ulimit -c 0 -v "$MEMORY_KB"
        cd "$copy" && exec timeout -k 5 "$seconds" "$@"
    ) >"$work/output" 2>&1 9>&- || status=$?
}

run_suite() { # SECONDS SUITE
    local -a expectations=()
    # The contract leaves some points open, and the core has one answer to each: the unbroken one says which.
    if [[ $2 == conformance ]]; then
        if [[ -f $work/choices.json ]]; then
            expectations=(--expect "$work/choices.json")
        else
            expectations=(--write-expect "$work/choices.json")
        fi
    fi
    run_harness "$1" run "$2" "${expectations[@]}"
    # A core that ends its process takes the harness with it; behind the protocol only the store's own process ends.
    if [[ $2 == conformance ]] && ((status >= 128 && status != 137)); then
        run_harness "$1" run "$2" --subject "$cache/target/debug/session-harness subject"
    fi
}

run_harness() { # SECONDS ARGUMENT...
    local seconds=$1
    shift
    rm -f "$work/report.json"
    bounded "$seconds" "$cache/target/debug/session-harness" "$@" --quiet --report "json=$work/report.json"
}

run_test() { # SECONDS TEST
    local package test_target filter
    split_test "$2"
    # `cargo test` of what is built already: it knows the file's name and the directory to run it in.
    CARGO_TARGET_DIR=$cache/target CARGO_PROFILE_DEV_DEBUG=none CARGO_TERM_COLOR=never RUST_BACKTRACE=0 \
        bounded "$1" cargo test -p "$package" "$(target_flag "$test_target")" -- "$filter"
}

# The unbroken copy passes everything that is about to be run on broken ones.
control() { # NAME...
    local name suite test status built='' at=$SECONDS
    restore_copy
    for name in "$@"; do
        suite=$(suite_of "$name")
        echo "$suite" "$([[ $suite != tests ]] || field "$name" Test)"
    done | sort -u >"$work/suites"
    while read -r suite test; do
        # The tests of one target come one after the other, and are built together.
        if [[ $built != "$suite ${test%::*}" ]]; then
            build "$suite" "$test" || fail "the unbroken copy does not build"
            built="$suite ${test%::*}"
        fi
        if [[ $suite == tests ]]; then run_test "$SUITE_SECONDS" "$test"; else run_suite "$SUITE_SECONDS" "$suite"; fi
        if ((status != 0)); then
            tail -n 40 "$work/output" >&2
            fail "the unbroken copy is not clean: $suite $test"
        fi
        if [[ $suite == tests ]] && ! grep -qE '^test .*\.\.\. ok$' "$work/output"; then
            fail "no test passes under $test"
        fi
    done <"$work/suites"
    echo "control: the unbroken copy is clean ($(wc -l <"$work/suites") runs, $((SECONDS - at)) s)"
}

# Whether the broken copy fails as declared; `catcher` then names what caught it, else what was seen.
judge() { # NAME
    local package test_target filter cited status suite seconds=$SUITE_SECONDS
    catcher=
    [[ $(field "$1" Hangs) == yes ]] && seconds=$HANG_SECONDS
    suite=$(suite_of "$1")
    if [[ $suite == tests ]]; then
        run_test "$seconds" "$(field "$1" Test)"
    else
        run_suite "$seconds" "$suite"
    fi
    if ((status == 124 || status == 137)); then
        catcher="does not end within $seconds s"
        [[ $(field "$1" Hangs) == yes ]] || return 1
        [[ $suite == tests ]] || return 1
        split_test "$(field "$1" Test)"
        is_cited_by_test "$1" "$filter" && catcher="$filter ($cited), which $catcher"
    elif [[ $suite != tests ]]; then
        judge_report "$1"
    else
        judge_tests "$1"
    fi
}

# The requirement ids of a break as words.
requirements() { # NAME
    field "$1" Requirement | tr -d ' ' | tr ',' '\n'
}

judge_report() { # NAME
    # Whoever runs the suite learns of it by this.
    if [[ $suite == conformance && $status != 1 ]]; then
        catcher="the suite ended with $status"
        return 1
    fi
    if [[ ! -s $work/report.json ]]; then
        catcher="the suite gave no report: $(tail -n 1 "$work/output")"
        return 1
    fi
    local failed hits first
    IFS=$'\t' read -r failed hits first < <(
        jq -r --slurpfile promises "$work/promises.json" --arg wanted "$(field "$1" Requirement)" '
            ($wanted | gsub(" "; "") | split(",")) as $wanted
            | [.cases[]
                | select(.unexpected or (.status | IN("violation", "crash", "timeout", "harness_error")))
                | (.evidence | map(.promise // empty) | unique) as $broken
                | (.requirements + [$broken[] | $promises[0][.] // [] | .[]]) as $cited
                | {id, broken: ($broken | join(",")), cites: ($wanted - ($wanted - $cited))}]
            | map(select(.cites != [])) as $hits
            | [length, ($hits | length), ($hits[0] // {cites: []} | "\(.id) (\(.cites[0]); \(.broken))")] | @tsv
        ' "$work/report.json"
    )
    if ((hits > 0)); then
        catcher="$first, one of $hits"
    else
        catcher="$failed cases fail, none cites $(field "$1" Requirement)"
        return 1
    fi
}

judge_tests() { # NAME
    local test
    while IFS= read -r test; do
        catcher=$test
        if is_cited_by_test "$1" "$test"; then
            catcher="$test ($cited)"
            return 0
        fi
    done < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$work/output" | sort -u)
    if [[ -z $catcher ]] && grep -qE '\(signal: [0-9]+' "$work/output"; then
        # A process that was ended by a signal does not say in which test; so it is the one that was asked for.
        split_test "$(field "$1" Test)"
        is_cited_by_test "$1" "$filter" && catcher="$filter ($cited), ended by a signal" && return 0
    fi
    catcher=${catcher:+"$catcher fails and does not cite $(field "$1" Requirement)"}
    catcher=${catcher:-"no test fails under $(field "$1" Test)"}
    return 1
}

# Whether the line above a test names one of the break's requirements; `cited` is that one.
is_cited_by_test() { # NAME TEST
    local line
    line=$(cd "$root" && grep -hB 8 -E "fn ${2##*::}\b" -r core/src core/tests harness/src harness/tests --include='*.rs' |
        grep -E '^ *// Requirement:' | tail -n 1) || return 1
    cited=$(requirements "$1" | grep -Fx -m 1 -f <(sed 's/.*Requirement://; s/ //g' <<<"$line" | tr ',' '\n')) || return 1
}

main "$@"
