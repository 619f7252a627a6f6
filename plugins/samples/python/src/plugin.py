"""Refuses messages with listed words, or masks the words. Letters are compared without their case.

The configuration: `{"words": ["..."], "mode": "mask"}` or `"reject"`, and for the latter `"text"`, shown to the sender.
"""

import json
import re

from componentize_py_types import Err
from wit_world import exports

from frame import Message, Reject, Rewrite, Verdict, judge

WORDS_MAX = 10_000
TEXT = "the message has a word that is not allowed here"


class Filter:
    """What a configuration asks for."""

    def __init__(self, words: list[str], mode: str = "mask", text: str = TEXT):
        if mode not in ("mask", "reject"):
            raise Err("mode: mask or reject")
        if not isinstance(words, list) or len(words) > WORDS_MAX:
            raise Err(f"words: a list of at most {WORDS_MAX}")
        if not all(isinstance(word, str) and word for word in words):
            raise Err("words: each a text, none empty")
        # One expression for all words, the longest first: it takes the first alternative that fits.
        longest = sorted(words, key=len, reverse=True)
        self.words = re.compile("|".join(map(re.escape, longest)), re.IGNORECASE) if words else None
        self.mode = mode
        self.text = text

    def verdict(self, message: Message) -> Verdict:
        payload = message.text
        if self.words is None or not self.words.search(payload):
            return None
        if self.mode == "reject":
            return Reject(self.text)
        masked = self.words.sub(lambda word: "*" * len(word[0]), payload)
        return Rewrite(payload=masked.encode())


plugin: Filter | None = None


class Lifecycle(exports.Lifecycle):
    def init(self, config: str) -> None:
        global plugin
        try:
            plugin = Filter(**json.loads(config))
        except (TypeError, ValueError) as error:
            raise Err(str(error)) from error


class BeforeSend(exports.BeforeSend):
    def handle(self, arena: bytes, index: list[int]) -> tuple[bytes, list[int]]:
        return judge(arena, index, plugin.verdict)
