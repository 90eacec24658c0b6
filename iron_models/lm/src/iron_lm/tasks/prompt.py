"""The prompt of a command line: `--prompt`, `--prompt-len`, or the usual one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.errors import UsageError
from iron_lm.loading import Loaded

DEFAULT_PROMPT = "The capital of France is"


def prompt_ids(options: Mapping[str, Any], loaded: Loaded, answer: int = 0) -> list[int]:
    """The prompt's ids: the text's, cut or made to --prompt-len tokens. UsageError if the caches have no room for them and an
    answer of so many tokens."""
    text, length, tokenizer = options["prompt"], options["prompt_len"], loaded.tokenizer
    if length is not None:
        _room(loaded.context, length, answer)  # before a prompt of that length is made
    if tokenizer is None:
        if text is not None:
            raise UsageError("--prompt needs a tokenizer; give --tokenizer FILE, or --prompt-len N for random tokens.")
        rng = np.random.default_rng(options["seed"])
        ids = [int(i) for i in rng.integers(0, loaded.config.vocab_size, length or 5)]
    elif text is not None or length is None:
        ids = tokenizer.encode(DEFAULT_PROMPT if text is None else text)
        if text == "":
            raise UsageError("--prompt is empty; give some text.")
        if length is not None and length > len(ids):
            raise UsageError(f"--prompt-len {length} is longer than the prompt, {len(ids)} tokens; leave one of them out.")
        ids = ids[:length]
    else:
        from iron_lm.tasks import gates  # here: it has a text

        made = tokenizer.encode(gates.passage())
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
    if loaded.tokenizer is None or (options["prompt"] is None and options["prompt_len"] is not None):
        return ""
    return (options["prompt"] or DEFAULT_PROMPT) if options["prompt_len"] is None else text
