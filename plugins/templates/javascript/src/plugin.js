import { write as log } from "penstock:plugin/log@1.0.0";
import { judge } from "./frame.js";

let config;

// Called once for each instance, with the configuration of the binding over the defaults of plugin.toml.
export const lifecycle = {
  init(text) {
    config = JSON.parse(text);
    for (const key of ["replace", "by", "refuse", "text"]) {
      if (typeof config[key] !== "string") {
        throw `${key}: give a string`;
      }
    }
    log("info", "{{name}} is ready", [["refuse", config.refuse]]);
  },
};

// Called with a batch of messages that somebody wants to send.
export const beforeSend = {
  handle(arena, index) {
    return judge(arena, index, verdict);
  },
};

function verdict(message) {
  const text = message.text;
  if (config.refuse !== "" && text.includes(config.refuse)) {
    return { reject: config.text };
  }
  if (config.replace !== "" && text.includes(config.replace)) {
    return { payload: text.replaceAll(config.replace, config.by) };
  }
  return undefined;
}
