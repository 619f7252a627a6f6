// One client of one user, driven by lines of JSON: commands on standard input, events on standard output.
//
//   node client.mjs sdk|rpc WEBSOCKET-ADDRESS UID TOKEN
//
// Commands: {"send":{"channel","type","text"}} and, for rpc, {"send":{…,"clientMsgNo"}}; {"disconnect":true}; for sdk
// {"subscribe":"channel-uri"}, {"drop":true} (the network goes away) and {"history":{"http","channel","type","limit"}}.
// Events: {"status","reason"}; {"subscribed":{"reason"}}; {"history":[{"seq","text","timestamp"}]}; {"kicked":reason}; {"ack":{"seq","id","reason"}}; {"received":{"from","channel","type","seq","id","text"}}.
//
// `sdk` is the published JavaScript SDK as a web application has it: bundled, with the browser's WebSocket. `rpc` speaks
// JSON-RPC, one object per text message.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, stop } from "esbuild";
import { WebSocket } from "ws";

const [kind, address, uid, token] = process.argv.slice(2);
const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");
// The SDK's number for the status after a DISCONNECT.
const KICKED = 4;
// The SDK talks on the console; standard output belongs to events.
console.log = console.error;
globalThis.WebSocket = WebSocket;

async function bundledSdk() {
  const folder = mkdtempSync(join(tmpdir(), "penstock-e2e-"));
  const outfile = join(folder, "sdk.mjs");
  const resolveDir = dirname(fileURLToPath(import.meta.url));
  try {
    await build({
      stdin: { contents: 'export { default } from "wukongimjssdk";', resolveDir },
      bundle: true,
      define: { global: "globalThis" },
      format: "esm",
      logLevel: "error",
      outfile,
      platform: "browser",
    });
    return (await import(pathToFileURL(outfile).href)).default;
  } finally {
    rmSync(folder, { recursive: true });
    stop();
  }
}

async function sdkClient() {
  const sdk = (await bundledSdk()).shared();
  Object.assign(sdk.config, { addr: address, uid, token });
  sdk.connectManager.addConnectStatusListener((status, reason) =>
    say(status === KICKED ? { kicked: reason } : { status, reason }),
  );
  sdk.chatManager.addMessageStatusListener((ack) =>
    say({ ack: { seq: Number(ack.messageSeq), id: ack.messageID.toString(), reason: ack.reasonCode } }),
  );
  sdk.chatManager.addMessageListener((message) => {
    // The SDK shows its own sends to the listener too; only what came from the server is a receipt.
    if (message.send) return;
    const { fromUID, channel, messageSeq, messageID, content } = message;
    const place = { channel: channel.channelID, type: channel.channelType, seq: Number(messageSeq) };
    say({ received: { from: fromUID, ...place, id: messageID.toString(), text: content.text ?? content.content } });
  });
  sdk.connect();
  const history = async ({ http, channel, type, limit }) => {
    // As an application does it: the SDK asks its data source, and the data source asks the HTTP API.
    sdk.config.provider.syncMessagesCallback = async (of, options) => {
      const body = {
        login_uid: uid, channel_id: of.channelID, channel_type: of.channelType, limit: options.limit,
        start_message_seq: options.startMessageSeq, end_message_seq: options.endMessageSeq, pull_mode: options.pullMode,
      };
      const answer = await fetch(`http://${http}/channel/messagesync`, { method: "POST", body: JSON.stringify(body) });
      return (await answer.json()).messages;
    };
    const options = { startMessageSeq: 1, endMessageSeq: 0, limit, pullMode: 1 };
    const messages = await sdk.chatManager.syncMessages(sdk.newChannel(channel, type), options);
    const text = (payload) => JSON.parse(Buffer.from(payload, "base64").toString()).content;
    say({ history: messages.map((one) => ({ seq: one.message_seq, text: text(one.payload), timestamp: one.timestamp })) });
  };
  return {
    history,
    subscribe: (uri) => sdk.onSubscribe(uri, (_message, reasonCode) => say({ subscribed: { reason: reasonCode } })),
    drop: () => sdk.connectManager.ws.ws.close(),
    send: ({ channel, type, text }) => sdk.chatManager.send(sdk.newMessageText(text), sdk.newChannel(channel, type)),
    disconnect: () => sdk.disconnect(),
  };
}

function rpcClient() {
  const socket = new WebSocket(address);
  const waiting = new Map();
  let last = 0;
  const call = (method, params, then) => {
    const id = String((last += 1));
    waiting.set(id, then);
    socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
  };
  socket.on("open", () =>
    call("connect", { uid, token, deviceId: `rpc-${uid}`, deviceFlag: 1 }, ({ result, error }) =>
      say({ status: result?.reasonCode === 1 ? 1 : 3, reason: result?.reasonCode ?? error?.code }),
    ),
  );
  socket.on("close", () => say({ status: 0 }));
  socket.on("error", (error) => console.error(error.message));
  socket.on("message", (data) => {
    const message = JSON.parse(data.toString());
    if (message.id !== undefined) {
      waiting.get(message.id)?.(message);
      waiting.delete(message.id);
    } else if (message.method === "recv") {
      const { fromUid, channelId, channelType, messageSeq, messageId, payload } = message.params;
      const place = { channel: channelId, type: channelType, seq: messageSeq };
      say({ received: { from: fromUid, ...place, id: messageId, text: payload.content } });
      socket.send(JSON.stringify({ jsonrpc: "2.0", method: "recvack", params: { messageId, messageSeq } }));
    } else if (message.method === "disconnect") {
      say({ kicked: message.params.reasonCode });
    }
  });
  return {
    send: ({ channel, type, text, clientMsgNo }) => {
      const params = { channelId: channel, channelType: type, clientMsgNo, payload: { type: 1, content: text } };
      call("send", params, ({ result, error }) =>
        say({ ack: { seq: result?.messageSeq, id: result?.messageId, reason: result?.reasonCode ?? error?.code } }),
      );
    },
    disconnect: () => socket.close(),
  };
}

const client = kind === "sdk" ? await sdkClient() : rpcClient();
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.send) client.send(command.send);
  if (command.disconnect) client.disconnect();
  if (command.subscribe) client.subscribe(command.subscribe);
  if (command.drop) client.drop();
  if (command.history) await client.history(command.history);
}
process.exit(0);
