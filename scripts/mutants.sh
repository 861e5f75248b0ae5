#!/usr/bin/env bash
# Mutation testing of the core: cargo-mutants changes one expression after the other in a copy of the tracked tree, and
# the core's own tests must notice. What no test notices needs a reason in scripts/mutants/excused.txt.
#
#   scripts/mutants.sh                    every mutant that has no outcome yet, then the report
#   scripts/mutants.sh --file GLOB        only mutants of these files, such as 'core/src/recover/*.rs'; may be repeated
#   scripts/mutants.sh --shard K/N        only the shard K, counted from 0, of N: several machines share one run
#   scripts/mutants.sh --minutes N        stop after about so many minutes; another call goes on from there
#   scripts/mutants.sh --take FILE        add the outcomes of another machine: its target/mutants/outcomes.tsv
#   scripts/mutants.sh --fresh            forget every outcome first
#   scripts/mutants.sh --report           only the report of what is known; runs nothing
#   scripts/mutants.sh --help             print this
#
# Outcomes are kept in target/mutants/outcomes.tsv. One of a file that changed since is not used any more; a mutant that
# survived is tried again by the next call, and what was caught stays caught.
#
# The report counts, names every survivor and every mutant whose tests did not end (which counts as caught), and holds
# the excuses against the survivors. The whole core takes about two hours of one core.
#
# Needs cargo-mutants (`cargo install --locked cargo-mutants`) and jq; installs neither.
# Exit status: 0 at least 95 % of the viable mutants are caught and every survivor has its reason, 1 not so, or some have
# no outcome yet, 2 wrong usage, 3 the script could not do its work.
set -euo pipefail

readonly WANTED_PERCENT=95
# Mutants without outcome that a report on the screen names; all of them are in target/mutants/report.txt.
readonly MOST_SKIPPED=100
# Seconds that the tests may run for one mutant; those of the unchanged core take a small part of this.
readonly TEST_SECONDS=${MUTANTS_TEST_SECONDS:-60}
# Kilobytes of address space, so that a mutant which allocates for ever ends as a failure.
readonly MEMORY_KB=$((8 * 1024 * 1024))
# Test targets of the core, as two: each is linked once per mutant, and which one notices a mutant is known by its file.
readonly FORMAT_TARGETS=(format_decode format_message format_tail)
readonly STORE_TARGETS=(append commit futures os_files queue recover store tree turns words)
readonly FORMAT_FILES='core/src/(decode|decode/problems|decode/shape|encode|error|json_prefix|limits|linkage|message|quoted|record|tape|text)\.rs'
# Left to the last round: it takes longer than all others together.
readonly SLOW_TEST=every_short_text_has_the_verdict_of_the_definition

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root excused=$root/scripts/mutants/excused.txt

# The comment at the head of this file.
help() {
    sed -n '2,/^set -euo/{/^#/!d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
}

usage() {
    echo "$1: type \`scripts/mutants.sh --help\`" >&2
    exit 2
}

fail() {
    echo "mutants: $*" >&2
    exit 3
}

main() {
    local mode=run fresh=no taken=()
    deadline=
    selection=() shard=0 shards=1
    while (($#)); do
        case $1 in
        --help) help ;;
        --report) mode=report ;;
        --fresh) fresh=yes ;;
        --file | --shard | --minutes | --take)
            [[ -n ${2:-} ]] || usage "$1 wants a value"
            case $1 in
            --take) taken+=("$2") ;;
            --minutes)
                [[ $2 =~ ^[0-9]+$ ]] || usage "--minutes wants a number"
                deadline=$((SECONDS + $2 * 60))
                ;;
            --shard)
                [[ $2 =~ ^([0-9]+)/([0-9]+)$ ]] || usage "--shard wants K/N"
                shard=${BASH_REMATCH[1]} shards=${BASH_REMATCH[2]}
                ((shard < shards)) || usage "--shard wants a K below N"
                ;;
            *) selection+=("$1" "$2") ;;
            esac
            shift
            ;;
        *) usage "no option is named \`$1\`" ;;
        esac
        shift
    done
    prepare
    if [[ $fresh == yes ]]; then : >"$outcomes"; fi
    if ((${#taken[@]})); then keep <<<"$(cat -- "${taken[@]}")"; fi
    if [[ $mode == run ]]; then run; fi
    report
}

prepare() {
    command -v jq >/dev/null || fail "jq is not here; Debian's package has that name"
    cargo mutants --version >/dev/null 2>&1 ||
        fail "cargo-mutants is not here, and building it takes minutes: \`cargo install --locked cargo-mutants\`"
    local target=${CARGO_TARGET_DIR:-$root/target}
    cache=$(mkdir -p "$target/mutants" && cd "$target/mutants" && pwd) || fail "cannot make $target/mutants"
    copy=$cache/tree outcomes=$cache/outcomes.tsv
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    exec 9>"$cache/lock"
    flock -n 9 || fail "another run uses $cache"
    touch "$outcomes"
    prepare_copy
    export CARGO_TARGET_DIR=$cache/target CARGO_PROFILE_DEV_DEBUG=none CARGO_TERM_COLOR=never
    # Tests of the store wait more than they compute, and most of their waiting is for a disk.
    export RUST_TEST_THREADS=16 RUST_BACKTRACE=0 SESSION_HARNESS_SEED=20261201
    if [[ -z ${TMPDIR:-} && -w /dev/shm ]]; then
        export TMPDIR=$work/tmp
        [[ $(df --output=fstype "$work" | tail -n 1) == tmpfs ]] || TMPDIR=$(mktemp -d -p /dev/shm)
        # Expanded now: the variables are gone when the trap runs.
        # shellcheck disable=SC2064
        trap "rm -rf '$work' '$TMPDIR'" EXIT
        mkdir -p "$TMPDIR"
    fi
    list >"$work/all.json"
}

# ------------------------------------------------------------------------------------------------ the copy

# A copy of the tracked tree, since the mutants are put into the sources themselves. Files that did not change keep
# their times, so that cargo builds again only what did; a mutant that an earlier run left behind is taken back.
prepare_copy() {
    local path
    git -C "$root" ls-files >"$work/tracked"
    while IFS= read -r path; do
        [[ -e $root/$path ]] || continue
        cmp -s "$root/$path" "$copy/$path" && continue
        mkdir -p "$(dirname "$copy/$path")"
        cp "$root/$path" "$copy/$path"
    done <"$work/tracked"
    combine formats "${FORMAT_TARGETS[@]}"
    combine stores "${STORE_TARGETS[@]}"
}

combine() { # NAME TARGET...
    local name=$1 target
    shift
    {
        echo '//! Test targets of the core as one.'
        for target in "$@"; do
            [[ -e $root/core/tests/$target.rs ]] || fail "the core has no test target $target"
            printf '#[path = "%s.rs"]\nmod %s;\n' "$target" "$target"
        done
    } >"$work/$name.rs"
    cmp -s "$work/$name.rs" "$copy/core/tests/$name.rs" || cp "$work/$name.rs" "$copy/core/tests/$name.rs"
}

# Every mutant: its name, its file's digest, and the line that it stands in.
list() {
    (cd "$copy" && cargo mutants --list --json --package session-tree) >"$work/list.json" ||
        fail "cargo-mutants cannot list the mutants"
    local path
    jq -r '[.[].file] | unique[]' "$work/list.json" | while IFS= read -r path; do
        jq -Rs --arg path "$path" --arg digest "$(cut -c 1-16 <<<"$(sha256sum <"$copy/$path")")" \
            '{($path): {digest: $digest, lines: split("\n")}}' "$copy/$path"
    done | jq -s add >"$work/files.json"
    jq --slurpfile files "$work/files.json" '[.[] | {
        name,
        digest: $files[0][.file].digest,
        says: (.file + ": " + (.name | sub("^[^:]*:[0-9]+:[0-9]+: "; ""))),
        line: ($files[0][.file].lines[.span.start.line - 1] | sub("^\\s+"; ""))
    }]' "$work/list.json"
}

# ------------------------------------------------------------------------------------------------ rounds

# Two quick rounds, each with the tests that stand beside what is changed, then one with every test for what is left.
run() {
    local first=(--lib --test=formats) second=(--test=stores) all=(--lib --test=formats --test=stores)
    control "${all[@]}"
    round formats "${first[*]}" "--skip $SLOW_TEST" --re "^$FORMAT_FILES:"
    round stores "${second[*]}" '' --exclude-re "^$FORMAT_FILES:"
    round all "${all[*]}" ''
}

control() { # TARGET...
    (ulimit -c 0 -v "$MEMORY_KB" && cd "$copy" &&
        cargo test --quiet --package session-tree --features tokio "$@") >"$work/control" 2>&1 || {
        tail -n 40 "$work/control" >&2
        fail "the unchanged core does not pass its tests"
    }
}

round() { # NAME TARGETS TEST-ARGUMENTS SELECTION...
    local name=$1 targets test_arguments status=0 target
    read -ra targets <<<"$2"
    read -ra test_arguments <<<"$3"
    shift 3
    local arguments=(mutants --in-place --package session-tree --features tokio --baseline skip
        --timeout "$TEST_SECONDS" --output "$cache" --iterate --colors never "${selection[@]}" "$@")
    # For the build as well, or every target of the package is linked for every mutant.
    for target in "${targets[@]}"; do arguments+=("--cargo-arg=$target"); done
    local limit=()
    if [[ -n $deadline ]]; then
        ((deadline > SECONDS)) || return 0
        limit=(timeout --signal=INT $((deadline - SECONDS)))
    fi
    # What `--iterate` leaves out.
    mkdir -p "$cache/mutants.out"
    rm -f "$cache"/mutants.out/{caught,missed,timeout,unviable}.txt
    known >"$cache/mutants.out/previously_caught.txt"
    echo "round $name: $(wc -l <"$cache/mutants.out/previously_caught.txt") mutants have their outcome or another shard"
    (ulimit -c 0 -v "$MEMORY_KB" && cd "$copy" &&
        exec "${limit[@]}" cargo "${arguments[@]}" -- -- "${test_arguments[@]}") 9>&- || status=$?
    collect | keep
    # 2 and 3 say that there were survivors, 124 and 130 that the time was over.
    case $status in
    0 | 2 | 3) ;;
    # A build that was cut off may have left pieces that no later one links, which would pass for unviable mutants.
    124 | 130) rm -rf "$CARGO_TARGET_DIR/debug/incremental" ;;
    *) fail "cargo-mutants ended with status $status" ;;
    esac
}

# Names of the mutants that need no test here: what is known, and what belongs to another shard. Not by the option of
# cargo-mutants: a shard is to be the same set in every call, whatever is known by then.
known() {
    jq -rRn --argjson shard "$shard" --argjson shards "$shards" --slurpfile all "$work/all.json" '
        ($all[0] | map({(.name): .digest}) | add // {}) as $digest
        | [inputs / "\t" | select($digest[.[2]] == .[0] and .[1] != "missed") | .[2]]
          + [$all[0] | to_entries[] | select(.key % $shards != $shard) | .value.name]
        | unique[]' "$outcomes"
}

# The outcomes of the round just run.
collect() {
    local outcome
    for outcome in caught missed timeout unviable; do
        [[ -e $cache/mutants.out/$outcome.txt ]] || continue
        jq -rRn --arg outcome "$outcome" --slurpfile all "$work/all.json" '
            ($all[0] | map({(.name): .digest}) | add // {}) as $digest
            | inputs | select($digest[.] != null) | [$digest[.], $outcome, .] | @tsv' \
            "$cache/mutants.out/$outcome.txt"
    done
}

# Adds outcomes; the last one of a mutant counts.
keep() { # < outcomes
    cat "$outcomes" - | tac | awk -F '\t' 'NF == 3 && !seen[$1, $3]++' | tac >"$outcomes.new"
    mv "$outcomes.new" "$outcomes"
}

# ------------------------------------------------------------------------------------------------ the report

report() {
    excuses >"$work/excuses.json"
    local status=0
    jq -rRn --argjson wanted "$WANTED_PERCENT" --slurpfile all "$work/all.json" \
        --slurpfile excuses "$work/excuses.json" '
        [inputs / "\t" | {(.[0] + " " + .[2]): .[1]}] | add // {} | . as $outcome
        | [$all[0][] | . + {outcome: ($outcome[.digest + " " + .name] // "skipped")}] as $mutants
        | def named($which): [$mutants[] | select(.outcome == $which)];
        (named("caught") + named("timeout") | length) as $caught
        | ($caught + (named("missed") | length)) as $viable
        | [named("missed")[] | . as $it
            | . + {reason: (first($excuses[0][] | select(.says == $it.says and .line == $it.line) | .reason) // null)}]
            as $missed
        | (if named("skipped") != [] then [] else
            [$excuses[0][] | . as $it | select(any($missed[]; .says == $it.says and .line == $it.line) | not)]
          end) as $idle
        | ([$missed[] | select(.reason == null)]) as $unexcused
        | ($caught * 100 < $wanted * $viable) as $few
        | ($mutants | group_by(.name | sub(":.*"; ""))[]
            | "\(.[0].name | sub(":.*"; "")): \(length) mutants, \([.[] | select(.outcome == "caught")] | length) caught, \([.[] | select(.outcome == "timeout")] | length) did not end, \([.[] | select(.outcome == "missed")] | length) missed, \([.[] | select(.outcome == "unviable")] | length) unviable, \([.[] | select(.outcome == "skipped")] | length) skipped"),
          ($mutants[] | select(.outcome == "skipped") | "skipped      \(.name)"),
          (named("timeout")[] | "did not end  \(.name)"),
          ($missed[] | select(.reason != null) | "excused      \(.name): \(.reason)"),
          ($unexcused[] | "MISSED       \(.name)\n             \(.line)"),
          ($idle[] | "IDLE EXCUSE  \(.says)\n             \(.line)"),
          "\($mutants | length) mutants: \(named("unviable") | length) unviable, \($viable) viable, \(named("skipped") | length) without outcome",
          "\($caught) caught (of these \(named("timeout") | length) did not end), \($missed | length) missed (of these \($unexcused | length) without a reason): \(if $viable == 0 then 0 else $caught * 1000 / $viable | floor / 10 end) % of viable ones, \($wanted) % wanted",
          (if $few or $unexcused != [] or $idle != [] or named("skipped") != [] then "" | halt_error(1) else empty end)
        ' "$outcomes" >"$cache/report.txt" || status=$?
    ((status < 2)) || fail "the report cannot be made"
    if (($(grep -c '^skipped' "$cache/report.txt" || true) > MOST_SKIPPED)); then
        grep -v '^skipped' "$cache/report.txt"
        echo "those without outcome are named in $cache/report.txt"
    else
        cat "$cache/report.txt"
    fi
    exit "$status"
}

# Blocks of three lines: file and mutation, the line that is changed, the reason. Comments begin with `#`.
excuses() {
    sed '/^#/d' "$excused" | jq -Rs '
        [splits("\n{2,}") | select(test("\\S")) | sub("^\n+"; "") / "\n" | map(select(. != "") | sub("^\\s+"; ""))
            | if length == 3 then {says: .[0], line: .[1], reason: .[2]} else error("not three lines: \(.)") end]
    ' || fail "$excused is not made of blocks of three lines"
}

main "$@"
