// The page: who is signed in, and how its parts are put together.
//
//   app.js ── session.js   the JSON-RPC session: connect, send, recv, reconnect
//          ├─ api.js       HTTP: groups, history, presence, metrics
//          ├─ chats.js     conversations in memory: order, duplicates, delivery state
//          ├─ view.js      conversations on the screen, dialogs.js beside it
//          └─ panel.js     the numbers below
//
// The user stands in the fragment of the address (`/#alice`), so that two tabs are two users. What belongs to the user of
// a tab (token, API key, device id, conversations) is kept in the storage of the tab and is gone with it.

import { Api } from "./api.js";
import { Chats } from "./chats.js";
import { setUpDialogs } from "./dialogs.js";
import { Panel } from "./panel.js";
import { reasonWords } from "./reasons.js";
import { KICKED, Session } from "./session.js";
import { View, byId } from "./view.js";

/** Milliseconds between two questions about who is online. */
const PRESENCE_EVERY_MS = 4_000;

const uid = userOfAddress();
const storage = tabStorage(uid);

addEventListener("hashchange", () => location.reload());
byId("sign-in-form").addEventListener("submit", signIn);
byId("sign-out").addEventListener("click", signOut);
if (uid) enter();
else showSignIn("");

function userOfAddress() {
  const text = location.hash.slice(1);
  try {
    return decodeURIComponent(text);
  } catch {
    // Somebody typed a percent sign.
    return text;
  }
}

/** What this tab keeps for a user, as one object. */
function tabStorage(user) {
  const name = `penstock ${user}`;
  const load = () => JSON.parse(sessionStorage.getItem(name) ?? "{}");
  return {
    load,
    save: (part) => sessionStorage.setItem(name, JSON.stringify({ ...load(), ...part })),
    clear: () => sessionStorage.removeItem(name),
  };
}

function signIn(event) {
  event.preventDefault();
  const user = byId("uid").value.trim();
  if (!user) return;
  tabStorage(user).save({ token: byId("token").value, key: byId("key").value });
  // The page starts anew with this user, as it does when it is reloaded.
  if (user === uid) location.reload();
  else location.hash = encodeURIComponent(user);
}

function signOut() {
  storage.clear();
  location.hash = "";
}

async function showSignIn(error, wantsKey = false) {
  const { token, key } = storage.load();
  byId("sign-in").hidden = false;
  byId("uid").value = uid;
  byId("token").value = token ?? "";
  byId("key").value = key ?? "";
  byId("sign-in-error").textContent = error;
  byId("uid").focus();
  byId("key-label").hidden = !(wantsKey || (await isKeyWanted(new Api(""))));
}

async function isKeyWanted(api) {
  try {
    await api.metrics();
    return false;
  } catch ({ status }) {
    return status === 401;
  }
}

async function enter() {
  const kept = { deviceId: newDeviceId(), ...storage.load() };
  storage.save({ deviceId: kept.deviceId });
  const api = new Api(kept.key);
  if (await isKeyWanted(api)) {
    const error = kept.key ? "This is not the API key of the node." : "This node wants its API key.";
    return showSignIn(error, true);
  }
  const address = await addressOf(api);
  const session = new Session({ address, uid, token: kept.token ?? "", deviceId: kept.deviceId });
  const chats = new Chats({
    session,
    api,
    uid,
    storage: { load: () => storage.load().chats, save: (list) => storage.save({ chats: list }) },
  });
  showChat(session, chats, new Panel(api, { rate: byId("rate"), latency: byId("latency"), connections: byId("connections") }));
  session.start();
}

/** A node that is starting is waited for. */
async function addressOf(api) {
  for (;;) {
    try {
      return await api.address();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
}

/** Sessions of one device end each other, so a reloaded tab must be the same device and another tab another one. */
function newDeviceId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return `demo-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function showChat(session, chats, panel) {
  for (const id of ["who", "chat", "connection", "panel"]) byId(id).hidden = false;
  byId("me").textContent = uid;
  byId("second-tab").href = uid === "bob" ? "#alice" : "#bob";
  const view = new View(chats);
  setUpDialogs(chats, view);
  setUpComposer(chats);
  const stops = [panel.start(), setUpPresence(session, chats)];
  session.addEventListener("state", ({ detail }) => {
    if (detail.name !== "refused") return showConnection(detail);
    // Neither the token nor the uid becomes right by trying again.
    for (const id of ["who", "chat", "connection", "panel"]) byId(id).hidden = true;
    for (const stop of stops) stop();
    showSignIn(`The broker refused: ${reasonWords(detail.reasonCode)}.`);
  });
  byId("connect-now").addEventListener("click", () => session.start());
  // The network came back: there is no need to wait for the next attempt.
  addEventListener("online", () => session.state.name === "waiting" && session.start());
  document.addEventListener("visibilitychange", () => document.hidden || chats.seen());
}

function setUpPresence(session, chats) {
  const timer = setInterval(() => {
    if (!document.hidden && session.state.name === "online") chats.askPresence();
  }, PRESENCE_EVERY_MS);
  return () => clearInterval(timer);
}

function showConnection({ name, reasonCode }) {
  const words = {
    connecting: "Connecting…",
    online: "Connected",
    waiting: "Connection lost. Trying again by itself; messages wait.",
    kicked: reasonCode === KICKED ? "The broker ended this session" : `The broker ended this session: ${reasonWords(reasonCode)}`,
    stopped: "Not connected",
  };
  byId("connection").dataset.state = name;
  byId("connection-text").textContent = words[name];
  byId("connect-now").hidden = name !== "waiting" && name !== "kicked";
}

function setUpComposer(chats) {
  const [form, field] = [byId("composer"), byId("text")];
  field.addEventListener("keydown", (event) => {
    // Enter also ends the composition of a Chinese or Japanese word, which must not send.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    chats.send(chats.current, text);
    field.value = "";
    field.focus();
  });
}
