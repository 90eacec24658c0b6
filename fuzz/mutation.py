"""Damage by structure: a value, or the bytes it was written as, changed in a few places at a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

#: A text that stands for a hundred thousand lists in each other where JSON is written.
DEEP = "\x01deep\x01"

#: Values where others were expected.
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 31, 255, 256, 65_536, -(1 << 31), (1 << 31) - 1, 1 << 32, (1 << 40) + 1, -(1 << 63),
    (1 << 63) - 1, 1 << 64, 10**400, 0.5, -0.0, 1e38, 1e308, float("nan"), float("inf"), -float("inf"), "", " ", "a", "ab", "\0",
    "\x1b[2J\x07\u202e", "two\nlines", "\ud800", "é漢𝄞", "<s>", "▁", "<0x41>", "../../etc/passwd", "x" * 100_000, [], {}, [0], [""], [[]],
    {"": None}, [1.5] * 3, ["a"] * 50, {"a": {"b": 1}},
)  # fmt: skip


class Mutator:
    """Changes at a seed. Everything is drawn from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def odd(self) -> Any:
        if self.rng.random() < 0.02:
            return DEEP
        return _copy(self.rng.choice(ODD))

    def tree(self, root: Any, most: int = 3) -> Any:
        """A copy of a dict or list, changed in up to `most` places."""
        found = _copy(root)
        for _ in range(self.rng.randint(1, most)):
            places = list(_places(found))
            if places:
                self._change(*self.rng.choice(places))
        return found

    def _change(self, node: Any, key: Any) -> None:
        rng, value = self.rng, node[key]
        kind = rng.randrange(10)
        if kind < 4:
            node[key] = self.odd()
        elif kind == 4 and isinstance(node, dict):
            del node[key]
        elif kind == 5 and isinstance(node, dict):
            node[str(self.odd())[:200]] = node.pop(key)
        elif kind == 6 and isinstance(value, list) and value:
            value.insert(rng.randrange(len(value) + 1), rng.choice(value))
        elif kind == 7 and isinstance(value, list) and value:
            rng.shuffle(value)
        elif kind == 8 and isinstance(value, list) and value:
            del value[rng.randrange(len(value)) :]
        elif kind == 9 and isinstance(value, list) and 0 < len(value) < 1000:
            node[key] = value * rng.randint(2, 20)
        elif isinstance(value, bool):
            node[key] = not value
        elif isinstance(value, int):
            node[key] = value + rng.choice((-1, 1, value, -value, -2 * value, 1 << 20))
        elif isinstance(value, float):
            node[key] = value * rng.choice((-1.0, 0.0, 1e30, 1e-30))
        elif isinstance(value, str):
            node[key] = self.text(value)
        else:
            node[key] = self.odd()

    def text(self, value: str) -> str:
        """A text with a piece of it cut, doubled or changed."""
        rng = self.rng
        at = rng.randrange(len(value) + 1)
        piece = rng.choice(("", value[:8], "\x1b[31m", "\u202e", "\0", "\n", "}", "[", "9" * 30, "'", " "))
        return value[:at] + piece + value[at + rng.choice((0, 0, 1, 3)) :]

    def raw(self, data: bytes, most: int = 3) -> bytes:
        """Bytes overwritten, cut, doubled or moved in up to `most` places."""
        rng, found = self.rng, bytearray(data)
        for _ in range(rng.randint(1, most)):
            at, kind = rng.randrange(len(found) + 1), rng.randrange(8)
            if kind < 3:
                code, n = rng.choice(
                    (("<B", 255), ("<I", 0xFFFFFFFF), ("<Q", (1 << 64) - 1), ("<Q", 1 << 63), ("<I", 0x7FFFFFFF), ("<H", 0x8000))
                )
                word = struct.pack(code, rng.choice((0, 1, n, rng.randint(0, n))))
                found[at : at + len(word)] = word
            elif kind == 3:
                del found[at:]
            elif kind == 4:
                del found[at : at + rng.randint(1, 64)]
            elif kind == 5:
                found[at:at] = found[at : at + rng.randint(1, 64)]
            elif kind == 6:
                found[at:at] = rng.randbytes(rng.randint(1, 8))
            elif found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
        return bytes(found)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything in a value."""
    for key in node if isinstance(node, dict) else range(min(len(node), 60)):
        yield node, key
        if isinstance(node[key], (dict, list)):
            yield from _places(node[key])
