// The flat frame of a call: every message of a batch in two lists, `arena` (bytes) and `index` (32-bit words that say where in
// the arena each field stands). `broker/docs/plugin-frame.md` of Penstock has the layout. A field costs nothing until it is read.

import { write as log } from "penstock:plugin/log@1.0.0";

const LAYOUT = 1;
const VERDICT_HEADER = 4;
const VERDICT_WORDS = 10;

/** Code units that one call makes a string of: the arguments of a call lie on a stack. */
const CHUNK = 4096;

/** The text of these bytes of UTF-8. What is none comes as U+FFFD. */
export function decode(bytes) {
  let units = "";
  for (let at = 0; at < bytes.length; at += CHUNK) {
    units += String.fromCharCode.apply(null, bytes.subarray(at, at + CHUNK));
  }
  if (!/[\x80-\xff]/.test(units)) {
    return units;
  }
  try {
    return decodeURIComponent(escape(units));
  } catch {
    return mended(bytes);
  }
}

/** The bytes of a text in UTF-8. Half a surrogate pair becomes U+FFFD. */
export function encode(text) {
  const units = unescape(encodeURIComponent(text.toWellFormed()));
  const bytes = new Uint8Array(units.length);
  for (let at = 0; at < units.length; at += 1) {
    bytes[at] = units.charCodeAt(at);
  }
  return bytes;
}

/** Decodes one character after the other: the engine has no TextDecoder. */
function mended(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at];
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const units = String.fromCharCode.apply(null, bytes.subarray(at, at + length));
    try {
      text += decodeURIComponent(escape(units));
      at += length;
    } catch {
      text += "\ufffd";
      at += 1;
    }
  }
  return text;
}

/** A message that somebody wants to send. */
export class Message {
  #arena;
  #index;
  #first;

  constructor(arena, index, first) {
    this.#arena = arena;
    this.#index = index;
    this.#first = first;
  }

  get channelId() {
    return decode(this.#bytes(0));
  }

  get channelKind() {
    return this.#word(2);
  }

  get sender() {
    return decode(this.#bytes(3));
  }

  /** The bytes of the payload. They are good for this call only: copy what is kept. */
  get payload() {
    return this.#bytes(5);
  }

  /** The payload as a string. What is no UTF-8 comes as U+FFFD. */
  get text() {
    return decode(this.#bytes(5));
  }

  get clientMessageNumber() {
    return decode(this.#bytes(7));
  }

  /** The topic, empty for none. */
  get topic() {
    return decode(this.#bytes(9));
  }

  /** Seconds until the message is no longer shown; 0 for ever. */
  get expireSeconds() {
    return this.#word(11);
  }

  /** Whether it is delivered without being stored. */
  get isNotStored() {
    return (this.#word(12) & 1) !== 0;
  }

  #word(place) {
    return this.#index[this.#first + place];
  }

  #bytes(place) {
    const start = this.#word(place);
    return this.#arena.subarray(start, start + this.#word(place + 1));
  }
}

/**
 * Answers a batch: `verdict` is called with each Message in order, and returns
 *  - nothing: the message is allowed;
 *  - `{ reject: "words for the sender", code: 0 }`: it is refused (at most 1 KiB; code 0 leaves the code to the broker);
 *  - `{ payload, topic, expireSeconds }`: it goes on changed; what is left out stays. The payload is a string or bytes.
 */
export function judge(arena, index, verdict) {
  const [version, header, words, count] = index;
  if (version !== LAYOUT) {
    throw new Error(`layout ${version} of the frame is not known`);
  }
  const answer = new Answer(count);
  try {
    for (let place = 0; place < count; place += 1) {
      answer.add(place, verdict(new Message(arena, index, header + place * words)));
    }
  } catch (error) {
    // What leaves the component is a trap without words.
    log("error", `${error}`, [["stack", error?.stack ?? ""]]);
    throw error;
  }
  return answer.finish();
}

class Answer {
  #count;
  #index;
  #fields = [];
  #length = 0;

  constructor(count) {
    this.#count = count;
  }

  add(place, verdict) {
    if (verdict === undefined || verdict === null) {
      return;
    }
    this.#index ??= new Uint32Array(VERDICT_HEADER + this.#count * VERDICT_WORDS);
    const first = VERDICT_HEADER + place * VERDICT_WORDS;
    if (verdict.reject !== undefined) {
      this.#index[first] = 1;
      this.#index[first + 1] = verdict.code ?? 0;
      this.#field(first + 2, verdict.reject);
      return;
    }
    this.#index[first] = 2;
    if (verdict.payload !== undefined) {
      this.#index[first + 4] |= 1;
      this.#field(first + 5, verdict.payload);
    }
    if (verdict.topic !== undefined) {
      this.#index[first + 4] |= 2;
      this.#field(first + 7, verdict.topic);
    }
    if (verdict.expireSeconds !== undefined) {
      this.#index[first + 4] |= 4;
      this.#index[first + 9] = verdict.expireSeconds;
    }
  }

  /** An empty answer allows every message. */
  finish() {
    if (this.#index === undefined) {
      return [new Uint8Array(0), new Uint32Array(0)];
    }
    this.#index.set([LAYOUT, VERDICT_HEADER, VERDICT_WORDS, this.#count]);
    const arena = new Uint8Array(this.#length);
    let end = 0;
    for (const field of this.#fields) {
      arena.set(field, end);
      end += field.length;
    }
    return [arena, this.#index];
  }

  #field(word, value) {
    const bytes = typeof value === "string" ? encode(value) : value;
    this.#index[word] = this.#length;
    this.#index[word + 1] = bytes.length;
    this.#fields.push(bytes);
    this.#length += bytes.length;
  }
}
