"""What was said in a conversation, as text in a file."""

from __future__ import annotations

import json
import os
import stat

#: Bytes of a conversation that are read.
MOST_BYTES = 4 << 20


def written(messages: list[dict[str, str]]) -> str:
    """A conversation as JSON, a list of objects with a role and a content."""
    return json.dumps(messages, ensure_ascii=False, indent=1) + "\n"


def in_file(place: bytes) -> list[dict[str, str]]:
    """The messages of a file of such a text. OSError for one that is none, ValueError for what is no conversation."""
    if not stat.S_ISREG(os.stat(place).st_mode):  # opening a pipe would wait for a writer
        raise ValueError("not a file")
    with open(place, "rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    return parsed(raw)


def parsed(raw: bytes | str) -> list[dict[str, str]]:
    """The messages of such a text; ValueError for what is no conversation: a system's message, if any, then a user's and an
    assistant's in turns."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(found, list) or not all(isinstance(m, dict) and m.keys() == {"role", "content"} for m in found):
        raise ValueError("not a conversation; legal: a list of objects with a role and a content")
    first = bool(found) and found[0]["role"] == "system"
    for n, message in enumerate(found):
        role = "system" if n < first else ("user", "assistant")[(n - first) % 2]
        if message["role"] != role or not isinstance(message["content"], str):
            raise ValueError(f"message {n + 1} is not a text of role {role}")
        message["content"].encode("utf-8")  # ValueError for half a character
    if (len(found) - first) % 2:
        raise ValueError("the last message has no answer")
    return found
