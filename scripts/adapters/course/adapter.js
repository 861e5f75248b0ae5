// The course's session store behind the protocol of harness/PROTOCOL.md, from your own checkout; nothing of it is here.
//
//     session-harness run conformance --subject 'node --import tsx scripts/adapters/course/adapter.js CHECKOUT'
//
// CHECKOUT, or COURSE_CHECKOUT in the environment, is the checkout's folder, or the module itself.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { Names, serve } = require("../protocol.js");

// Where the module may be below the folder: as it is written, and as a build may leave it.
const MODULES = ["course/src/session.ts", "course/dist/session.js", "dist/course/src/session.js"];

const stores = new Names();
const trees = new Names();

async function main() {
  const checkout = process.argv[2] ?? process.env.COURSE_CHECKOUT;
  if (checkout === undefined) {
    console.error("SKIPPED: no checkout of the course: give its folder as an argument or in COURSE_CHECKOUT");
    process.exit(1);
  }
  const candidates = fs.statSync(checkout).isFile() ? [checkout] : MODULES.map((name) => path.join(checkout, name));
  const module = candidates.find((candidate) => fs.existsSync(candidate));
  if (module === undefined) {
    console.error(`no session store in ${checkout}: looked for ${MODULES.join(", ")}`);
    process.exit(1);
  }
  const { SessionStore, SessionTree } = await import(pathToFileURL(module));
  await serve(calls(SessionStore, SessionTree));
}

const calls = (SessionStore, SessionTree) => ({
  hello: () => ({
    protocol: 1,
    name: "course",
    version: process.env.COURSE_VERSION ?? "checkpoint 10",
    language: `TypeScript, Node.js ${process.versions.node}`,
    format: "session-tree-1",
    capabilities: ["tree"],
  }),

  async create({ store, path: file }) {
    const opened = await SessionStore.create(file);
    stores.set(store, opened);
    return { header: opened.header };
  },

  async load({ store, path: file }) {
    const opened = await SessionStore.load(file);
    stores.set(store, opened);
    return { header: opened.header, entries: opened.entries, leaf: opened.entries.at(-1)?.id ?? null };
  },

  async append({ store, parentId, message }) {
    return { entry: await stores.get(store).append(parentId, message) };
  },

  async flush({ store }) {
    await stores.get(store).flush();
    return {};
  },

  entries: ({ store }) => ({ entries: stores.get(store).entries }),

  tree({ store, tree }) {
    const of = stores.get(store);
    trees.set(tree, { of, tree: new SessionTree(of) });
    return leaf(trees.get(tree).tree);
  },

  async moveTo({ tree, entryId }) {
    await trees.get(tree).tree.moveTo(entryId);
    return leaf(trees.get(tree).tree);
  },

  async treeAppend({ tree, message }) {
    return { entry: await trees.get(tree).tree.append(message) };
  },

  active({ tree }) {
    const active = trees.get(tree).tree;
    return { ...leaf(active), entries: active.activeEntries };
  },

  close({ store }) {
    const closed = stores.get(store);
    stores.delete(store);
    trees.forget((tree) => tree.of === closed);
    return {};
  },
});

const leaf = (tree) => ({ leaf: tree.activeLeafId ?? null });

main();
