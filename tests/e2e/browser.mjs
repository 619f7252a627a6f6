// A browser with tabs, driven by lines of JSON: a command on standard input, its answer on standard output.
//
//   node browser.mjs
//
// Commands: {"open":[tab, url]}, {"click":[tab, selector]}, {"fill":[tab, selector, text]}, {"press":[tab, selector, key]},
// {"wait":[tab, selector, text]} (until an element that is visible has this text in it), {"texts":[tab, selector]},
// {"evaluate":[tab, expression]}, {"reload":[tab]}, {"close":[tab]}, {"sent":[tab]} (the text messages that the tab's
// WebSockets sent) and {"complaints":[tab]} (errors of scripts, and what the security policy refused).
// Answers: {"value"} or {"error"}.

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE_MS = 60_000;
const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

function executable() {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = folders.flatMap((folder) => NAMES.map((name) => join(folder, name))).find(existsSync);
  if (!found) throw new Error(`none of ${NAMES.join(", ")} is on the path: install Debian's package chromium`);
  return found;
}

// Without its sandbox it starts as root too; it opens nothing but the pages of the node under test.
const browser = await chromium.launch({ executablePath: executable(), chromiumSandbox: false });
const context = await browser.newContext({ locale: "en-GB" });
context.setDefaultTimeout(PATIENCE_MS);
const tabs = new Map();

async function open(name, url) {
  const page = await context.newPage();
  const tab = { page, sent: [], complaints: [] };
  tabs.set(name, tab);
  page.on("pageerror", (error) => tab.complaints.push(String(error)));
  page.on("console", (message) => {
    // A node that is away is no mistake of the page.
    const isMistake = message.type() === "error" && !/ERR_CONNECTION|net::|WebSocket connection/.test(message.text());
    if (isMistake) tab.complaints.push(message.text());
  });
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => tab.sent.push(payload)));
  await page.goto(url);
}

const tab = (name) => tabs.get(name) ?? fail(`no tab is called ${name}`);
const fail = (why) => {
  throw new Error(why);
};

const commands = {
  open,
  click: (name, selector) => tab(name).page.click(selector),
  fill: (name, selector, text) => tab(name).page.fill(selector, text),
  press: (name, selector, key) => tab(name).page.press(selector, key),
  wait: (name, selector, text) => tab(name).page.locator(selector).filter({ hasText: text, visible: true }).first().waitFor(),
  texts: (name, selector) => tab(name).page.locator(selector).allInnerTexts(),
  evaluate: (name, expression) => tab(name).page.evaluate(expression),
  reload: (name) => tab(name).page.reload(),
  close: (name) => tab(name).page.close(),
  sent: (name) => tab(name).sent,
  complaints: (name) => tab(name).complaints,
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, words]] = Object.entries(JSON.parse(line));
  let answer;
  try {
    answer = { value: (await commands[name](...words)) ?? null };
  } catch (error) {
    answer = { error: `${name} ${words.join(" ")}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
