#!/usr/bin/env python3
"""A small store behind the protocol, and what is broken about it: a defect by its name as the only argument.

A session is a log: a line that says so, then one line for each entry. Without a defect it keeps every promise. Each
defect is a few lines of it that are left out or done in another order.
"""

import errno
import fcntl
import json
import os
import sys
import time
import unicodedata
import uuid

DEFECT = sys.argv[1] if len(sys.argv) > 1 else None
FIRST_LINE = b'{"format":"log"}\n'
PATIENCE = 2.0

stores = {}
trees = {}
late = []  # lines that were acknowledged and not written


class Refused(Exception):
    pass


def refuse(code, message):
    raise Refused(code, message)


class Store:
    def __init__(self, path):
        self.path = path
        self.entries = []
        self.leaf = None

    def create(self):
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write(file, FIRST_LINE)
            os.fsync(file)
        except OSError:
            if DEFECT != "leaves-half-a-session":
                os.unlink(self.path)
            raise
        finally:
            os.close(file)
        self.load()

    def load(self):
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            text = opened.read()
        if DEFECT == "takes-any-file" and not text.startswith(FIRST_LINE):
            self.entries = [json.loads(line) for line in text.splitlines()]
            return
        if not text.startswith(FIRST_LINE):
            refuse("NO_LOG", "this is no log")
        whole = text[: text.rindex(b"\n") + 1]
        self.entries = [json.loads(line) for line in whole.splitlines()[1:]]
        known = {None}
        for entry in self.entries:
            if entry["parentId"] not in known and DEFECT != "believes-parents":
                refuse("NO_PARENT", "a parent comes after its child")
            known.add(entry["id"])
        self.leaf = self.entries[-1]["id"] if self.entries else None
        status = os.stat(self.path)
        self.file, self.size = status.st_ino, len(whole)

    def append(self, parent, message):
        if parent is not None and all(entry["id"] != parent for entry in self.entries):
            refuse("NO_SUCH_PARENT", f"no entry has the id {parent}")
        if DEFECT == "composes-text":
            message = json.loads(unicodedata.normalize("NFC", json.dumps(message, ensure_ascii=False)))
        entry = {"id": str(uuid.uuid4()), "parentId": parent, "message": message}
        line = json.dumps(entry).encode() + b"\n"
        if DEFECT in ("remembers-what-failed", "moves-the-leaf-first"):
            self.entries.append(entry)
            self.leaf = entry["id"]
        try:
            self.write(line)
        except (OSError, Refused):
            if DEFECT == "moves-the-leaf-first":
                # The entry goes from what is shown, and stays a parent.
                entry["hidden"] = True
            raise
        if entry not in self.entries:
            self.entries.append(entry)
        self.leaf = entry["id"]
        return entry

    def write(self, line):
        if DEFECT == "writes-later":
            late.append((self.path, line))
            return
        if DEFECT == "renames-and-remembers":
            self.rewrite(line)
            return
        flags = os.O_CREAT if DEFECT == "makes-what-is-missing" else 0
        file = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600)
        try:
            if DEFECT == "takes-no-lock":
                time.sleep(0.005)
                os.pwrite(file, line, self.size)
                os.fsync(file)
                self.size += len(line)
                return
            lock(file)
            self.see(file)
            os.lseek(file, self.size, os.SEEK_SET)
            try:
                if DEFECT == "ignores-short-writes":
                    os.write(file, line)
                    self.size = os.fstat(file).st_size
                    return
                write(file, line)
                os.fsync(file)
            except OSError:
                if DEFECT == "leaves-half-a-line":
                    self.size = os.fstat(file).st_size
                else:
                    os.ftruncate(file, self.size)
                raise
            self.size += len(line)
            os.ftruncate(file, self.size)
        finally:
            os.close(file)

    def see(self, file):
        """That the file is the one that was loaded."""
        status = os.fstat(file)
        if DEFECT == "makes-what-is-missing":
            self.size = status.st_size
        elif DEFECT == "joins-without-a-word" and status.st_size != self.size:
            leaf = self.leaf
            self.load()
            self.leaf = leaf
        elif (status.st_ino, status.st_size) != (self.file, self.size):
            refuse("CHANGED", "the file is not what was loaded")

    def rewrite(self, line):
        """The whole file anew, beside the old one; the entry is remembered before that."""
        entry = json.loads(line)
        self.entries.append(entry)
        temporary = self.path + ".new"
        with open(self.path, "rb") as old, open(temporary, "wb") as new:
            new.write(old.read() + line)
            new.flush()
            os.fsync(new.fileno())
        os.rename(temporary, self.path)

    def shown(self):
        return [entry for entry in self.entries if "hidden" not in entry]

    def path_to(self, leaf):
        by_id = {entry["id"]: entry for entry in self.entries}
        path = []
        while leaf is not None and len(path) <= len(by_id):
            path.append(by_id[leaf])
            leaf = path[-1]["parentId"]
        return path[::-1]


def write(file, line):
    while line:
        line = line[os.write(file, line) :]


def lock(file):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                refuse("BUSY", "another process appends")
            time.sleep(0.01)


def find(names, name):
    if name not in names:
        refuse("SUBJECT_USAGE", f"nothing is called {name}")
    return names[name]


def hello(_request):
    me = {"protocol": 1, "name": DEFECT or "log", "version": "1", "language": "Python", "format": "log"}
    return {**me, "capabilities": ["tree"]}


def create(request):
    store = Store(request["path"])
    store.create()
    stores[request["store"]] = store
    return {}


def load(request):
    store = Store(request["path"])
    store.load()
    stores[request["store"]] = store
    return {"entries": store.entries, "leaf": store.leaf}


def append(request):
    return {"entry": find(stores, request["store"]).append(request["parentId"], request["message"])}


def entries(request):
    return {"entries": find(stores, request["store"]).shown()}


def close(request):
    find(stores, request["store"])
    del stores[request["store"]]
    return {}


def tree(request):
    trees[request["tree"]] = find(stores, request["store"])
    return {"leaf": trees[request["tree"]].leaf}


def moveTo(request):
    find(trees, request["tree"]).leaf = request["entryId"]
    return {"leaf": request["entryId"]}


def treeAppend(request):
    store = find(trees, request["tree"])
    return {"entry": store.append(store.leaf, request["message"])}


def active(request):
    store = find(trees, request["tree"])
    return {"leaf": store.leaf, "entries": store.path_to(store.leaf)}


def answer(request):
    calls = [hello, create, load, append, entries, close, tree, moveTo, treeAppend, active]
    call = next((call for call in calls if call.__name__ == request["call"]), None)
    if call is None:
        return {"unsupported": "this store has no such call"}
    while late:
        path, line = late.pop()
        with open(path, "ab") as file:
            file.write(line)
    try:
        return {"ok": call(request)}
    except Refused as refused:
        return {"error": dict(zip(("code", "message"), refused.args))}
    except OSError as error:
        return {"error": {"code": "IO", "message": str(error), "errno": errno.errorcode.get(error.errno, "?")}}
    except (ValueError, KeyError) as error:
        return {"error": {"code": "DAMAGED", "message": repr(error)}}


for text in sys.stdin.buffer:
    request = json.loads(text)
    print(json.dumps({"id": request["id"], **answer(request)}), flush=True)
