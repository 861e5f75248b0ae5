#!/usr/bin/env python3
"""SQLite behind the protocol of harness/PROTOCOL.md: a store whose durability nobody doubts, for comparison.

    session-harness adapter check --subject 'python3 scripts/adapters/sqlite/adapter.py'

Needs nothing but Python 3.11 or later. Format `sqlite`: one database for each session, `synchronous=FULL` and a rollback
journal, so that a commit is durable when it is answered.
"""

import json
import os
import sqlite3
import stat
import sys
import uuid

APPLICATION_ID = 0x53455353
SCHEMA = "CREATE TABLE entry (position INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, parent TEXT, message TEXT NOT NULL)"
IS_HERE = "SELECT 1 FROM entry WHERE id = ?"


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Session:
    def __init__(self, path, is_new):
        self.path = path
        mode = "rwc" if is_new else "rw"
        name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self.base = sqlite3.connect(f"file:{name}?mode={mode}", uri=True, timeout=4, isolation_level=None)
        self.base.execute("PRAGMA synchronous = FULL")
        self.file = os.stat(path).st_ino

    @classmethod
    def create(cls, path):
        # SQLite opens what is there; only an exclusive creation tells that it is new.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        session = cls(path, True)
        session.base.executescript(f"BEGIN; {SCHEMA}; PRAGMA application_id = {APPLICATION_ID}; COMMIT;")
        return session

    @classmethod
    def load(cls, path):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Refused("NOT_A_FILE", f"{path} is not a regular file")
        if os.path.getsize(path) == 0:
            raise Refused("NOT_A_SESSION", f"{path} is empty")
        session = cls(path, False)
        if session.base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise Refused("NOT_A_SESSION", f"{path} is another program's database")
        return session

    def append(self, parent, message):
        self.check_file()
        entry = {"id": str(uuid.uuid4()), "parentId": parent, "message": message}
        self.base.execute("BEGIN IMMEDIATE")
        try:
            if parent is not None and self.base.execute(IS_HERE, (parent,)).fetchone() is None:
                raise Refused("NO_SUCH_PARENT", f"no entry has the id {parent}")
            values = (entry["id"], parent, json.dumps(message))
            self.base.execute("INSERT INTO entry (id, parent, message) VALUES (?, ?, ?)", values)
            self.base.execute("COMMIT")
        except BaseException:
            if self.base.in_transaction:
                self.base.execute("ROLLBACK")
            raise
        return entry

    def check_file(self):
        """SQLite goes on with a file that has lost its name."""
        if os.stat(self.path, follow_symlinks=False).st_ino != self.file:
            raise Refused("CHANGED", f"{self.path} is another file")

    def entries(self):
        rows = self.base.execute("SELECT id, parent, message FROM entry ORDER BY position")
        return [{"id": row[0], "parentId": row[1], "message": json.loads(row[2])} for row in rows]

    def path_to(self, leaf):
        by_id = {entry["id"]: entry for entry in self.entries()}
        path = []
        while leaf is not None:
            path.append(by_id[leaf])
            leaf = path[-1]["parentId"]
        return path[::-1]


class Adapter:
    def __init__(self):
        self.sessions = {}
        self.trees = {}  # a session and its active leaf

    def answer(self, request):
        call = getattr(self, "call_" + request["call"], None)
        if call is None:
            return {"unsupported": "this store has no such call"}
        try:
            return {"ok": call(request)}
        except Refused as refused:
            return {"error": {"code": refused.code, "message": str(refused)}}
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorname", None) or type(error).__name__
            return {"error": {"code": code, "message": str(error)}}

    def call_hello(self, _request):
        me = {"protocol": 1, "name": "sqlite", "version": sqlite3.sqlite_version, "language": "Python"}
        return {**me, "format": "sqlite", "capabilities": ["tree"]}

    def call_create(self, request):
        self.sessions[request["store"]] = Session.create(request["path"])
        return {}

    def call_load(self, request):
        session = Session.load(request["path"])
        entries = session.entries()
        self.sessions[request["store"]] = session
        return {"entries": entries, "leaf": last(entries)}

    def call_append(self, request):
        return {"entry": self.session(request).append(request["parentId"], request["message"])}

    def call_flush(self, request):
        self.session(request)
        return {}

    def call_entries(self, request):
        return {"entries": self.session(request).entries()}

    def call_tree(self, request):
        session = self.session(request)
        leaf = last(session.entries())
        self.trees[request["tree"]] = [session, leaf]
        return {"leaf": leaf}

    def call_moveTo(self, request):
        tree, leaf = self.tree(request), request["entryId"]
        if leaf is not None and tree[0].base.execute(IS_HERE, (leaf,)).fetchone() is None:
            raise Refused("NO_SUCH_ENTRY", f"no entry has the id {leaf}")
        tree[1] = leaf
        return {"leaf": leaf}

    def call_treeAppend(self, request):
        tree = self.tree(request)
        entry = tree[0].append(tree[1], request["message"])
        tree[1] = entry["id"]
        return {"entry": entry}

    def call_active(self, request):
        session, leaf = self.tree(request)
        return {"leaf": leaf, "entries": session.path_to(leaf)}

    def call_close(self, request):
        session = self.session(request)
        del self.sessions[request["store"]]
        self.trees = {name: tree for name, tree in self.trees.items() if tree[0] is not session}
        session.base.close()
        return {}

    def session(self, request):
        return named(self.sessions, request["store"])

    def tree(self, request):
        return named(self.trees, request["tree"])


def named(known, name):
    if name not in known:
        raise Refused("SUBJECT_USAGE", f"nothing is called {name}")
    return known[name]


def last(entries):
    return entries[-1]["id"] if entries else None


adapter = Adapter()
for line in sys.stdin.buffer:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], **adapter.answer(request)}), flush=True)
