"""Sessions of format 1, read from bytes.

Written from the contract alone, as a second opinion. Where the contract leaves a choice, this reader takes the one
that needs the least code in Python:

    F9.bom              refused
    F9.duplicate-names  refused
    F9.surrogates       kept
    F9.numbers          kept
    F9.version          refused: nothing but `1` is version 1
    F9.depth            unbounded
    R4.blank            ascii
"""

from dataclasses import dataclass, field

from jsontext import Malformed, Number, Object, parse, write

MAX_LINE_BYTES = 65_536
MAX_FILE_BYTES = 4_194_304
MAX_ENTRIES = 4_096
BLANKS = "\t\n\v\f\r "


class Refused(Exception):
    """The file is no session. `line` counts from 1 and is None where the file as a whole is refused."""

    def __init__(self, code, line=None):
        super().__init__(code)
        self.code = code
        self.line = line


@dataclass
class Entry:
    line: int
    id: str
    parent: str | None
    canonical: str
    calls: list = field(default_factory=list)  # (id, name) of each tool call
    result: tuple | None = None  # (id, name) of the call that this answers


@dataclass
class Session:
    canonical: bytes
    entries: list
    torn_tail: int  # bytes that were left out

    @property
    def can_be_flushed(self):
        return len(self.canonical) <= MAX_FILE_BYTES


def read(data):
    """The session in these bytes; raises Refused."""
    if len(data) > MAX_FILE_BYTES:
        raise Refused("SESSION_FILE_TOO_LARGE")
    values, torn_tail = read_lines(data)
    if not values:
        raise Refused("SESSION_INVALID_HEADER", 1)
    header = in_line(1, read_header, values[0])
    entries = read_entries(values[1:])
    canonical = "".join(text + "\n" for text in [header, *(entry.canonical for entry in entries)])
    return Session(canonical.encode(), entries, torn_tail)


def in_line(line, function, *arguments):
    try:
        return function(*arguments)
    except Refused as refused:
        raise Refused(refused.code, line) from None


# Lines


def read_lines(data):
    """The JSON value of each line, and the number of bytes of a torn tail."""
    *lines, last = data.split(b"\n")
    values = [in_line(number, read_line, line) for number, line in enumerate(lines, 1)]
    if not last:
        return values, 0
    value = in_line(len(lines) + 1, read_line, last, True)
    if value is TORN:
        return values, len(last)
    return [*values, value], 0


TORN = object()


def read_line(line, may_be_torn=False):
    line = line.removesuffix(b"\r")
    if len(line) > MAX_LINE_BYTES:
        raise Refused("SESSION_LINE_TOO_LARGE")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("SESSION_INVALID_UTF8") from None
    try:
        return parse(text)
    except Malformed as malformed:
        if may_be_torn and malformed.cut_off and text.lstrip(" \t\r").startswith("{"):
            return TORN
        raise Refused("SESSION_INVALID_JSON") from None


# Header and entries


def read_header(value):
    code = "SESSION_INVALID_HEADER"
    fields = exact_fields(value, ("type", "version", "id", "createdAt"), code)
    require(fields["type"] == "session", code)
    check_version(fields["version"])
    filled(fields["id"], code)
    filled(fields["createdAt"], code)
    return write_fields(fields, "type", "version", "id", "createdAt")


def read_entries(values):
    entries, seen, refusal = [], set(), None
    for line, value in enumerate(values, 2):
        try:
            require(len(entries) < MAX_ENTRIES, "SESSION_RECORD_LIMIT")
            entry = read_entry(value, line)
            require(entry.id not in seen, "SESSION_DUPLICATE_ENTRY_ID")
            require(entry.parent is None or entry.parent in seen, "SESSION_PARENT_NOT_FOUND")
        except Refused as refused:
            refusal = Refused(refused.code, line)
            break
        seen.add(entry.id)
        entries.append(entry)
    # The linkage of an entry is its last check, but comes before the first check of the next one.
    broken = first_broken_linkage(entries)
    if broken is not None:
        raise Refused("SESSION_INVALID_TOOL_LINKAGE", broken)
    if refusal is not None:
        raise refusal
    return entries


def read_entry(value, line):
    code = "SESSION_INVALID_RECORD"
    names = ("type", "version", "id", "parentId", "timestamp", "message")
    fields = exact_fields(value, names, code)
    require(fields["type"] == "entry", code)
    check_version(fields["version"])
    filled(fields["id"], code)
    if fields["parentId"] is not None:
        filled(fields["parentId"], code)
    filled(fields["timestamp"], code)
    fields["message"], calls, result = read_message(fields["message"])
    return Entry(line, fields["id"], fields["parentId"], write_fields(fields, *names), calls, result)


def check_version(value):
    require(value == Number("1"), "SESSION_UNSUPPORTED_VERSION")


# Messages

MESSAGE = "SESSION_INVALID_MESSAGE"
MESSAGE_FIELDS = {
    "user": ("id", "role", "content"),
    "assistant": ("id", "role", "content"),
    "toolResult": ("id", "role", "toolCallId", "toolName", "content", "isError"),
}
BLOCK_FIELDS = {"text": ("type", "text"), "toolCall": ("type", "id", "name", "arguments")}


def read_message(value):
    """The message with its fields in order, its tool calls, and the call that it answers."""
    fields, role = fields_by_kind(value, "role", MESSAGE_FIELDS)
    filled(fields["id"], MESSAGE)
    calls, result = [], None
    if role == "assistant":
        require(isinstance(fields["content"], list), MESSAGE)
        fields["content"] = [read_block(block, calls) for block in fields["content"]]
    else:
        require(isinstance(fields["content"], str), MESSAGE)
    if role == "toolResult":
        result = (filled(fields["toolCallId"], MESSAGE), filled(fields["toolName"], MESSAGE))
        require(isinstance(fields["isError"], bool), MESSAGE)
    return in_order(fields, MESSAGE_FIELDS[role]), calls, result


def read_block(value, calls):
    fields, kind = fields_by_kind(value, "type", BLOCK_FIELDS)
    if kind == "text":
        require(isinstance(fields["text"], str), MESSAGE)
    else:
        calls.append((filled(fields["id"], MESSAGE), filled(fields["name"], MESSAGE)))
        require(isinstance(fields["arguments"], Object), MESSAGE)
        require(not repeats_a_name_anywhere(fields["arguments"]), MESSAGE)
    return in_order(fields, BLOCK_FIELDS[kind])


def fields_by_kind(value, discriminator, fields_of_kinds):
    """The fields of an object that has exactly those which belong to the kind that it names."""
    require(isinstance(value, Object), MESSAGE)
    kind = value.as_dict().get(discriminator)
    require(isinstance(kind, str) and kind in fields_of_kinds, MESSAGE)
    return exact_fields(value, fields_of_kinds[kind], MESSAGE), kind


def repeats_a_name_anywhere(value):
    due = [value]
    while due:
        item = due.pop()
        if isinstance(item, Object):
            if item.repeats_a_name:
                return True
            due += [member for _, member in item.members]
        elif isinstance(item, list):
            due += item
    return False


# Tool linkage


def first_broken_linkage(entries):
    """The line of the first entry whose calls or result do not fit its branch, or None.

    Walks the tree from the roots to the leaves with the calls and results of the present branch, so that each entry
    is visited once, whatever the number of branches.
    """
    children = {}
    for entry in entries:
        children.setdefault(entry.parent, []).append(entry)
    names, answered = {}, set()  # by call id, on the present branch
    broken = None
    due = [(entry, False) for entry in children.get(None, [])]
    while due:
        entry, leaving = due.pop()
        if leaving:
            for call, _ in entry.calls:
                del names[call]
            if entry.result:
                answered.discard(entry.result[0])
            continue
        if not fits(entry, names, answered):
            broken = min(broken or entry.line, entry.line)
            continue  # what hangs on it comes later in the file
        names.update(entry.calls)
        if entry.result:
            answered.add(entry.result[0])
        due.append((entry, True))
        due += [(child, False) for child in children.get(entry.id, [])]
    return broken


def fits(entry, names, answered):
    ids = [call for call, _ in entry.calls]
    if len(set(ids)) < len(ids) or any(call in names for call in ids):
        return False
    if entry.result is None:
        return True
    call, name = entry.result
    return names.get(call) == name and call not in answered


# Helpers


def require(condition, code):
    if not condition:
        raise Refused(code)


def exact_fields(value, names, code):
    require(isinstance(value, Object) and not value.repeats_a_name and value.names == set(names), code)
    return value.as_dict()


def filled(value, code):
    """A string with something in it."""
    require(isinstance(value, str) and value.strip(BLANKS) != "", code)
    return value


def in_order(fields, names):
    ordered = Object()
    for name in names:
        ordered.add(name, fields[name])
    return ordered


def write_fields(fields, *names):
    return write(in_order(fields, names))
