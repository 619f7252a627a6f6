// What the user sees of the conversations. Foreign text (messages, uids, group ids) only ever becomes text of an element.

import { GROUP } from "./api.js";

/** How near to the end, in pixels, the reader must be for the view to follow new messages. */
const NEAR_END = 80;

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element with properties and children; strings among them become text. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Shows the conversations of a user in the elements of the page. */
export class View {
  #chats;
  #rows = new WeakMap();
  #items = new WeakMap();
  #shown = null;
  /** Whether the reader is at the end and follows what comes. */
  #follows = true;

  constructor(chats) {
    this.#chats = chats;
    chats.addEventListener("changed", ({ detail }) => {
      this.#list();
      if (detail === chats.current) this.#conversation();
    });
    chats.addEventListener("presence", () => {
      this.#list();
      this.#presence();
    });
    chats.addEventListener("arrived", ({ detail: { chat, message } }) => {
      const where = chat.kind === GROUP ? ` in ${chat.id}` : "";
      byId("announcer").textContent = `${message.from}${where}: ${message.text}`;
    });
    byId("back").addEventListener("click", () => this.open(null));
    byId("earlier").addEventListener("click", () => this.#earlier());
    const scroll = byId("scroll");
    scroll.addEventListener("scroll", () => {
      this.#follows = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_END;
    });
    // A keyboard on a phone or a longer draft takes room, and must not hide the end.
    new ResizeObserver(() => this.#follow()).observe(scroll);
    this.#list();
    this.open(null);
  }

  /** Puts a conversation on the screen and the cursor into its message field; `null` shows the list. */
  open(chat) {
    const before = this.#chats.current;
    byId("chat").classList.toggle("reading", chat !== null);
    byId("open").hidden = chat === null;
    byId("empty").hidden = chat !== null;
    this.#chats.show(chat);
    this.#list();
    if (chat) byId("text").focus();
    else if (before) this.#rows.get(before)?.querySelector("button").focus();
  }

  #list() {
    const chats = this.#chats.latestFirst();
    arrange(byId("conversations"), chats.map((chat) => this.#row(chat)));
    const unread = chats.reduce((sum, chat) => sum + chat.unread, 0);
    document.title = `${unread > 0 ? `(${unread}) ` : ""}${this.#chats.uid} – Penstock demo`;
    byId("empty").querySelector("h2").textContent = chats.length === 0 ? "Nobody wrote yet" : "No conversation is open";
  }

  #row(chat) {
    let row = this.#rows.get(chat);
    if (!row) {
      const button = element("button", { type: "button", className: "row" });
      button.addEventListener("click", () => this.open(chat));
      row = element("li", {}, button);
      this.#rows.set(chat, row);
    }
    const button = row.firstElementChild;
    const last = chat.messages.at(-1);
    button.replaceChildren(
      chat.kind === GROUP ? mark() : this.#dot(chat.id),
      element("bdi", { className: "name", textContent: chat.id }),
      element("span", { className: "last", dir: "auto", textContent: last?.text.slice(0, 200) ?? "" }),
      ...(chat.unread > 0 ? [element("span", { className: "unread", textContent: `${chat.unread} new` })] : []),
    );
    if (chat === this.#chats.current) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    return row;
  }

  #dot(uid) {
    const online = this.#chats.online.has(uid);
    const words = online ? "online" : "offline";
    return element("span", { className: `dot ${words}`, title: words }, element("span", { className: "hidden", textContent: words }));
  }

  #presence() {
    const chat = this.#chats.current;
    if (!chat) return;
    const others = [...chat.members].filter((uid) => uid !== this.#chats.uid).sort();
    const members = others.map((uid) => element("span", { className: "member" }, this.#dot(uid), element("bdi", { textContent: uid })));
    if (chat.kind === GROUP) byId("members").replaceChildren(...members);
    else byId("members").textContent = this.#chats.online.has(chat.id) ? "online" : "offline";
  }

  #conversation() {
    const chat = this.#chats.current;
    if (chat !== this.#shown) this.#follows = true;
    this.#shown = chat;
    byId("messages").dataset.kind = chat.kind === GROUP ? "group" : "person";
    byId("title").replaceChildren(element("bdi", { textContent: chat.id }));
    byId("add-members").hidden = chat.kind !== GROUP;
    byId("earlier").hidden = !chat.more;
    byId("history-error").textContent = chat.error;
    const items = chat.messages.map((message, index) => this.#item(chat, message, chat.messages[index - 1]));
    arrange(byId("messages"), items);
    this.#presence();
    this.#follow();
  }

  #follow() {
    if (this.#follows) byId("scroll").scrollTop = byId("scroll").scrollHeight;
  }

  #item(chat, message, before) {
    let item = this.#items.get(message);
    if (!item) {
      const mine = message.from === this.#chats.uid;
      const at = new Date(message.at);
      const isToday = at.toDateString() === new Date().toDateString();
      item = element(
        "li",
        { className: mine ? "message mine" : "message" },
        element("bdi", { className: "author", textContent: mine ? "you" : message.from }),
        element("p", { dir: "auto", textContent: message.text }),
        element(
          "span",
          { className: "meta" },
          element("time", { dateTime: at.toISOString(), textContent: (isToday ? time : day).format(at) }),
          element("span", { className: "state" }),
        ),
      );
      this.#items.set(message, item);
    }
    item.classList.toggle("same", before?.from === message.from);
    if (item.dataset.state !== message.state) {
      item.dataset.state = message.state;
      item.dataset.seq = message.seq;
      item.querySelector(".state").replaceChildren(...this.#state(chat, message));
    }
    return item;
  }

  /** How far a message has come. */
  #state(chat, message) {
    if (message.state === "sending") return ["sending…"];
    if (message.state === "stored") {
      const place = message.seq > 0 ? `#${message.seq}` : "not kept";
      return [message.from === this.#chats.uid ? `stored ${place}` : place];
    }
    const retry = element("button", { type: "button", className: "quiet", textContent: "Retry" });
    retry.addEventListener("click", () => {
      byId("text").focus();
      this.#chats.retry(chat, message);
    });
    return [`not sent: ${message.why} `, retry];
  }

  /** Older messages come in above; what the reader looks at stays where it is. */
  async #earlier() {
    const scroll = byId("scroll");
    const fromEnd = scroll.scrollHeight - scroll.scrollTop;
    this.#follows = false;
    await this.#chats.earlier(this.#chats.current);
    scroll.scrollTop = scroll.scrollHeight - fromEnd;
    if (byId("earlier").hidden) scroll.focus();
  }
}

/** What stands before a group in the list, where a person has a dot. */
function mark() {
  const sign = element("span", { className: "mark", textContent: "#" });
  sign.setAttribute("aria-hidden", "true");
  return element("span", {}, sign, element("span", { className: "hidden", textContent: "group" }));
}

/** Makes these the children of an element, and moves only what is out of place, so that focus and scrolling stay. */
function arrange(parent, wanted) {
  const focused = document.activeElement;
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus();
}
