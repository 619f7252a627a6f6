// Refuses messages with listed words, or masks the words. Letters are compared without their case.
//
// The configuration: `{"words": ["..."], "mode": "mask"}` or `"reject"`, and for the latter `"text"`, shown to the sender.

import { judge } from "./frame.js";

const WORDS_MAX = 10_000;
const KEYS = ["words", "mode", "text"];

let words;
let mode;
let text;

export const lifecycle = {
  init(config) {
    const given = JSON.parse(config);
    const unknown = Object.keys(given).find((key) => !KEYS.includes(key));
    if (unknown !== undefined) {
      throw `${unknown}: not a key of the configuration`;
    }
    ({ mode = "mask", text = "the message has a word that is not allowed here" } = given);
    if (!["mask", "reject"].includes(mode)) {
      throw "mode: mask or reject";
    }
    words = pattern(given.words ?? []);
  },
};

export const beforeSend = {
  handle(arena, index) {
    return judge(arena, index, verdict);
  },
};

function verdict(message) {
  const payload = message.text;
  if (words === null || payload.search(words) < 0) {
    return undefined;
  }
  if (mode === "reject") {
    return { reject: text };
  }
  return { payload: payload.replace(words, (word) => "*".repeat([...word].length)) };
}

// One expression for all words, the longest first: it takes the first alternative that fits.
function pattern(list) {
  if (!Array.isArray(list) || list.length > WORDS_MAX) {
    throw `words: a list of at most ${WORDS_MAX}`;
  }
  if (!list.every((word) => typeof word === "string" && word !== "")) {
    throw "words: each a text, none empty";
  }
  if (list.length === 0) {
    return null;
  }
  const longest = [...list].sort((one, other) => other.length - one.length);
  const plain = longest.map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  return new RegExp(plain.join("|"), "giu");
}
