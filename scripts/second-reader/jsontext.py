"""JSON texts by RFC 8259: parsing, and writing in canonical form.

Python's `json` is not used: it accepts NaN and Infinity, rounds numbers, keeps the last of two members with one
name, does not say whether a text is wrong or merely cut off, and fails on deep nesting. Nothing here recurses.
"""

import re
from dataclasses import dataclass, field

SPACE = re.compile(r"[ \t\r\n]*")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
DIGITS = re.compile(r"[0-9]*")
HEX = re.compile(r"[0-9A-Fa-f]{0,4}")
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
MUST_ESCAPE = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')

SHORT_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WRITTEN_SHORT = {character: "\\" + letter for letter, character in SHORT_ESCAPES.items() if letter != "/"}


class Malformed(Exception):
    """The text is not JSON. `cut_off`: every character fits, and more of them could make a whole value."""

    def __init__(self, offset, cut_off):
        super().__init__(f"malformed at character {offset}")
        self.offset = offset
        self.cut_off = cut_off


@dataclass
class Number:
    """A number as it was spelled."""

    spelling: str


@dataclass
class Object:
    """An object with its members in the order of the text."""

    members: list = field(default_factory=list)
    names: set = field(default_factory=set)
    repeats_a_name: bool = False

    def add(self, name, value):
        self.repeats_a_name |= name in self.names
        self.names.add(name)
        self.members.append((name, value))

    def as_dict(self):
        return dict(self.members)


def parse(text):
    """The value of a whole JSON text: Object, list, str, Number, True, False or None. Otherwise raises Malformed.

    Half a surrogate pair that was written as an escape stays in a str as one character.
    """
    scan = Scanner(text)
    open_ones = []  # [object, name of the member that is read] or [list, None], outermost first
    while True:
        scan.skip_space()
        value = scan.opened_or_scalar()
        if scan.opened:
            name = scan.name() if isinstance(value, Object) else None
            open_ones.append([value, name])
            continue
        while True:
            scan.skip_space()
            if not open_ones:
                if scan.at < len(text):
                    raise scan.malformed()
                return value
            inner = open_ones[-1]
            container, name = inner
            if name is None:
                container.append(value)
            else:
                container.add(name, value)
            if scan.take(","):
                if name is not None:
                    inner[1] = scan.name()
                break
            if not scan.take("]" if name is None else "}"):
                raise scan.malformed()
            value, _ = open_ones.pop()


class Scanner:
    """Reads the tokens of a text from left to right."""

    def __init__(self, text):
        self.text = text
        self.at = 0
        self.opened = False

    def malformed(self):
        return Malformed(self.at, self.at == len(self.text))

    def take(self, character):
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def expect(self, character):
        if not self.take(character):
            raise self.malformed()

    def run(self, pattern):
        match = pattern.match(self.text, self.at)
        self.at = match.end()
        return match.group()

    def skip_space(self):
        self.run(SPACE)

    def opened_or_scalar(self):
        """A scalar, an empty container, or one that is `opened` and has a first member to come."""
        self.opened = False
        if self.take("{"):
            self.skip_space()
            self.opened = not self.take("}")
            return Object()
        if self.take("["):
            self.skip_space()
            self.opened = not self.take("]")
            return []
        if self.text.startswith('"', self.at):
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.take(word[0]):
                for letter in word[1:]:
                    self.expect(letter)
                return value
        return self.number()

    def name(self):
        """The name of a member, and the colon behind it."""
        self.skip_space()
        name = self.string()
        self.skip_space()
        self.expect(":")
        return name

    def string(self):
        self.expect('"')
        pieces = []
        while True:
            pieces.append(self.run(PLAIN))
            if self.take('"'):
                return PAIR.sub(join_pair, "".join(pieces))
            self.expect("\\")
            pieces.append(self.escaped())

    def escaped(self):
        if self.take("u"):
            digits = self.run(HEX)
            if len(digits) < 4:
                raise self.malformed()
            return chr(int(digits, 16))
        for letter, character in SHORT_ESCAPES.items():
            if self.take(letter):
                return character
        raise self.malformed()

    def number(self):
        start = self.at
        self.take("-")
        if not self.take("0"):
            self.digits()
        if self.take("."):
            self.digits()
        if self.take("e") or self.take("E"):
            if not self.take("+"):
                self.take("-")
            self.digits()
        return Number(self.text[start : self.at])

    def digits(self):
        if not self.run(DIGITS):
            raise self.malformed()


def join_pair(match):
    high, low = match.group()
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def write(value):
    """The canonical text of a value: no white space, minimal escapes, members and numbers as they were read."""
    pieces = []
    due = [value]  # values, and punctuation that is already text, last one first
    while due:
        item = due.pop()
        if isinstance(item, Punctuation):
            pieces.append(item.text)
        elif isinstance(item, Object):
            due.append(Punctuation("}"))
            for position, (name, member) in reversed(list(enumerate(item.members))):
                due += [member, Punctuation(("," if position else "") + write_string(name) + ":")]
            due.append(Punctuation("{"))
        elif isinstance(item, list):
            due.append(Punctuation("]"))
            for position, member in reversed(list(enumerate(item))):
                due += [member, Punctuation("," if position else "")]
            due.append(Punctuation("["))
        else:
            pieces.append(write_scalar(item))
    return "".join(pieces)


@dataclass
class Punctuation:
    """A piece of the text that `write` has still to put down."""

    text: str


def write_scalar(value):
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, Number):
        return value.spelling
    return {True: "true", False: "false", None: "null"}[value]


def write_string(text):
    return '"' + MUST_ESCAPE.sub(write_escape, text) + '"'


def write_escape(match):
    character = match.group()
    return WRITTEN_SHORT.get(character) or f"\\u{ord(character):04x}"
