"""The case files of corpus/conformance, as corpus/README.md describes them."""

import json
from dataclasses import dataclass
from pathlib import Path

TIME = "2026-01-01T00:00:00.000Z"
HEADER = b'{"type":"session","version":1,"id":"session-1","createdAt":"%s"}\n' % TIME.encode()


class BadCase(Exception):
    """A case file that does not keep to its format."""


@dataclass
class Case:
    path: Path
    id: str
    level: str
    content: dict

    def bytes_of(self, description):
        """The bytes that a description stands for."""
        if isinstance(description, list):
            return b"".join(self.bytes_of(part) for part in description)
        match description:
            case {"text": text}:
                return text.encode()
            case {"hex": digits}:
                return bytes.fromhex(digits)
            case {"file": name}:
                return (self.path.parent / name).read_bytes()
            case {"session": name}:
                return (self.path.parents[2] / "sessions" / name).read_bytes()
            case {"repeat": part, "times": times}:
                return self.bytes_of(part) * times
            case {"cut": part, "to": length}:
                return self.cut(self.bytes_of(part), length)
            case {"chain": length}:
                return chain(length, self.bytes_of(description.get("content", {"text": "x"})).decode())
            case {"header": True}:
                return HEADER
        raise BadCase(f"{self.path}: not a description of bytes: {description}")

    def cut(self, data, length):
        if length > len(data):
            raise BadCase(f"{self.path}: {len(data)} bytes cut to {length}")
        return data[:length]

    @property
    def input(self):
        return self.bytes_of(self.content["input"])

    def canonical(self, outcome):
        """The bytes that an outcome of an accepted file asks for."""
        if outcome["canonical"] == "input":
            return self.input
        return self.bytes_of(outcome["canonical"])


def one_shot_cases(folder):
    """The cases with an input, by id. A case with a script needs a store and is passed over."""
    for path in sorted(folder.glob("*/*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if "script" in content:
            continue
        wanted = {"must": ("input", "expect"), "choice": ("input", "choice", "answers")}.get(content.get("level"))
        if wanted is None or any(member not in content for member in wanted):
            raise BadCase(f"{path}: neither a `must` case with input and expect nor a `choice` with its answers")
        yield Case(path, f"{folder.name}/{path.parent.name}/{path.stem}", content["level"], content)


def chain(length, content):
    """Entries `e1`, `e2` and so on, each the child of the one before."""
    content = json.dumps(content, ensure_ascii=False)
    lines = []
    for number in range(1, length + 1):
        parent = "null" if number == 1 else f'"e{number - 1}"'
        message = f'{{"id":"m{number}","role":"user","content":{content}}}'
        fields = f'"id":"e{number}","parentId":{parent},"timestamp":"{TIME}","message":{message}'
        lines.append(f'{{"type":"entry","version":1,{fields}}}\n')
    return "".join(lines).encode()
