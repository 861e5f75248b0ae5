"""A session store of format 1 in Python, on the standard library and the reader of `scripts/second-reader`."""

import os
import threading
import time
import uuid
from datetime import datetime, timezone

import commit
import jsontext
import session
from place import GONE, OPEN, Failure, Generation, Place

RESTARTS = 50


class Store:
    """An open session. Its calls take effect one after the other, in the order in which they came."""

    def __init__(self, place, generation, header, entries, ids, clock):
        self.place = place
        self.generation = generation
        self.header = header  # one line, without its line feed, as are the entries' canonical texts
        self.entries = entries
        self.places = {entry.id: entry for entry in entries}
        self.size = sum(len(text.encode()) + 1 for text in self.texts())
        self.ids = drawn(ids, lambda: str(uuid.uuid4()))
        self.clock = drawn(clock, now)
        self.poisoned = None
        self.turn = threading.Lock()

    @classmethod
    def create(cls, path, session_id=None, ids=(), clock=()):
        place = Place(path, "K1")
        try:
            place.check_name_length("K1")
            place.settle_marker("K1")
            if place.try_to("look at the path", "K1", place.look, place.name) is not None:
                raise Failure("SESSION_ALREADY_EXISTS", f"something is at {path}", None, "K1")
            clock = drawn(clock, now)
            values = ["session", jsontext.Number("1"), str(uuid.uuid4()) if session_id is None else session_id, next(clock)]
            header = write_object(("type", "version", "id", "createdAt"), values)
            refusing(session.read_header, jsontext.parse(header))
            check_line(header)
            generation = commit.create(place, [header.encode() + b"\n"])
        except BaseException:
            place.close()
            raise
        return cls(place, generation, header, [], ids, clock)

    @classmethod
    def load(cls, path, ids=(), clock=()):
        place = Place(path, "V1")
        try:
            generation, data = read_generation(place)
            try:
                read = refusing(session.read, data)
                refuse_halves(read)
            except BaseException:
                generation.close()
                raise
        except BaseException:
            place.close()
            raise
        return cls(place, generation, header_of(read), read.entries, ids, clock)

    def close(self):
        self.generation.close()
        self.place.close()

    def append(self, parent, message):
        """`message` is JSON as `jsontext` reads it. Gives the entry once it is durable."""
        ordered, calls, result = refusing(session.read_message, message)
        with self.turn:
            return self.locked(self.append_now, parent, ordered, calls, result)

    def flush(self):
        with self.turn:
            self.locked(self.commit)

    def append_now(self, parent, message, calls, result):
        entry = self.prepare(parent, message, calls, result)
        check_line(entry.canonical)
        self.commit(entry)
        return entry

    def prepare(self, parent, message, calls, result):
        if len(self.entries) >= session.MAX_ENTRIES:
            raise Failure("SESSION_RECORD_LIMIT", f"the session has {len(self.entries)} entries")
        if parent is not None and parent not in self.places:
            raise Failure("SESSION_PARENT_NOT_FOUND", f"no entry has the id {parent!r}")
        names = ("type", "version", "id", "parentId", "timestamp", "message")
        identity = refusing(session.filled, next(self.ids), "SESSION_INVALID_RECORD")
        if identity in self.places:
            raise Failure("SESSION_DUPLICATE_ENTRY_ID", f"an entry has the id {identity!r} already")
        moment = refusing(session.filled, next(self.clock), "SESSION_INVALID_RECORD")
        values = ["entry", jsontext.Number("1"), identity, parent, moment, message]
        line = len(self.entries) + 2
        entry = session.Entry(line, identity, parent, write_object(names, values), calls, result)
        if not session.fits(entry, *self.calls_above(parent)):
            raise Failure("SESSION_INVALID_TOOL_LINKAGE", "a tool call or result does not fit its branch")
        return entry

    def calls_above(self, leaf):
        """The names of the calls by id, and the ids of those that have a result, on the way to the root."""
        names, answered = {}, set()
        for entry in self.path_to(leaf):
            names.update(entry.calls)
            if entry.result:
                answered.add(entry.result[0])
        return names, answered

    def path_to(self, leaf):
        path = []
        while leaf is not None:
            path.append(self.places[leaf])
            leaf = path[-1].parent
        return path[::-1]

    def locked(self, work, *arguments):
        """Does the work while no other process commits, on the generation that this store knows."""
        if self.poisoned is not None:
            raise self.poisoned
        try:
            self.place.lock(self.generation.descriptor, "C1")
            self.place.check_storage(self.generation, "C1")
            return work(*arguments)
        except Failure as failure:
            if failure.poisoned:
                self.poisoned = failure
            raise
        finally:
            self.place.unlock(self.generation.descriptor)

    def commit(self, entry=None):
        size = self.size + (len(entry.canonical.encode()) + 1 if entry else 0)
        if size > session.MAX_FILE_BYTES:
            raise Failure("SESSION_FILE_TOO_LARGE", f"the file would have {size} bytes")
        content = (text.encode() + b"\n" for text in self.texts(entry))
        old = self.generation
        try:
            self.generation = commit.commit(self.place, old, [b"".join(content)])
        except Failure as failure:
            restored = getattr(failure, "restored", None)
            if restored is not None:
                self.generation = restored
                old.close()
            raise
        old.close()
        # Memory changes only now.
        self.size = size
        if entry is not None:
            self.entries = [*self.entries, entry]
            self.places[entry.id] = entry

    def texts(self, more=None):
        return [self.header, *(entry.canonical for entry in self.entries), *([more.canonical] if more else [])]


class Tree:
    """A session with an active leaf. Moving it changes nothing on disk."""

    def __init__(self, store):
        self.store = store
        self.leaf = store.entries[-1].id if store.entries else None

    def move_to(self, identity):
        with self.store.turn:
            if identity is not None and identity not in self.store.places:
                raise Failure("SESSION_ENTRY_NOT_FOUND", f"no entry has the id {identity!r}")
            self.leaf = identity

    def append(self, message):
        ordered, calls, result = refusing(session.read_message, message)
        with self.store.turn:
            entry = self.store.locked(self.store.append_now, self.leaf, ordered, calls, result)
            self.leaf = entry.id
            return entry

    def active_entries(self):
        return self.store.path_to(self.leaf)


def read_generation(place):
    """The bytes of one generation that no commit was replacing while they were read."""
    for restart in range(RESTARTS):
        place.settle_marker("V2")
        read = try_to_read(place, is_first=restart == 0)
        if read is not None:
            return read
        time.sleep(0.01)
    raise place.changed("the file was replaced again and again", "V6")


def try_to_read(place, is_first):
    """None where the path meant another file, or none, at a later look."""
    try:
        looked = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except OSError as error:
        if error.errno in GONE and not is_first:
            return None
        raise place.io("look at the file", error, "V3") from None
    check_readable(place, looked, "V3")
    try:
        descriptor = os.open(place.name, os.O_RDONLY | OPEN, dir_fd=place.directory)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise place.io("open the file", error, "V4") from None
    generation = Generation(descriptor)
    try:
        check_readable(place, os.fstat(descriptor), "V4")
        data = read_all(place, generation)
        is_settled = place.try_to("look for a recovery marker", "V6", place.look, place.marker) is None
        seen = place.try_to("look at the file", "V6", place.look, place.name)
        if is_settled and generation.is_unchanged_in(seen) and generation.is_same_file(looked):
            place.check_root("V6")
            return generation, data
    except BaseException:
        generation.close()
        raise
    generation.close()
    return None


def check_readable(place, seen, stage):
    if not commit.is_regular(seen):
        raise place.changed("not a regular file", stage)
    if seen.st_size > session.MAX_FILE_BYTES:
        raise Failure("SESSION_FILE_TOO_LARGE", f"{place.path} has {seen.st_size} bytes", None, stage)


def read_all(place, generation):
    """One byte more than the file had is asked for, so that growth shows."""
    data = bytearray()
    while len(data) <= generation.size:
        wanted = generation.size + 1 - len(data)
        piece = place.try_to("read the file", "V5", os.pread, generation.descriptor, wanted, len(data))
        if not piece:
            break
        data += piece
    if len(data) != generation.size or not generation.is_unchanged_in(os.fstat(generation.descriptor)):
        raise place.changed("the file changed while it was read", "V5")
    return bytes(data)


def refuse_halves(read):
    """An answer of the protocol cannot carry an id or a time with half a surrogate pair, which the reader keeps."""
    refuse_half(header_of(read), ("id", "createdAt"), "SESSION_INVALID_HEADER", 1)
    for entry in read.entries:
        refuse_half(entry.canonical, ("id", "timestamp"), "SESSION_INVALID_RECORD", entry.line)


def refuse_half(text, names, code, line):
    if "\\ud" not in text:
        return
    fields = jsontext.parse(text).as_dict()
    if any("\ud800" <= character <= "\udfff" for name in names for character in fields[name]):
        raise Failure(code, f"refused: {code}: half a surrogate pair", line=line)


def header_of(read):
    return read.canonical.split(b"\n", 1)[0].decode()


def refusing(function, *arguments):
    """The refusals of the reader are those of the store."""
    try:
        return function(*arguments)
    except session.Refused as refused:
        raise Failure(refused.code, f"refused: {refused.code}", line=refused.line) from None


def check_line(text):
    if len(text.encode()) > session.MAX_LINE_BYTES:
        raise Failure("SESSION_LINE_TOO_LARGE", f"the line would have {len(text.encode())} bytes")


def write_object(names, values):
    return session.write_fields(dict(zip(names, values)), *names)


def drawn(given, own):
    """What was given, in order, and then its own."""
    yield from given
    while True:
        yield own()


def now():
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
