import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import log

from frame import Message, Reject, Rewrite, Verdict, judge

config: dict[str, str] = {}


class Lifecycle(exports.Lifecycle):
    def init(self, text: str) -> None:
        """Called once for each instance, with the configuration of the binding over the defaults of plugin.toml."""
        config.update(json.loads(text))
        for key in ("replace", "by", "refuse", "text"):
            if not isinstance(config.get(key), str):
                raise Err(f"{key}: give a string")
        log.write(log.Level.INFO, "{{name}} is ready", [("refuse", config["refuse"])])


class BeforeSend(exports.BeforeSend):
    def handle(self, arena: bytes, index: list[int]) -> tuple[bytes, list[int]]:
        """Called with a batch of messages that somebody wants to send."""
        return judge(arena, index, verdict)


def verdict(message: Message) -> Verdict:
    text = message.text
    if config["refuse"] and config["refuse"] in text:
        return Reject(config["text"])
    if config["replace"] and config["replace"] in text:
        return Rewrite(payload=text.replace(config["replace"], config["by"]).encode())
    return None
