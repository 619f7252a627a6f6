"""The flat frame of a call: every message of a batch in two lists, `arena` (bytes) and `index` (32-bit words that say where in
the arena each field stands). `broker/docs/plugin-frame.md` of Penstock has the layout. A field costs nothing until it is read.
"""

from collections.abc import Callable
from dataclasses import dataclass

from wit_world.imports import log

LAYOUT = 1
VERDICT_HEADER = 4
VERDICT_WORDS = 10


class Message:
    """A message that somebody wants to send."""

    __slots__ = ("_arena", "_index", "_first")

    def __init__(self, arena: bytes, index: list[int], first: int):
        self._arena = arena
        self._index = index
        self._first = first

    def _bytes(self, place: int) -> bytes:
        start = self._index[self._first + place]
        return self._arena[start : start + self._index[self._first + place + 1]]

    @property
    def channel_id(self) -> str:
        return self._bytes(0).decode()

    @property
    def channel_kind(self) -> int:
        return self._index[self._first + 2]

    @property
    def sender(self) -> str:
        return self._bytes(3).decode()

    @property
    def payload(self) -> bytes:
        return self._bytes(5)

    @property
    def text(self) -> str:
        """The payload as a string. What is no UTF-8 comes as U+FFFD."""
        return self._bytes(5).decode(errors="replace")

    @property
    def client_message_number(self) -> str:
        return self._bytes(7).decode()

    @property
    def topic(self) -> str:
        """The topic, empty for none."""
        return self._bytes(9).decode()

    @property
    def expire_seconds(self) -> int:
        """Seconds until the message is no longer shown; 0 for ever."""
        return self._index[self._first + 11]

    @property
    def is_not_stored(self) -> bool:
        """Whether it is delivered without being stored."""
        return self._index[self._first + 12] & 1 != 0


@dataclass(frozen=True)
class Reject:
    """The message is refused."""

    text: str
    """Words for the sender, at most 1 KiB."""
    code: int = 0
    """The code that the sender gets; 0 leaves it to the broker."""


@dataclass(frozen=True)
class Rewrite:
    """The message goes on changed; what is None stays."""

    payload: bytes | None = None
    topic: str | None = None
    expire_seconds: int | None = None


Verdict = Reject | Rewrite | None
"""None allows the message as it is."""


def judge(arena: bytes, index: list[int], verdict: Callable[[Message], Verdict]) -> tuple[bytes, list[int]]:
    """Answers a batch: asks for the verdict on each message in order."""
    version, header, words, count = index[:4]
    if version != LAYOUT:
        raise ValueError(f"layout {version} of the frame is not known")
    answer = bytearray()
    entries: list[int] = []
    all_allowed = True
    for place in range(count):
        try:
            judged = verdict(Message(arena, index, header + place * words))
        except Exception as error:
            # What leaves the component is a trap without words.
            log.write(log.Level.ERROR, repr(error), [("line", _line(error))])
            raise
        all_allowed = all_allowed and judged is None
        entries += _entry(judged, answer)
    if all_allowed:
        return b"", []
    return bytes(answer), [LAYOUT, VERDICT_HEADER, VERDICT_WORDS, count, *entries]


def _line(error: Exception) -> str:
    """Where it was raised. The module `traceback` would look for source files, which a component does not have."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _entry(verdict: Verdict, arena: bytearray) -> list[int]:
    entry = [0] * VERDICT_WORDS

    def field(word: int, value: bytes) -> None:
        entry[word : word + 2] = [len(arena), len(value)]
        arena.extend(value)

    match verdict:
        case Reject(text, code):
            entry[0:2] = [1, code]
            field(2, text.encode())
        case Rewrite(payload, topic, expire_seconds):
            entry[0] = 2
            if payload is not None:
                entry[4] |= 1
                field(5, payload)
            if topic is not None:
                entry[4] |= 2
                field(7, topic.encode())
            if expire_seconds is not None:
                entry[4] |= 4
                entry[9] = expire_seconds
    return entry
