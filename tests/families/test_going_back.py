"""Models with states that cannot go back, or with experts: a turn that takes back what was said is a fresh session's, and transformers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_lm.generation.session import Session

#: Chunks of 32: of the prompt that is taken back, of what stands of it, and how many tokens follow. Within a chunk, over one border and
#: over two; to the border itself; so that one token alone is run.
TURNS = {
    "within": (30, 20, 5), "one border": (60, 40, 15), "two borders": (78, 66, 9), "back over both": (78, 20, 55),
    "to a border": (70, 64, 1),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["host", "reference"])
@pytest.mark.parametrize("name", ["qwen2_moe", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_a_turn_that_is_taken_back(name: str, backend: str, request: pytest.FixtureRequest) -> None:
    """Bit for bit what a session gives that never saw the other turn, within 1e-4 of transformers, and so is the step after it."""
    family: Any = request.getfixturevalue(name)
    model = family.load()
    session = Session(model.model(prefill_chunk=32), backend=backend)
    for turn, (first, stands, more) in TURNS.items():
        session.reset()
        taken_back = [*family.ids[:stands], *family.ids[first:stands:-1]]
        session.generate(taken_back, 2)
        fresh = Session(model.model(prefill_chunk=32), backend=backend)
        for n in (stands + more, stands + more + 1):
            got = session.logits(family.ids[:n]).copy()
            assert np.array_equal(got.view(np.uint32), fresh.logits(family.ids[:n]).view(np.uint32)), (turn, n)
            assert np.abs(got - family.logits[n - 1]).max() < 1e-4, (turn, n)
