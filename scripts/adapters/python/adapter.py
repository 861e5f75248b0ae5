#!/usr/bin/env python3
"""The Python store behind the protocol of harness/PROTOCOL.md.

    session-harness adapter check --subject 'python3 scripts/adapters/python/adapter.py'
"""

import errno
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "second-reader"))

import jsontext
from place import Failure
from store import Store, Tree

HELLO = """{"protocol":1,"name":"python","version":"1","language":"Python","format":"session-tree-1",\
"capabilities":["tree","factories","concurrent"]}"""


class Adapter:
    def __init__(self):
        self.stores = {}
        self.trees = {}

    def answer(self, request):
        """The members of an answer, as JSON text without its braces."""
        name = request["call"]
        call = getattr(self, "call_" + name, None)
        if call is None:
            return '"unsupported":' + quote(f"this store has no {name}")
        try:
            return '"ok":' + call(request)
        except Failure as failure:
            return '"error":' + error(failure)

    def call_hello(self, _request):
        return HELLO

    def call_create(self, request):
        drawn = request.get("ids", ()), request.get("clock", ())
        store = Store.create(request["path"], request.get("sessionId"), *drawn)
        self.open(request["store"], store)
        return '{"header":' + store.header + "}"

    def call_load(self, request):
        store = Store.load(request["path"], request.get("ids", ()), request.get("clock", ()))
        self.open(request["store"], store)
        leaf = store.entries[-1].id if store.entries else None
        return f'{{"header":{store.header},"entries":{entries(store.entries)},"leaf":{quote(leaf)}}}'

    def call_append(self, request):
        entry = self.store(request).append(request["parentId"], request["message"])
        return f'{{"entry":{entry.canonical}}}'

    def call_flush(self, request):
        self.store(request).flush()
        return "{}"

    def call_entries(self, request):
        return f'{{"entries":{entries(self.store(request).entries)}}}'

    def call_tree(self, request):
        tree = self.trees[request["tree"]] = Tree(self.store(request))
        return f'{{"leaf":{quote(tree.leaf)}}}'

    def call_moveTo(self, request):
        tree = self.tree(request)
        tree.move_to(request["entryId"])
        return f'{{"leaf":{quote(tree.leaf)}}}'

    def call_treeAppend(self, request):
        entry = self.tree(request).append(request["message"])
        return f'{{"entry":{entry.canonical}}}'

    def call_active(self, request):
        tree = self.tree(request)
        return f'{{"leaf":{quote(tree.leaf)},"entries":{entries(tree.active_entries())}}}'

    def call_close(self, request):
        store = self.store(request)
        del self.stores[request["store"]]
        self.trees = {name: tree for name, tree in self.trees.items() if tree.store is not store}
        store.close()
        return "{}"

    def call_concurrent(self, request):
        """Stores overlap; the calls of one store keep their order."""
        calls = [call.as_dict() for call in request["calls"]]
        lanes = {}
        for position, call in enumerate(calls):
            lanes.setdefault(self.lane(call), []).append(position)
        answers = [None] * len(calls)

        def run(lane):
            for position in lane:
                answers[position] = "{" + self.answer(calls[position]) + "}"

        with ThreadPoolExecutor(max_workers=len(lanes) or 1) as pool:
            list(pool.map(run, lanes.values()))
        return f'{{"answers":[{",".join(answers)}]}}'

    def lane(self, call):
        if call.get("tree") in self.trees and call["call"] != "tree":
            return id(self.trees[call["tree"]].store)
        store = self.stores.get(call.get("store"))
        return id(store) if store else (call.get("store"), call.get("tree"), call.get("path"))

    def open(self, name, store):
        before = self.stores.get(name)
        self.stores[name] = store
        if before is not None:
            self.trees = {name: tree for name, tree in self.trees.items() if tree.store is not before}
            before.close()

    def store(self, request):
        return named(self.stores, request["store"], "store")

    def tree(self, request):
        return named(self.trees, request["tree"], "tree")


def named(known, name, what):
    if name not in known:
        raise Failure("SUBJECT_USAGE", f"no {what} is called {name}")
    return known[name]


def entries(some):
    return "[" + ",".join(entry.canonical for entry in some) + "]"


def quote(text):
    return jsontext.write(text)


def error(failure):
    members = [("code", failure.code), ("message", str(failure))]
    if failure.cause is not None:
        members.append(("errno", errno.errorcode.get(failure.cause.errno, str(failure.cause.errno))))
    if failure.stage is not None:
        members.append(("stage", failure.stage))
    if failure.line is not None:
        members.append(("line", jsontext.Number(str(failure.line))))
    members += [(name, True) for name in ("poisoned", "in_flight") if getattr(failure, name)]
    answer = jsontext.Object()
    for name, value in members:
        answer.add(name, value)
    return jsontext.write(answer)


def main():
    adapter = Adapter()
    for line in sys.stdin.buffer:
        request = jsontext.parse(line.decode().rstrip("\n")).as_dict()
        answer = f'{{"id":{request["id"].spelling},{adapter.answer(request)}}}\n'
        sys.stdout.buffer.write(answer.encode())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
