#!/usr/bin/env python3
"""Writes the inputs of a corpus out as files, for a store that is tested without any tool of this repository.

    python3 scripts/second-reader/expand.py corpus/conformance DIRECTORY

For each one-shot case `TOPIC/CASE.json` the directory gets `TOPIC/CASE.jsonl`, the file to load, and where a load
must or may succeed `TOPIC/CASE.canonical` or `TOPIC/CASE.canonical.ANSWER`, the file that a flush must leave. It is
missing where a flush must be refused. Codes and lines to expect stand in the case itself. All files together take
about 100 MB.
"""

import sys
from pathlib import Path

from cases import one_shot_cases


def main(arguments):
    if len(arguments) != 2 or not Path(arguments[0]).is_dir():
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments == ["--help"] else 2
    folder, out = (Path(argument).resolve() for argument in arguments)
    for case in one_shot_cases(folder):
        path = out / case.path.relative_to(folder).with_suffix(".jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(case.input)
        for name, outcome in outcomes(case):
            if "canonical" in outcome and "flush" not in outcome:
                path.with_suffix(name).write_bytes(case.canonical(outcome))
    return 0


def outcomes(case):
    """Each outcome with the ending of its file."""
    if case.level == "must":
        return [(".canonical", case.content["expect"])]
    return [(f".canonical.{name}", outcome) for name, outcome in case.content["answers"].items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
