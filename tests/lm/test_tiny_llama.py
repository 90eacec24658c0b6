"""A decoder graph equals transformers on stored weights, on every backend that runs here, however it is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.errors import BoundsError, CheckpointError, UsageError
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.tasks.gates import check_chat_turn, check_determinism

BACKENDS = ("reference", "host")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_twin_equals_transformers(tiny: Any) -> None:
    """The float32 numpy forward, written without the operators, is within 1e-4 at every position."""
    assert np.abs(tiny.loaded().twin(tiny.ids) - tiny.logits).max() < 1e-4


@pytest.mark.parametrize("length", (1, 31, 32, 33, 96))
def test_a_prompt_equals_transformers(tiny: Any, backend: str, length: int) -> None:
    """Prompts that end inside, at and after a chunk are within 1e-4."""
    session = Session(tiny.model(), backend=backend)
    assert np.abs(session.logits(tiny.ids[:length]) - tiny.logits[length - 1]).max() < 1e-4


def test_token_by_token_equals_transformers(tiny: Any, backend: str) -> None:
    """A decode step a token is within 1e-4 at every position."""
    session = Session(tiny.model(), backend=backend)
    for n in range(1, 41):
        assert np.abs(session.logits(tiny.ids[:n]) - tiny.logits[n - 1]).max() < 1e-4


def test_bfloat16_stays_near_float32(tiny: Any, backend: str) -> None:
    """Weights, activations and caches in bfloat16 keep the logits within a tenth of their spread."""
    import ml_dtypes

    loaded = tiny.loaded(dtype="bfloat16", cache_dtype="bfloat16")
    model = loaded.build()
    model.fill({path: array.astype(ml_dtypes.bfloat16) for path, array in loaded.weights.items()})
    got = Session(model, backend=backend).logits(tiny.ids[:40])
    assert np.abs(got - tiny.logits[39]).max() < 0.1 * tiny.logits.std()


def test_every_chunk_size_gives_the_same_answer(tiny: Any) -> None:
    """On host a prompt's logits are equal bit for bit whatever the chunk."""
    answers = [Session(tiny.model(prefill_chunk=c), backend="host").logits(tiny.ids[:50]).copy() for c in (1, 8, 64)]
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0].view(np.uint32), other.view(np.uint32))


def test_runs_repeat_bit_for_bit(tiny: Any, backend: str) -> None:
    """Alternating prompts, from empty caches, give the same bits each round."""
    report = check_determinism(Session(tiny.model(), backend=backend), [tiny.ids[:20], tiny.ids[:45]], 3)
    assert report.passed and report.compared == 4


@pytest.mark.parametrize("answer", (9, 50), ids=("within a chunk", "over two chunks"))
def test_a_chat_turn_equals_a_run_from_scratch(tiny: Any, backend: str, answer: int) -> None:
    """Reusing what did not change changes no bit, rows that a prompt wrote or rows that decode steps wrote."""
    assert check_chat_turn(Session(tiny.model(), backend=backend), tiny.ids[:40], answer, tiny.ids[40:60]).passed


def test_generation_is_greedy_unless_asked(tiny: Any, backend: str) -> None:
    """Each greedy token is the largest logit of the one before, found again by feeding them back."""
    session = Session(tiny.model(), backend=backend)
    said = session.generate(tiny.ids[:10], 12)
    session.reset()
    for n, token in enumerate(said):
        assert int(session.logits([*tiny.ids[:10], *said[:n]]).argmax()) == token


def test_draws_follow_the_seed(tiny: Any) -> None:
    """The same seed draws the same tokens on both backends; another seed others."""
    draws = {}
    for seed in (1, 2):
        for backend in BACKENDS:
            session = Session(tiny.model(), backend=backend)
            draws[seed, backend] = session.generate(tiny.ids[:10], 20, Sampler(temperature=1.5, top_k=40, seed=seed))
    assert draws[1, "host"] == draws[1, "reference"]
    assert draws[1, "host"] != draws[2, "host"]


def test_a_stop_token_ends_the_answer_and_the_history(tiny: Any, backend: str) -> None:
    """The stop is not returned, what follows is not run, and the next turn starts from what was said."""
    session = Session(tiny.model(), backend=backend)
    said = session.generate(tiny.ids[:10], 12)
    stop = said[5]
    first = said.index(stop)
    session.reset()
    assert session.generate(tiny.ids[:10], 12, stop=(stop,)) == said[:first]
    assert session.held == [*tiny.ids[:10], *said[:first]][: len(session.held)]


def test_nothing_but_the_caches_follows_the_context(tiny: Any) -> None:
    """A context 16 times as long changes no activation's shape."""

    def shapes(length: int) -> list[tuple[int, ...]]:
        return [b.shape for b in tiny.model(max_seq_len=length).trace(ids=((32,), np.int32)).intermediates]

    assert shapes(128) == shapes(2048)


def test_bad_prompts_are_refused(tiny: Any) -> None:
    """Too long, empty, outside the vocabulary: each one clear error, and the session still works."""
    session = Session(tiny.model(), backend="host")
    with pytest.raises(UsageError, match="max_seq_len=128"):
        session.logits([1] * 129)
    with pytest.raises(UsageError, match="0 tokens"):
        session.logits([])
    with pytest.raises(BoundsError, match="token 256"):
        session.logits([1, 256])
    with pytest.raises(UsageError, match="num_tokens"):
        session.generate(tiny.ids[:20], 120)
    assert np.abs(session.logits(tiny.ids[:5]) - tiny.logits[4]).max() < 1e-4


def test_every_fault_of_a_checkpoint_is_listed_at_once(tiny: Any) -> None:
    """Missing, unknown and misshapen tensors come in one error."""
    config = tiny.config(intermediate_size=96, tied=True)
    with pytest.raises(CheckpointError) as caught:
        tiny.loaded(config)
    text = str(caught.value)
    assert "not [96, 64]" in text and "\n" not in text
