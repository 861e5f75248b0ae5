// The protocol of harness/PROTOCOL.md for a store in JavaScript: reads requests from standard input and answers them, one
// after the other. Needs nothing but Node.js.
"use strict";

const { Console } = require("node:console");
const fs = require("node:fs");

// What a store prints for people must not come between the answers.
globalThis.console = new Console(process.stderr, process.stderr);

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// A map from names that the harness gives to what they stand for.
class Names {
  #known = new Map();

  get(name) {
    if (!this.#known.has(name)) {
      throw new Refused("SUBJECT_USAGE", `nothing is called ${JSON.stringify(name)}`);
    }
    return this.#known.get(name);
  }

  set(name, value) {
    this.#known.set(name, value);
  }

  delete(name) {
    this.get(name);
    this.#known.delete(name);
  }

  // Forgets every name of which `isGone` says so.
  forget(isGone) {
    for (const [name, value] of this.#known) {
      if (isGone(value)) {
        this.#known.delete(name);
      }
    }
  }
}

// Answers each request with the method of `calls` that its call names, until the input ends.
async function serve(calls) {
  for (const line of lines()) {
    const request = JSON.parse(line);
    write({ id: request.id, ...(await answer(calls, request)) });
  }
}

async function answer(calls, request) {
  if (!Object.hasOwn(calls, request.call)) {
    return { unsupported: "this store has no such call" };
  }
  try {
    return { ok: await calls[request.call](request) };
  } catch (error) {
    return { error: refusal(error) };
  }
}

function refusal(error) {
  const code = typeof error?.code === "string" ? error.code : (error?.name ?? "ERROR");
  const cause = [error, error?.cause].find((one) => typeof one?.errno === "number");
  return { code, message: String(error?.message ?? error), ...(cause && { errno: cause.code }) };
}

// A line feed ends a line, and nothing else does.
function* lines() {
  const piece = Buffer.alloc(1 << 16);
  let rest = Buffer.alloc(0);
  for (;;) {
    const size = fs.readSync(0, piece);
    if (size === 0) {
      return;
    }
    rest = Buffer.concat([rest, piece.subarray(0, size)]);
    for (let end = rest.indexOf(10); end !== -1; end = rest.indexOf(10)) {
      const line = rest.toString("utf8", 0, end);
      rest = rest.subarray(end + 1);
      yield line;
    }
  }
}

function write(message) {
  let bytes = Buffer.from(JSON.stringify(message) + "\n");
  while (bytes.length > 0) {
    bytes = bytes.subarray(fs.writeSync(1, bytes));
  }
}

module.exports = { Names, Refused, serve };
