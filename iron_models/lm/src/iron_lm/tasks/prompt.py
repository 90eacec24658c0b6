"""The prompt of a command line: `--prompt`, `--prompt-len`, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.errors import UsageError
from iron_lm.loading import Loaded

#: Bytes of standard input, or of a file of prompts, that are read.
MOST_BYTES = 64 << 20
#: Tokens of a prompt that is made where nobody says how many.
MADE = 5
#: What gives a prompt.
LEGAL = "--prompt TEXT, or a text on standard input, as in `iron-run PATH < prompt.txt`"


def at_terminal() -> bool:
    """Is there somebody to type, and to read what is answered?"""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def prompt_of(options: Mapping[str, Any], loaded: Loaded) -> str | None:
    """The text of `--prompt`, else of standard input, where that is no terminal. None for a prompt that is made up: of so many
    tokens, or of ids where no tokenizer reads a text.

    UsageError where there is no text, or none that can be read.
    """
    text: str | None = options["prompt"]
    if text is not None or options["prompt_len"] is not None or loaded.tokenizer is None:
        return text
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"no prompt; give {LEGAL}.")
    text = standard_input()
    if not text.strip():
        raise UsageError(f"no prompt: standard input is empty; give {LEGAL}.")
    return text


def standard_input() -> str:
    """All of it, but for the line end that editors put at a file's end. UsageError for what is no text, or is too long."""
    stream = getattr(sys.stdin, "buffer", None)
    try:
        if stream is None:  # somebody put another object in its place
            return sys.stdin.read().removesuffix("\n")
        raw = stream.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise UsageError(f"standard input: more than {MOST_BYTES} bytes.")
        text = raw.decode(sys.stdin.encoding or "utf-8")
    except UnicodeError:
        raise UsageError(f"standard input: no {(sys.stdin.encoding or 'utf-8').upper()}.") from None
    except OSError as error:
        raise UsageError(f"standard input: {error.strerror or error}.") from None
    return text.removesuffix("\n").removesuffix("\r")


def prompt_ids(options: Mapping[str, Any], loaded: Loaded, answer: int = 0) -> list[int]:
    """The ids of `options["prompt"]`, cut to --prompt-len tokens; where that is None, of a text of so many. UsageError if the caches
    have no room for them and an answer of so many tokens."""
    text, length, tokenizer = options["prompt"], options["prompt_len"], loaded.tokenizer
    if length is not None:
        _room(loaded.context, length, answer)  # before a prompt of that length is made
    if tokenizer is None:
        if text is not None:
            raise UsageError("--prompt needs a tokenizer; give --tokenizer FILE, or --prompt-len N for random tokens.")
        rng = np.random.default_rng(options["seed"])
        ids = [int(i) for i in rng.integers(0, loaded.config.vocab_size, length or MADE)]
    elif text is not None:
        ids = tokenizer.encode(text)
        if text == "":
            raise UsageError("--prompt is empty; give some text.")
        if length is not None and length > len(ids):
            raise UsageError(f"--prompt-len {length} is longer than the prompt, {len(ids)} tokens; leave one of them out.")
        ids = ids[:length]
    else:
        from iron_lm.tasks import gates  # here: it has a text

        made = tokenizer.encode(gates.passage())
        length = MADE if length is None else length
        ids = (made * (length // len(made) + 1))[:length]
    _room(loaded.context, len(ids), answer)
    return ids


def _room(context: int, prompt: int, answer: int) -> None:
    """UsageError unless the caches hold a prompt of this many tokens and what is asked after it."""
    if prompt + answer <= context:
        return
    legal = [f"a prompt of up to {context - answer} tokens"] if context > answer else []
    legal += [f"--num-tokens up to {context - prompt}"] if context > prompt else []
    raise UsageError(
        f"--max-seq-len {context} has no room for a prompt of {prompt} tokens{f' and --num-tokens {answer}' if answer else ''}. "
        f"Legal: {', or '.join([*legal, 'a larger --max-seq-len'])}."
    )


def shown(options: Mapping[str, Any], loaded: Loaded, text: str) -> str:
    """The prompt, whose ids spell `text`, as it is printed before the answer; nothing for one this program made up."""
    if loaded.tokenizer is None or options["prompt"] is None:
        return ""
    prompt: str = options["prompt"]
    return prompt if options["prompt_len"] is None else text
