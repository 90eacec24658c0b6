"""Several tokens read in one step, at any place: each one's logits are those of a step of its own, for every family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_lm.generation.session import Session

RECURRENT = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
#: How many tokens are held, and how many are read behind them: within a chunk of 32, up to its end, over it, and at the caches' end.
READS = ((1, 1), (5, 4), (17, 15), (30, 16), (40, 2), (64, 3), (70, 9))


@pytest.mark.parametrize("backend", ["host", "reference"])
def test_logits_of_drafted_tokens(family: Any, backend: str) -> None:
    """Bit for bit on the host those of single steps, on the reference within 1e-4; what is held is theirs too."""
    if family.name in RECURRENT:
        pytest.skip("its states cannot go back")
    model = family.load(max_seq_len=96)
    drafting, stepping = (Session(model.model(prefill_chunk=32), backend=backend) for _ in range(2))
    drafts, ids = drafting.drafting(), [*family.ids, *family.ids][:96]
    for held, count in READS:
        stepping.logits(ids[:held])
        want = np.stack([stepping.logits(ids[: held + n + 1]).copy() for n in range(count)])
        drafting.logits([*ids[:held], *ids[:-20:-1]])  # what was guessed wrong, and is overwritten
        drafting.logits(ids[:held])
        got, carried = drafts.step(ids[: held + count], count)
        assert got.shape == want.shape and carried.position == held + count
        assert carried.token == want[-1].argmax()
        if backend == "host":
            assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), (held, count)
        else:
            assert np.abs(got - want).max() < 1e-4, (held, count)
        assert np.array_equal(drafting.logits(ids[: held + count + 1]), stepping.logits(ids[: held + count + 1])) or backend != "host"


def test_states_that_cannot_go_back_are_refused(family: Any) -> None:
    """Of recurrent models alone, by one line."""
    session = Session(family.load().model(), backend="host")
    if family.name not in RECURRENT:
        assert session.drafting().most == 16
        return
    with pytest.raises(UsageError, match="recurrent states cannot go back"):
        session.drafting()
