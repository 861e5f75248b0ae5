// Pi's SessionManager behind the protocol of harness/PROTOCOL.md. `install.sh` brings the package.
//
//     session-harness run conformance --subject 'node scripts/adapters/pi/adapter.js'
//
// An argument `--lazy` leaves the first write to Pi: a new session then has no file before the assistant's first message.
// Without it `create` makes the empty file, which Pi takes as a new session and writes at once.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { Names, Refused, serve } = require("../protocol.js");

const PACKAGE =
  process.env.PI_PACKAGE ?? path.join(__dirname, "installed/node_modules/@earendil-works/pi-coding-agent");
const IS_LAZY = process.argv.includes("--lazy");

const managers = new Names();
const trees = new Names();

async function main() {
  const module = path.join(PACKAGE, "dist/core/session-manager.js");
  if (!fs.existsSync(module)) {
    console.error(`SKIPPED: no Pi at ${PACKAGE}: type scripts/adapters/pi/install.sh, or set PI_PACKAGE`);
    process.exit(1);
  }
  const { SessionManager } = await import(module);
  const { version } = JSON.parse(fs.readFileSync(path.join(PACKAGE, "package.json"), "utf8"));
  await serve(calls(SessionManager, version));
}

const calls = (SessionManager, version) => ({
  hello: () => ({
    protocol: 1,
    name: IS_LAZY ? "pi, lazy" : "pi",
    version,
    language: `JavaScript, Node.js ${process.versions.node}`,
    format: "pi-3",
    capabilities: ["tree"],
  }),

  create({ store, path: file }) {
    if (!IS_LAZY) {
      fs.closeSync(fs.openSync(file, "wx"));
    } else if (fs.existsSync(file)) {
      throw new Refused("EEXIST", `${file} is there already`);
    }
    managers.set(store, SessionManager.open(file, path.dirname(file)));
    return {};
  },

  load({ store, path: file }) {
    // Pi would begin a new session there.
    if (!fs.existsSync(file)) {
      throw new Refused("ENOENT", `nothing is at ${file}`);
    }
    const manager = SessionManager.open(file, path.dirname(file));
    managers.set(store, manager);
    return { entries: messages(manager.getEntries()), leaf: manager.getLeafId() };
  },

  append({ store, parentId, message }) {
    const manager = managers.get(store);
    move(manager, parentId);
    return append(manager, message);
  },

  flush({ store }) {
    managers.get(store);
    return {};
  },

  entries: ({ store }) => ({ entries: messages(managers.get(store).getEntries()) }),

  tree({ store, tree }) {
    trees.set(tree, managers.get(store));
    return { leaf: trees.get(tree).getLeafId() };
  },

  moveTo({ tree, entryId }) {
    move(trees.get(tree), entryId);
    return { leaf: trees.get(tree).getLeafId() };
  },

  treeAppend: ({ tree, message }) => append(trees.get(tree), message),

  active({ tree }) {
    const manager = trees.get(tree);
    return { leaf: manager.getLeafId(), entries: messages(manager.getBranch()) };
  },

  close({ store }) {
    const manager = managers.get(store);
    managers.delete(store);
    trees.forget((tree) => tree === manager);
    return {};
  },
});

function move(manager, id) {
  if (id === null) {
    manager.resetLeaf();
  } else {
    manager.branch(id);
  }
}

function append(manager, message) {
  return { entry: view(manager.getEntry(manager.appendMessage(message))) };
}

const messages = (entries) => entries.filter((entry) => entry.type === "message").map(view);

const view = ({ id, parentId, message }) => ({ id, parentId, message });

main();
