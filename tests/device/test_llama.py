"""Llamas on a device: logits and tokens beside the reference's, a turn that reuses the caches, the same again.

The small one has drawn weights. The full one is Llama 3.2 1B, from `IRON_EXAMPLE_WEIGHTS_DIR` or drawn (`--random-weights SEED`).
"""

from __future__ import annotations

import numpy as np
import pytest

from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.testing import check_chat_turn, check_determinism
from tests.device import weights
from tests.device.llama import passed, session, walk
from tests.lm.arrays.small_llama import loaded as small

pytestmark = pytest.mark.supported_devices("npu1", "npu2")
#: A chunk and a part of the next.
PROMPT = [int(i) for i in np.random.default_rng(4).integers(0, 512, 70)]
#: Tokens of the full Llama's context.
CONTEXT = 2048


def near(got: np.ndarray, want: np.ndarray) -> bool:
    return got.size > 0 and bool(np.linalg.norm(got - want) <= 0.03 * np.linalg.norm(want))


def test_logits_and_tokens_are_those_of_the_references(npu):
    """After two chunks, and after each of three tokens on what the caches hold; each token that is drawn is one that the reference
    finds as likely as its own, within what the logits may be apart."""
    found, reference = session(npu, small((4, 1))), Session(small((4, 1)).model(), backend="reference")
    for ids in (PROMPT, [*PROMPT, 7], [*PROMPT, 7, 500], [*PROMPT, 7, 500, 31]):
        assert near(found.logits(ids), reference.logits(ids))
    ids = list(PROMPT)
    answer = found.generate(PROMPT, 6)
    assert len(answer) == 6
    for token in answer:
        want = reference.logits(ids)
        assert want.max() - want[token] <= 0.03 * np.linalg.norm(want)
        ids.append(token)


def test_a_turn_reuses_the_caches(npu):
    """Bit for bit as from its start."""
    passed(check_chat_turn(session(npu, small((4, 1))), PROMPT[:66], 2, PROMPT[66:]))


def test_prompts_in_turn_are_the_same_again(npu):
    """Bit for bit, whatever ran in between: a stale word or a write that is not flushed shows."""
    passed(check_determinism(session(npu, small((4, 1))), [PROMPT[:5], PROMPT[:66]], 2))


def test_folds_change_no_bit(npu):
    plain, folded = (session(npu, small((4, 1)), fold=fold) for fold in (False, True))
    assert np.array_equal(plain.logits(PROMPT), folded.logits(PROMPT))
    assert plain.generate(PROMPT, 3) == folded.generate(PROMPT, 3)


# -- Llama 3.2 1B --------------------------------------------------------------------------------------


@pytest.mark.extensive
@pytest.mark.bench
def test_the_full_llama(npu, pytestconfig):
    """Within the gates of its float32 oracle, an answer the same twice and timed, a chat turn."""
    sizes = dict(dtype="bfloat16", max_seq_len=pytestconfig.getoption("--max-seq-len") or CONTEXT)
    seed = pytestconfig.getoption("--random-weights")
    drawn = seed is not None
    loaded = loading.random(Llama, Llama.full_size(), seed, **sizes) if drawn else loading.load(Llama, weights.llama(), **sizes)
    walk(npu, session(npu, loaded, table=pytestconfig.getoption("--cost-table")), loaded)
