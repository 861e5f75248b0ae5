#!/usr/bin/env python3
"""Reads every one-shot case of a corpus with a second reader of the format and compares.

    python3 scripts/second-reader/check.py corpus/conformance [TOPIC...]

A `must` case has to agree. Of a `choice` the answer is told; none is wrong, but it has to be one of those that the
case names. Needs Python 3.11 and nothing else. Exit status: 0 when all agree, 1 when a case does not, 2 for wrong
usage or a case file that cannot be read.
"""

import sys
from collections import Counter
from pathlib import Path

from cases import BadCase, one_shot_cases
from session import Refused, read


def main(arguments):
    if not arguments or not Path(arguments[0]).is_dir():
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments == ["--help"] else 2
    folder, topics = Path(arguments[0]).resolve(), arguments[1:]
    agreed, answers, disagreements = 0, Counter(), []
    try:
        for case in one_shot_cases(folder):
            if topics and case.path.parent.name not in topics:
                continue
            name, difference = judge(case, answer(case.input))
            if difference:
                disagreements.append(f"{case.id}: {difference}")
            elif name:
                answers[case.content["choice"], name] += 1
            else:
                agreed += 1
    except (BadCase, KeyError, ValueError, OSError) as error:
        print(f"cannot read a case: {error!r}", file=sys.stderr)
        return 2
    for (choice, name), cases in sorted(answers.items()):
        print(f"{choice}: {name} ({cases} cases)")
    for line in disagreements:
        print(line)
    print(f"must: {agreed} agree; choice: {answers.total()} answered; disagreements: {len(disagreements)}")
    if not agreed and not answers and not disagreements:
        print(f"no one-shot case is there: {folder} holds TOPIC/CASE.json", file=sys.stderr)
        return 2
    return 1 if disagreements else 0


def judge(case, given):
    """The name of the answer to a choice, or None, and what differs from every outcome that is admitted, or None."""
    if case.level == "must":
        return None, compare(case, case.content["expect"], given)
    for name, outcome in case.content["answers"].items():
        if compare(case, outcome, given) is None:
            return name, None
    return None, f"none of the answers, {describe(given)}"


def answer(data):
    """A Session or a Refused."""
    try:
        return read(data)
    except Refused as refused:
        return refused


def compare(case, outcome, given):
    """What differs, or None."""
    if "code" in outcome:
        expected = describe(Refused(outcome["code"], outcome.get("line")))
        return None if describe(given) == expected else f"{expected} expected, {describe(given)}"
    if isinstance(given, Refused):
        return f"a session expected, {describe(given)}"
    if given.canonical != case.canonical(outcome):
        return f"another canonical form: {given.canonical[:2000]!r}"
    if given.torn_tail != outcome.get("torn_tail", 0):
        return f"a torn tail of {outcome.get('torn_tail', 0)} bytes expected, {describe(given)}"
    if given.can_be_flushed == ("flush" in outcome):
        return "another answer to whether a flush fits into the file"
    return None


def describe(given):
    if isinstance(given, Refused):
        return f"{given.code} at line {given.line}" if given.line else given.code
    return f"accepted with {len(given.entries)} entries and a torn tail of {given.torn_tail} bytes"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
