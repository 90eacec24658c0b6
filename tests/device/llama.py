"""A Llama on a device: its session, and all that the full one is walked through."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from iron_core.devices import device
from iron_core.plugins.registry import registry
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded
from iron_lm.testing import Report, check_accuracy, check_chat_turn, check_determinism
from iron_lm.tunables import profile_of
from tests.device.target import Target

#: Tokens of a prompt, of its answer, and those whose logits are compared, where the context has room for all.
PROMPT, ANSWER, COMPARED = 512, 32, 64


def session(npu: Target, loaded: Loaded, *, table: Path | None = None, **options: Any) -> Session:
    """A model on the device, with its family's profile; settings, folds and packs by a cost table where one is given."""
    decided = {} if table is None else {"coresident": registry().load("tuners", "narrowing").load(table)}
    with profile_of(loaded.family, device(npu.dev)):
        return npu.take(Session(loaded.model(), **npu.options, **decided, **options))


def passed(report: Report) -> None:
    assert report.passed, "\n".join(report.lines())


def walk(npu: Target, found: Session, loaded: Loaded) -> None:
    """An answer twice, timed; accuracy against the float32 oracle; prompts in turn; a chat turn. AssertionError for what fails."""
    room = loaded.run.max_seq_len - ANSWER
    drawn = np.random.default_rng(5).integers(0, loaded.config.vocab_size, min(PROMPT, room))
    prompt = [int(i) for i in drawn]
    half = len(prompt) // 2
    found.load()
    answers, seconds = [], [0.0]
    for _ in range(2):
        found.reset()
        seconds = [perf_counter()]
        answers.append(found.generate(prompt, ANSWER, on_token=lambda _: seconds.append(perf_counter())))
    assert answers[0] == answers[1] and len(answers[0]) == ANSWER
    case = f"{loaded.config.name}, {len(prompt)} tokens before"
    npu.figure("Llama", case, "first token s", seconds[1] - seconds[0])
    npu.figure("Llama", case, "s/token", (seconds[-1] - seconds[1]) / (ANSWER - 1))
    passed(check_accuracy(found, loaded.twin, prompt[:COMPARED]))
    passed(check_determinism(found, [prompt[:9], prompt[:half]], 2))
    passed(check_chat_turn(found, prompt[: 2 * half - 4], 2, prompt[-2:]))
