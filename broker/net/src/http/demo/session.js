// A JSON-RPC session of one user over WebSocket (client contract, section 4), made to be copied.
//
// One JSON object per text message. Requests have an `id` (a string) and are answered with the same id; notifications
// have none. Payloads are plain JSON. The life of a connection:
//
//   open the socket → connect → { reasonCode: 1 } → send, ping … ← recv (answer each with recvack) ← disconnect
//
// What a client owes the broker:
//   1. `connect` is the first request, and nothing follows it before its answer.
//   2. Every `recv` is confirmed with `recvack`, otherwise the message is pushed again.
//   3. Something is sent within every three minutes; `ping` is for that.
//   4. A `send` without an answer is sent again with the same `clientMsgNo`: it is stored once however often it comes.
//   5. After `disconnect` it stays away: another session has taken this one's place, or an operator ended it.

/** Milliseconds for opening the socket and for the answer to `connect`. */
const CONNECT_WITHIN_MS = 10_000;
/** Milliseconds between two pings, and for the answer to one. Networks often drop what is silent for a minute. */
const PING_EVERY_MS = 25_000;
const PONG_WITHIN_MS = 10_000;
/** Milliseconds before the first attempt to reconnect; doubled each time, up to the second number. */
const BACKOFF_FIRST_MS = 500;
const BACKOFF_MOST_MS = 30_000;

/** The reason code of success, and the one of a session that was ended on purpose. */
export const SUCCESS = 1;
export const KICKED = 12;
/** The close code of a kick, for the case that the notification before it was lost. */
const CLOSE_KICKED = 4001;

/** The broker refused a request with an error object: `code` is its number. */
export class Refusal extends Error {
  constructor({ code, message }) {
    super(message);
    this.code = code;
  }
}

/** The connection ended before the answer came. Whether the request was carried out is not known. */
export class ConnectionLost extends Error {}

/**
 * Connects, stays connected, and says what happens by events:
 *
 * - `state`: `detail` is `{ name, … }`, also in `session.state`. `connecting`; `online`; `waiting` with `retryAt` (the
 *   time in ms of the next attempt); and three that it does not leave by itself: `kicked` and `refused` with
 *   `reasonCode`, and `stopped`.
 * - `recv`: `detail` is the parameters of the notification. It is confirmed already.
 */
export class Session extends EventTarget {
  #address;
  #identity;
  #socket = null;
  #waiting = new Map();
  #lastId = 0;
  #attempts = 0;
  #timers = { connect: 0, ping: 0, pong: 0, retry: 0 };

  /**
   * `deviceId` should stay the same for one device: a new session of a device ends its old one.
   */
  constructor({ address, uid, token, deviceId }) {
    super();
    this.#address = address;
    this.#identity = { uid, token, deviceId, deviceFlag: 1 };
    this.state = { name: "stopped" };
  }

  /** Connects now, whatever it was waiting for. */
  start() {
    this.#drop();
    this.#to({ name: "connecting" });
    let socket;
    try {
      socket = new WebSocket(this.#address);
    } catch {
      // The address is not one of a WebSocket: nothing will change by trying again, but the user sees why.
      return this.#tryLater();
    }
    this.#socket = socket;
    this.#timers.connect = setTimeout(() => this.#ended(socket), CONNECT_WITHIN_MS);
    socket.onopen = () => this.#connect(socket);
    socket.onmessage = ({ data }) => this.#take(socket, data);
    socket.onclose = ({ code }) => this.#ended(socket, code);
  }

  /** Closes for good. */
  stop() {
    this.#drop();
    this.#to({ name: "stopped" });
  }

  /**
   * Sends a message and resolves to `{ messageId, messageSeq, reasonCode }`; 1 means stored. Rejects with `Refusal` or
   * with `ConnectionLost`.
   */
  send({ channelId, channelType, clientMsgNo, payload }) {
    // Nothing may follow `connect` before its answer.
    if (this.state.name !== "online") return Promise.reject(new ConnectionLost());
    // redDot: the message counts as unread where clients count that.
    const header = { redDot: true };
    return this.#call("send", { channelId, channelType, clientMsgNo, payload, header });
  }

  #connect(socket) {
    this.#call("connect", { ...this.#identity, clientTimestamp: Date.now() }).then(
      ({ reasonCode }) => {
        if (socket !== this.#socket) return;
        clearTimeout(this.#timers.connect);
        if (reasonCode === SUCCESS) return this.#opened(socket);
        this.#drop();
        this.#to({ name: reasonCode === KICKED ? "kicked" : "refused", reasonCode });
      },
      // The close that follows says the same.
      () => {},
    );
  }

  #opened(socket) {
    this.#attempts = 0;
    this.#to({ name: "online" });
    this.#timers.ping = setInterval(() => {
      const silent = () => this.#ended(socket);
      this.#timers.pong = setTimeout(silent, PONG_WITHIN_MS);
      this.#call("ping", {}).then(() => clearTimeout(this.#timers.pong), () => {});
    }, PING_EVERY_MS);
  }

  #call(method, params) {
    const id = String((this.#lastId += 1));
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) return reject(new ConnectionLost());
      this.#waiting.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  #notify(method, params) {
    this.#socket?.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  #take(socket, text) {
    if (socket !== this.#socket) return;
    const { id, method, params, result, error } = JSON.parse(text);
    if (method === undefined) {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(new Refusal(error));
      else waiting?.resolve(result);
    } else if (method === "recv") {
      this.dispatchEvent(new CustomEvent("recv", { detail: params }));
      this.#notify("recvack", { messageId: params.messageId, messageSeq: params.messageSeq });
    } else if (method === "disconnect") {
      this.#drop();
      this.#to({ name: "kicked", reasonCode: params.reasonCode });
    }
  }

  /** The socket is gone, or as good as gone. */
  #ended(socket, code) {
    if (socket !== this.#socket) return;
    this.#drop();
    if (code === CLOSE_KICKED) this.#to({ name: "kicked", reasonCode: KICKED });
    else this.#tryLater();
  }

  /**
   * Waits, twice as long each time. Half of the wait is chance: after a restart of the broker its clients must not all
   * come back at the same moment.
   */
  #tryLater() {
    const whole = Math.min(BACKOFF_FIRST_MS * 2 ** this.#attempts, BACKOFF_MOST_MS);
    const wait = whole / 2 + Math.random() * (whole / 2);
    this.#attempts += 1;
    this.#timers.retry = setTimeout(() => this.start(), wait);
    this.#to({ name: "waiting", retryAt: Date.now() + wait });
  }

  #drop() {
    const { connect, ping, pong, retry } = this.#timers;
    for (const timer of [connect, pong, retry]) clearTimeout(timer);
    clearInterval(ping);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    const unanswered = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of unanswered) reject(new ConnectionLost());
  }

  #to(state) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }
}
