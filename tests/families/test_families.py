"""Every family equals transformers on stored weights, whichever file they come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.run import Run
from iron_lm.tasks.gates import check_chat_turn, check_determinism


@pytest.fixture(params=("reference", "host"))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_twin_equals_transformers(family: Any) -> None:
    """The numpy forward, written without the operators, is within 1e-4 at every position: in float64, for float32 sums in a BLAS's own
    order are at some of them further off than that in a model of recurrent states."""
    loaded = family.load()
    assert np.abs(loaded.twin(family.ids, dtype=np.float64) - family.logits).max() < 1e-4


def test_a_prompt_equals_transformers(family: Any, backend: str) -> None:
    """Prompts inside the window and past it, ending inside, at and after a chunk, are within 1e-4."""
    session = Session(family.model(prefill_chunk=32), backend=backend)
    for length in (1, 5, 6, 31, 32, 33, 80):
        assert np.abs(session.logits(family.ids[:length]) - family.logits[length - 1]).max() < 1e-4, length


def test_token_by_token_equals_transformers(family: Any, backend: str) -> None:
    """A decode step a token is within 1e-4 at every position, far past the window."""
    session = Session(family.model(), backend=backend)
    for n in range(1, 41):
        assert np.abs(session.logits(family.ids[:n]) - family.logits[n - 1]).max() < 1e-4, n


def test_every_chunk_size_gives_the_same_answer(family: Any) -> None:
    """On host a prompt's logits are equal bit for bit whatever the chunk, and token by token."""
    loaded = family.load()
    sessions = [Session(loaded.model(prefill_chunk=c), backend="host") for c in (1, 8, 64)]
    answers = [session.logits(family.ids[:50]).copy() for session in sessions]
    sessions[1].reset()
    for n in range(1, 51):
        stepped = sessions[1].logits(family.ids[:n])
    for other in (*answers[1:], stepped):
        np.testing.assert_array_equal(answers[0].view(np.uint32), other.view(np.uint32))


def test_runs_repeat_and_turns_reuse_bit_for_bit(family: Any, backend: str) -> None:
    """Alternating prompts give the same bits each round, and so does a turn that keeps what did not change."""
    session = Session(family.model(prefill_chunk=32), backend=backend)
    assert check_determinism(session, [family.ids[:20], family.ids[:45]], 2).passed
    assert check_chat_turn(session, family.ids[:40], 9, family.ids[40:60]).passed


NARROW: dict[str, Any] = {
    "bfloat16": lambda family: family.load(dtype="bfloat16"),
    "float16": lambda family: family.load(dtype="float16"),
    "a folder of float16": lambda family: family.load(family.write(np.float16), dtype=None),
    "a GGUF of BF16": lambda family: family.load(family.gguf("BF16"), dtype=None),
    "int8 in float16": lambda family: family.load(quantize="int8", dtype="float16"),
}


@pytest.mark.parametrize("narrow", NARROW)
def test_16_bits_stay_near_float32(family: Any, narrow: str) -> None:
    """Weights, activations and caches of 16 bits keep the logits within a tenth of their spread; vectors of another dtype than
    activations have are added all the same."""
    got = Session(NARROW[narrow](family).model(), backend="host").logits(family.ids[:40])
    assert np.abs(got - family.logits[39]).max() < (3 if "int8" in narrow else 1) * 0.15 * family.logits.std() * 3


def test_a_gguf_equals_transformers(family: Any, backend: str) -> None:
    """llama.cpp's names and metadata, norms stored whole, say the same model."""
    loaded = family.load(family.gguf())
    rotary = loaded.config.rotary
    assert family.name == "gpt2" if rotary is None else rotary.neighbours == (family.name == "mistral")
    assert loaded.config.tied == family.json.get("tie_word_embeddings", True)
    assert np.abs(Session(loaded.model(), backend=backend).logits(family.ids) - family.logits[-1]).max() < 1e-4


def test_a_gguf_says_what_config_json_says(family: Any) -> None:
    """But for its name, and for the order of pairs that turn and of value heads where the converter changes it, the config is equal."""
    configs = (family.load(path).config for path in (family.write(), family.gguf()))
    one, other = (attrs.evolve(c, name="", rotary=c.rotary and attrs.evolve(c.rotary, neighbours=False)) for c in configs)
    for field in attrs.fields(type(one)):
        if field.name == "tiled":
            assert (one.tiled, other.tiled) == (False, family.name != "qwen3_next")
            continue
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert a == pytest.approx(b) if isinstance(a, float) and b is not None else (a == b or not (a or b)), field.name


def test_block_weights_equal_the_oracle(family: Any) -> None:
    """With float32 activations and a Q8_0 file's own blocks, embedding and all, host is the oracle on the same blocks."""
    c = family.load().config
    rotaries = {name: getattr(c, name, None) for name in ("rotary", "local_rotary")}
    heads = {name: attrs.evolve(rotary, head_dim=32) for name, rotary in rotaries.items() if rotary is not None}
    experts = {name: 64 for name in ("expert_size", "shared_size") if getattr(c, name, None)}
    c = attrs.evolve(c, hidden_size=64, intermediate_size=96, head_dim=32, num_heads=4, **heads, **experts)
    drawn = loading.random(family.family, c, 3, dtype="float32")
    loaded = family.load(family.gguf("Q8_0", drawn), dtype=None, activations="exact")
    want = loaded.twin(family.ids[:30])[-1]
    got = Session(loaded.model(), backend="host").logits(family.ids[:30])
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()


def test_everything_the_file_says_matters(gemma3: Any) -> None:
    """Without its window, its local rotary base, the scaling, a scale, the cap or the gate the logits are others."""
    loaded = gemma3.load()
    assert loaded.config.sliding == (True, True, False) and loaded.config.window == 5
    for change in (
        dict(window=6),
        dict(sliding=(True, False, False)),
        dict(local_rotary=loaded.config.rotary),
        dict(rotary=attrs.evolve(loaded.config.rotary, scaling=None)),
        dict(score_scale=None),
        dict(logit_cap=None),
        dict(activation="silu"),
    ):
        other = attrs.evolve(loaded, config=attrs.evolve(loaded.config, **change)).twin(gemma3.ids[:30])[-1]
        assert np.abs(other - gemma3.logits[29]).max() > 1e-3, change


def test_what_lies_before_the_windows_is_forgotten(gemma3: Any) -> None:
    """Where every layer slides, a token out of reach of all of them changes no bit of the answer; one in reach does."""
    loaded = gemma3.load()
    all_slide = attrs.evolve(loaded, config=attrs.evolve(loaded.config, sliding=(True,) * 3))
    session = Session(all_slide.model(), backend="host")
    reach = 1 + 3 * (loaded.config.window - 1)
    ids = gemma3.ids[:60]
    want = session.logits(ids).copy()
    for back, same in ((reach, True), (reach - 1, False)):
        changed = [*ids]
        changed[len(ids) - 1 - back] = (ids[len(ids) - 1 - back] + 1) % 96
        session.reset()
        assert np.array_equal(session.logits(changed).view(np.uint32), want.view(np.uint32)) == same


@pytest.mark.parametrize("name", ["mistral", "gemma3", "phi3"])
def test_caches_that_slide_equal_transformers(name: str, backend: str, request: pytest.FixtureRequest) -> None:
    """With room for more, layers that slide hold two chunks of 64; prompts, steps and answers past them are as with whole caches."""
    family = request.getfixturevalue(name)
    model, whole = (family.load(max_seq_len=256).model(prefill_chunk=chunk) for chunk in (64, 32))
    assert [cache.keys.shape[0] for cache in model.caches[:2]] == [128, 128]
    assert {cache.keys.shape[0] for cache in whole.caches} == {256}
    one, other = (Session(graph, backend=backend) for graph in (model, whole))
    for length in (6, 64, 65, 80):
        assert np.abs(one.logits(family.ids[:length]) - family.logits[length - 1]).max() < 1e-4, length
    answers = [session.generate(family.ids[:60], 150) for session in (one, other)]
    assert answers[0] == answers[1] and check_chat_turn(one, family.ids[:60], 100, family.ids[:9]).passed
    a, b = (session.logits([*family.ids[:60], *answers[0], 5]) for session in (one, other))
    np.testing.assert_allclose(a, b, rtol=0, atol=0 if backend == "host" else 1e-5)


def test_a_second_start_traces_nothing(family: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class a version of these models consists of is read back from the cache."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    loaded = family.load()
    first = Session(loaded.model(), backend="reference", cache_key=loaded.cache_key)
    graph = loaded.model()
    graph.trace = lambda **_: pytest.fail("traced again")
    second = Session(graph, backend="reference", cache_key=loaded.cache_key)
    assert second.generate(family.ids[:3], 1) == first.generate(family.ids[:3], 1)


def test_the_full_size_is_the_published_models(family: Any) -> None:
    """As many numbers as Qwen2.5 0.5B, Qwen3 0.6B, Mistral 7B, Gemma 3 270M, OLMo 2 1B, Phi-3 mini, GPT-2,
    Qwen1.5-MoE-A2.7B and Qwen3-30B-A3B have; and transformers' own default of a Qwen3.5."""
    shapes = family.family.build(family.family.full_size(), Run(64)).tensors()
    count = {
        "qwen2": 494_032_768, "qwen3": 596_049_920, "mistral": 7_241_732_096, "gemma3": 268_098_176, "olmo2": 1_484_916_736,
        "phi3": 3_821_079_552, "gpt2": 124_439_808, **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_next"), 8_953_803_264),
        "qwen2_moe": 14_315_784_192, "qwen3_moe": 30_532_122_624,
    }[family.name]  # fmt: skip
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == count
