"""Caches that slide hold what their layers see; every answer is that of whole caches, bit for bit."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_gemma3.model import Gemma3
from iron_lm import testing
from iron_lm.decoder_config import DecoderConfig
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.parts.cache import KVCache
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.parts.sliding_cache import SlidingKVCache
from iron_lm.parts.sliding_decoder import SlidingDecoder
from iron_lm.run import Run
from iron_mistral.model import Mistral

CONFIG = DecoderConfig(
    vocab_size=96, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48, max_positions=512,
    rotary=RotaryConfig(8, 10000.0), window=71, sliding=(True, False, True), tied=False,
)  # fmt: skip
IDS = np.random.default_rng(5).integers(0, 96, 512).tolist()


def loaded(window: int = 71, **run: Any) -> Any:
    made = testing.tiny(Mistral, attrs.evolve(CONFIG, window=window), max_seq_len=512, prefill_chunk=64)
    return attrs.evolve(made, run=attrs.evolve(made.run, **run))


def whole(made: Any) -> Decoder:
    """The same model, each layer with a cache of its own for every token."""
    model = made.model()
    for layer in model.layers:
        layer.mixer.cache = KVCache(model.run, CONFIG.num_kv_heads, CONFIG.head_dim)
    return Decoder(model.run, model.embedding, model.layers, model.norm, model.head)


def pair(backend: str, window: int = 71, **run: Any) -> tuple[Session, Session]:
    """Sessions of one model: with caches that slide, and with whole ones."""
    made = loaded(window, **run)
    return Session(made.model(), backend=backend), Session(whole(made), backend=backend)


def same(sessions: tuple[Session, Session], ids: list[int]) -> bool:
    one, other = (session.logits(ids).view(np.uint32) for session in sessions)
    return bool(np.array_equal(one, other))


@pytest.mark.parametrize(("window", "rows"), [(65, 128), (66, 192), (71, 192), (128, 192), (200, 320), (256, 320)])
def test_prompts_of_any_length(window: int, rows: int) -> None:
    """A window's whole chunks and one more are held; prompts inside, at and far past them give the same bits."""
    sessions = pair("host", window)
    assert sessions[0].model.layers[0].mixer.cache.keys.shape == (rows, 2, 8)
    for length in (1, 63, 64, 65, 71, 72, 128, 129, 192, 193, 300, 512, 200, 90):
        assert same(sessions, IDS[:length]), length


def test_prompts_on_the_reference() -> None:
    """numpy gives the same bits too."""
    sessions = pair("reference")
    for length in (1, 64, 130, 193, 330):
        assert same(sessions, IDS[:length]), length


@pytest.mark.parametrize("changes", [dict(dtype="bfloat16", cache_dtype="bfloat16"), dict(cache_dtype="float16"), dict(prefill_chunk=128)])
def test_prompts_in_other_dtypes_and_chunks(changes: dict[str, Any]) -> None:
    """What a cache stores, and how many rows a chunk has, make no difference."""
    sessions = pair("host", **changes)
    for length in (100, 260, 511):
        assert same(sessions, IDS[:length]), length


def test_token_by_token(backend: str) -> None:
    """A decode step a token, over the ends of chunks, from within the window until far past it."""
    sessions = pair(backend)
    for n in [*range(60, 70), *range(120, 135), *range(186, 200), *range(250, 262), *range(380, 390)]:
        assert same(sessions, IDS[:n]), n


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.5, seed=3), Sampler(repetition_penalty=1.3)])
def test_generated_text(sampler: Sampler, backend: str) -> None:
    """Answers that begin anywhere in a chunk and go over several ends of chunks, and what is asked after them."""
    sessions = pair(backend)
    for start, count in ((1, 200), (64, 64), (127, 66), (128, 1), (191, 130)) if backend == "host" else ((120, 80),):
        answers = [session.generate(IDS[:start], count, sampler) for session in sessions]
        assert len(answers[0]) == count and answers[0] == answers[1], start
        assert sessions[0].held == sessions[1].held
        assert same(sessions, [*IDS[:start], *answers[0], 1, 2, 3])


def test_an_answer_that_is_stopped() -> None:
    """By `on_token`, or a stop token, before, at and after the end of a chunk: what is held is right, and goes on right."""
    sessions = pair("host")
    for stop in (5, 11, 12, 13, 14, 76, 77, 78):
        said = []
        for session in sessions:
            told: list[int] = []

            def on_token(token: int, told: list[int] = told, stop: int = stop) -> bool:
                told.append(token)
                return len(told) == stop

            said.append(session.generate(IDS[:180], 200, on_token=on_token))
        assert len(said[0]) == stop and said[0] == said[1]
        assert sessions[0].held == sessions[1].held and len(sessions[0].held) == 180 + stop - 1
        assert same(sessions, [*IDS[:180], *said[0], 7])
    last = sessions[0].generate(IDS[:180], 40)[-1]
    assert sessions[0].generate(IDS[:180], 40, stop=(last,)) == sessions[1].generate(IDS[:180], 40, stop=(last,))


def test_going_back(backend: str) -> None:
    """Within the chunk, to one before, to before all that is held, and by prompts that share a long prefix."""
    sessions = pair(backend)
    for length, then in ((500, 490), (500, 449), (500, 448), (500, 447), (500, 300), (300, 100), (300, 3), (200, 64)):
        assert same(sessions, IDS[:length])
        assert same(sessions, [*IDS[:then], 95 - IDS[then], 4, 5]), (length, then)


def test_what_is_still_held_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that differs within the newest chunk runs that one alone; one that differs before it runs all its chunks."""
    session = Session(loaded().model(), backend="host")
    session.logits(IDS[:400])
    ran: list[int] = []
    call = type(session.compiled).__call__

    def counted(self: Any, *tensors: Any, **values: Any) -> Any:
        ran.append(values["chunk"])
        return call(self, *tensors, **values)

    monkeypatch.setattr(type(session.compiled), "__call__", counted)
    session.logits([*IDS[:390], 1])
    assert ran == [6]
    ran.clear()
    session.logits([*IDS[:380], 1])
    assert ran == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("at", range(1, 5))
def test_a_move_that_is_interrupted(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between any two of a move's writes: half moved caches hold nothing, and the next answer is right."""
    session, other = pair("host")
    session.logits(IDS[:255])
    write, writes = type(session.compiled).write, []

    def counted(self: Any, *given: Any) -> None:
        writes.append(given)
        if len(writes) == at:
            raise KeyboardInterrupt
        write(self, *given)

    monkeypatch.setattr(type(session.compiled), "write", counted)
    with pytest.raises(KeyboardInterrupt):
        session.generate(IDS[:255], 20)
    monkeypatch.undo()
    assert len(writes) == at
    assert same((session, other), [*session.held, 3])
    assert session.generate(IDS[:255], 20) == other.generate(IDS[:255], 20)


def test_a_model_on_two_backends_slides_on_each() -> None:
    """How far caches moved is each session's own."""
    made = loaded()
    model = made.model()
    host, reference = (Session(model, backend=name) for name in ("host", "reference"))
    want = Session(whole(made), backend="host")
    host.logits(IDS[:400])
    reference.logits(IDS[:70])
    for ids in (IDS[:401], IDS[:71]):
        assert np.abs(host.logits(ids) - reference.logits(ids)).max() < 1e-4
        assert np.array_equal(host.logits(ids), want.logits(ids))


def test_a_conversation_and_the_twin(backend: str) -> None:
    """Turns that reuse the caches equal a run from scratch, and logits are the twin's, past the window."""
    made = loaded()
    session = Session(made.model(), backend=backend)
    for first, answer in ((300, 20), (310, 20), (100, 100)):
        assert testing.check_chat_turn(session, IDS[:first], answer, IDS[first : first + 9]).passed
    assert np.abs(session.logits(IDS[:300]) - made.twin(IDS[:300])[-1]).max() < 1e-4


def test_memory_follows_the_window() -> None:
    """Layers that slide take 192 rows of 512; the layer that sees everything takes all."""
    model = loaded().model()
    row = 2 * 2 * 8 * 4
    assert [layer.mixer.cache.nbytes for layer in model.layers] == [192 * row, 512 * row, 192 * row]
    assert sum(cache.nbytes for cache in model.caches) == 896 * row


def test_the_published_gemma_and_mistral() -> None:
    """With a context of 32768 tokens their caches take less than a fifth of what whole ones would."""
    for family, rows, of in ((Gemma3, 15 * 576 + 3 * 32768, 18), (Mistral, 32 * 4160, 32)):
        config = family.full_size()
        model = family.build(config, Run(32768, 64))
        row = 2 * config.num_kv_heads * config.head_dim * 2
        assert sum(cache.nbytes for cache in model.caches) == rows * row < of * 32768 * row / 5


@pytest.mark.parametrize("run", [Run(512, 32), Run(192, 64), Run(512, 256)])
def test_where_no_cache_slides(run: Run) -> None:
    """Chunks that are not whole runs of keys, or a context that is no larger: every cache is whole."""
    model = Mistral.build(CONFIG, run)
    assert {type(cache) for cache in model.caches} == {KVCache}
    assert model.base(run.max_seq_len - 1) == 0 and model.where(5, 3) == {"position": 5, "place": 5, "first": 3}


def test_layers_of_other_reaches_and_shared_caches() -> None:
    """All that slide hold the farthest reach's window; a cache is shared as before, and stays whole where a layer sees everything."""
    model = Mistral.build(attrs.evolve(CONFIG, num_layers=5, sliding=(True, True, True, False, True)), Run(512, 64))
    mixers = [layer.mixer for layer in model.layers]
    whole_one, shared_one = KVCache(model.run, 2, 8), KVCache(model.run, 2, 8)
    for mixer, cache in zip(mixers, (whole_one, shared_one, shared_one, whole_one, KVCache(model.run, 2, 8)), strict=True):
        mixer.cache = cache
    mixers[4].config = attrs.evolve(mixers[4].config, reach=130)
    again = SlidingDecoder(model.run, model.embedding, model.layers, model.norm, model.head)
    assert again.window == 192 and mixers[0].cache is mixers[3].cache is whole_one
    assert mixers[1].cache is mixers[2].cache is not mixers[4].cache
    assert all(type(m.cache) is SlidingKVCache and m.cache.keys.shape[0] == 256 for m in (mixers[1], mixers[4]))


def test_a_model_without_windows_has_no_place() -> None:
    """Its graph takes the per-call values it always took, and its sessions move nothing."""
    assert [value.name for value in Decoder.parameters().values] == ["token", "position", "chunk", "rows"]
    assert Decoder.base(None, 400) == 0 and Decoder.where(None, 400) == {"position": 400}
