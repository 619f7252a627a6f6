// The routes of the HTTP API that the page uses (client contract, section 7).
//
// In an application these calls stand in the back end, which knows who asks and keeps the API key to itself. The page is
// its own back end, which is why it is served on development nodes only, unless the configuration says otherwise.

/** A request that was answered with an error, or not at all: `status` 0. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Channel types. */
export const PERSON = 1;
export const GROUP = 2;

export class Api {
  #key;

  /** `key` may be empty: a development node wants none. */
  constructor(key) {
    this.#key = key;
  }

  /** The WebSocket address to connect to. */
  async address() {
    return (await this.#json("/route")).ws_addr;
  }

  /** Creates a group, or adds members to the one of this name. */
  createGroup(channelId, members) {
    return this.#json("/channel", { channel_id: channelId, channel_type: GROUP, subscribers: members });
  }

  /** Adds members to a group. */
  addMembers(channelId, members) {
    const body = { channel_id: channelId, channel_type: GROUP, subscribers: members };
    return this.#json("/channel/subscriber_add", body);
  }

  /** The newest messages below a sequence (0: the newest of all), in ascending order. */
  older(reader, channelId, channelType, below, limit) {
    const start = below > 0 ? below - 1 : 0;
    return this.#history(reader, { channel_id: channelId, channel_type: channelType, start, pull_mode: 0, limit });
  }

  /** The oldest messages from a sequence on, in ascending order. */
  newer(reader, channelId, channelType, from, limit) {
    return this.#history(reader, { channel_id: channelId, channel_type: channelType, start: from, pull_mode: 1, limit });
  }

  async #history(reader, { start, ...question }) {
    const body = { login_uid: reader, start_message_seq: start, end_message_seq: 0, ...question };
    const { messages, more } = await this.#json("/channel/messagesync", body);
    return { messages, more: more === 1 };
  }

  /** Which of these users are online, as a set. */
  async online(uids) {
    if (uids.length === 0) return new Set();
    const found = await this.#json("/user/onlinestatus", uids);
    return new Set(found.map(({ uid }) => uid));
  }

  /** All metrics in the Prometheus text format. */
  async metrics() {
    return (await this.#fetch("/metrics")).text();
  }

  async #json(path, body) {
    return (await this.#fetch(path, body)).json();
  }

  async #fetch(path, body) {
    const headers = this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
    const options = { headers, cache: "no-store" };
    if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new ApiError("the broker does not answer", 0);
    }
    if (response.ok) return response;
    const said = await response.json().catch(() => ({}));
    throw new ApiError(said.msg ?? said.error ?? `status ${response.status}`, response.status);
  }
}
