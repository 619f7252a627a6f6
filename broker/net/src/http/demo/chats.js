// The conversations of one user: what was said, in order, each message once, and how far each own message has come.

import { ConnectionLost, SUCCESS } from "./session.js";
import { GROUP, PERSON } from "./api.js";
import { reasonWords, refusalWords } from "./reasons.js";

/** Messages of one page of history. */
const PAGE = 50;
/** Conversations that are remembered over a reload. */
const REMEMBERED = 50;
/** Users that one question about presence names. */
const ASKED = 200;

/**
 * A message is `{ from, text, at, clientMsgNo, messageId, seq, state, why }`: `at` in ms, `state` one of `sending`,
 * `stored` and `failed`, `why` in words when it failed.
 *
 * Events: `changed` with the conversation that has something new to show; `arrived` with `{ chat, message }` when
 * somebody wrote; `presence` when somebody came or went.
 */
export class Chats extends EventTarget {
  #session;
  #api;
  #storage;
  #created = 0;

  constructor({ session, api, uid, storage }) {
    super();
    [this.#session, this.#api, this.#storage] = [session, api, storage];
    this.uid = uid;
    /** Users who are online, as far as anybody asked. */
    this.online = new Set();
    /** The conversation on the screen, if any. */
    this.current = null;
    this.all = new Map();
    for (const { kind, id, members } of storage.load() ?? []) this.open(kind, id, members);
    session.addEventListener("state", ({ detail }) => detail.name === "online" && this.#connected());
    session.addEventListener("recv", ({ detail }) => this.#received(detail));
  }

  /** The conversation of this name; it is made if it is not there. */
  open(kind, id, members = []) {
    const key = `${kind} ${id}`;
    let chat = this.all.get(key);
    if (!chat) {
      const known = new Set(kind === PERSON ? [id] : members);
      chat = { kind, id, members: known, messages: [], index: new Map(), unread: 0, more: false, loaded: false, error: "" };
      this.all.set(key, chat);
    }
    members.forEach((uid) => chat.members.add(uid));
    this.#save();
    return chat;
  }

  /** Puts a conversation on the screen; `null` for none. */
  show(chat) {
    this.current = chat;
    if (!chat) return;
    chat.unread = 0;
    this.#changed(chat);
    if (!chat.loaded) this.#load(chat);
  }

  /** Everything on the screen was seen. */
  seen() {
    if (this.current?.unread) this.show(this.current);
  }

  /** Conversations with the latest first. */
  latestFirst() {
    const latest = (chat) => chat.messages.at(-1)?.at ?? 0;
    return [...this.all.values()].sort((left, right) => latest(right) - latest(left));
  }

  /** Sends a text. It is on the screen at once, and sent as soon as there is a connection. */
  send(chat, text) {
    const clientMsgNo = randomName();
    const message = { from: this.uid, text, at: Date.now(), clientMsgNo, messageId: "", seq: 0, state: "sending", why: "" };
    this.#insert(chat, message);
    this.#changed(chat);
    this.#transmit(chat, message);
  }

  /** Sends a failed message again. It keeps its name (clientMsgNo), so that it is stored once even if it was stored before. */
  retry(chat, message) {
    Object.assign(message, { state: "sending", why: "" });
    this.#changed(chat);
    this.#transmit(chat, message);
  }

  /** Creates a group with these members and the user. */
  async createGroup(id, members) {
    await this.#api.createGroup(id, [...new Set([this.uid, ...members])]);
    return this.open(GROUP, id, [this.uid, ...members]);
  }

  /** Adds members to a group. */
  async addMembers(chat, members) {
    await this.#api.addMembers(chat.id, members);
    this.open(GROUP, chat.id, members);
    this.#changed(chat);
  }

  /** The page of history before what is there. */
  async earlier(chat) {
    const first = chat.messages.find(({ seq }) => seq > 0)?.seq ?? 0;
    await this.#history(chat, async () => {
      const { messages, more } = await this.#api.older(this.uid, chat.id, chat.kind, first, PAGE);
      chat.more = more;
      return messages;
    });
  }

  /** Asks who is online of those that the screen shows. */
  async askPresence() {
    const shown = [...this.all.values()].filter((chat) => chat.kind === PERSON || chat === this.current);
    const uids = [...new Set(shown.flatMap((chat) => [...chat.members]))].slice(0, ASKED);
    try {
      this.online = await this.#api.online(uids);
    } catch {
      this.online = new Set();
    }
    this.dispatchEvent(new CustomEvent("presence"));
  }

  /** After a connection was lost nobody knows what came of the sends in between, nor what was pushed to nobody. */
  #connected() {
    for (const chat of this.all.values()) {
      // In their order, under their own names: what was stored already is not stored again.
      for (const message of chat.messages) if (message.state === "sending") this.#transmit(chat, message);
      if (chat.loaded) this.#catchUp(chat);
      else this.#load(chat);
    }
    this.askPresence();
  }

  async #transmit(chat, message) {
    const { clientMsgNo, text } = message;
    try {
      const payload = { type: 1, content: text };
      const sent = await this.#session.send({ channelId: chat.id, channelType: chat.kind, clientMsgNo, payload });
      if (sent.reasonCode === SUCCESS) this.#store(chat, message, sent.messageId, sent.messageSeq);
      else Object.assign(message, { state: "failed", why: reasonWords(sent.reasonCode) });
    } catch (error) {
      // It stays `sending` and goes out again with the next connection.
      if (error instanceof ConnectionLost) return;
      Object.assign(message, { state: "failed", why: refusalWords(error) });
    }
    this.#changed(chat);
  }

  #received({ channelType, channelId, fromUid, header, ...params }) {
    // Commands are for applications, and other kinds of channels have no place here.
    if (header?.syncOnce || (channelType !== PERSON && channelType !== GROUP)) return;
    const chat = this.open(channelType, channelId, [fromUid]);
    const last = lastSeq(chat);
    const { clientMsgNo, messageId, messageSeq, timestamp, payload } = params;
    const fact = { from: fromUid, text: textOf(payload), at: timestamp * 1_000, clientMsgNo, messageId, seq: messageSeq };
    const message = this.#place(chat, fact);
    if (!chat.loaded) this.#load(chat);
    else if (messageSeq > last + 1) this.#catchUp(chat);
    if (message && fromUid !== this.uid) {
      if (chat !== this.current || document.hidden) chat.unread += 1;
      this.dispatchEvent(new CustomEvent("arrived", { detail: { chat, message } }));
    }
    this.#changed(chat);
  }

  #load(chat) {
    return this.#history(chat, async () => {
      const { messages, more } = await this.#api.older(this.uid, chat.id, chat.kind, 0, PAGE);
      [chat.more, chat.loaded] = [more, true];
      return messages;
    });
  }

  /** What was said after the last message that is there. */
  #catchUp(chat) {
    return this.#history(chat, async () => {
      const found = [];
      let [from, more] = [lastSeq(chat) + 1, true];
      while (more) {
        const page = await this.#api.newer(this.uid, chat.id, chat.kind, from, PAGE);
        found.push(...page.messages);
        more = page.more && page.messages.length > 0;
        if (more) from = found.at(-1).message_seq + 1;
      }
      return found;
    });
  }

  async #history(chat, read) {
    try {
      for (const found of await read()) {
        const { message_seq: seq, message_idstr: messageId, client_msg_no: clientMsgNo, from_uid: from } = found;
        const fact = { from, text: textOf(found.payload), at: found.timestamp * 1_000, clientMsgNo, messageId, seq };
        this.#place(chat, fact);
        chat.members.add(from);
      }
      chat.error = "";
    } catch (error) {
      // A person to whom nobody wrote yet has no history.
      chat.error = error.status === 400 && chat.kind === PERSON ? "" : error.message;
    }
    this.#save();
    this.#changed(chat);
  }

  /** Takes what the broker says about a message. Returns it when it was not known, by its id or by its sender's name for it. */
  #place(chat, fact) {
    const own = fact.from === this.uid && fact.clientMsgNo;
    const known = chat.index.get(fact.messageId) ?? (own ? chat.index.get(fact.clientMsgNo) : undefined);
    if (known) {
      this.#store(chat, known, fact.messageId, fact.seq);
      return null;
    }
    const message = { ...fact, state: "stored", why: "" };
    this.#insert(chat, message);
    return message;
  }

  #store(chat, message, messageId, seq) {
    Object.assign(message, { messageId, seq, state: "stored", why: "" });
    chat.index.set(messageId, message);
    rank(message, chat);
    chat.messages.sort(inOrder);
  }

  #insert(chat, message) {
    message.created = this.#created += 1;
    rank(message, chat);
    if (message.messageId) chat.index.set(message.messageId, message);
    if (message.from === this.uid && message.clientMsgNo) chat.index.set(message.clientMsgNo, message);
    chat.messages.push(message);
    chat.messages.sort(inOrder);
  }

  #changed(chat) {
    this.dispatchEvent(new CustomEvent("changed", { detail: chat }));
  }

  #save() {
    const remembered = this.latestFirst().slice(0, REMEMBERED);
    this.#storage.save(remembered.map(({ kind, id, members }) => ({ kind, id, members: [...members].slice(0, ASKED) })));
  }
}

/** Messages stand by sequence. One that is not stored at all stands where it came; one under way stands last. */
function rank(message, chat) {
  if (message.seq > 0) message.rank = message.seq;
  else message.rank = message.state === "stored" ? lastSeq(chat) + 0.5 : Infinity;
}

function inOrder(left, right) {
  return left.rank === right.rank ? left.created - right.created : left.rank - right.rank;
}

function lastSeq(chat) {
  return chat.messages.findLast(({ seq }) => seq > 0)?.seq ?? 0;
}

/** 128 random bits: the name under which the broker stores a message once. */
function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The text of a payload: JSON, or base64 of anything. What has no text is shown as it is. */
function textOf(payload) {
  let content = payload;
  if (typeof payload === "string") {
    const text = new TextDecoder().decode(Uint8Array.from(atob(payload), (character) => character.charCodeAt(0)));
    try {
      content = JSON.parse(text);
    } catch {
      return text;
    }
  }
  return typeof content?.content === "string" ? content.content : JSON.stringify(content);
}
