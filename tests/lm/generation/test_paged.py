"""Sequences side by side: each one's logits are a session's for it alone, bit for bit, whatever runs with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_lm
from iron_core.errors import BoundsError, UsageError
from iron_gemma3.model import Gemma3, Gemma3Config
from iron_gpt2.model import GPT2
from iron_llama.model import Llama
from iron_lm import loading, testing
from iron_lm.decoder_config import DecoderConfig
from iron_lm.generation.paged import PagedModel, Span
from iron_lm.generation.pages import Pages
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_mistral.model import Mistral
from iron_qwen3.model import Qwen3
from iron_qwen3_5.model import Qwen35
from iron_qwen3_moe.model import Qwen3Moe
from tests.lm.generation.test_snapshots import CONFIG as RECURRENT

SIZES: dict[str, Any] = dict(
    name="tiny", vocab_size=40, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48,
    max_positions=512, rotary=RotaryConfig(8), norm_epsilon=1e-5,
)  # fmt: skip
FAMILIES: dict[str, tuple[Any, DecoderConfig]] = {
    "llama": (Llama, DecoderConfig(**SIZES)),
    "qwen3": (Qwen3, DecoderConfig(**SIZES, tied=True)),
    "mistral, sliding": (Mistral, DecoderConfig(**SIZES, window=40)),
    "gemma3, sliding": (
        Gemma3,
        Gemma3Config(**SIZES, activation="gelu_tanh", window=20, sliding=(True, False, True), local_rotary=RotaryConfig(8, 100.0)),
    ),
    "gpt2, learned positions": (GPT2, DecoderConfig(**SIZES | dict(rotary=None, num_kv_heads=4, activation="gelu_tanh", tied=True))),
    "qwen3 of experts": (Qwen3Moe, MixtureConfig(**SIZES, num_experts=4, chosen=2, expert_size=16, renormalise=True)),
}


def loaded_of(name: str, **run: Any) -> Loaded:
    """Chunks of 64, in a context of 256: windows of less slide."""
    made = testing.tiny(*FAMILIES[name], max_seq_len=256, prefill_chunk=64)
    return attrs.evolve(made, run=attrs.evolve(made.run, **run))


class Beside:
    """Sequences over one pool, and a session that says what each one's logits are alone."""

    def __init__(self, model: Any, *, pages: int = 24, sequences: int = 8, order: int | None = None, alone: Session | None = None) -> None:
        self.model = PagedModel(model, pages=pages, sequences=sequences, backend="host")
        self.alone = Session(model, backend="host") if alone is None else alone
        self.numbers = np.arange(pages) if order is None else np.random.default_rng(order).permutation(pages)
        self.pages = Pages(pages)

    def _page(self, pages: list[int]) -> list[int]:
        return [int(self.numbers[page]) for page in pages]

    def spans(self, asked: list[tuple[Any, list[int]]]) -> list[Span]:
        """Tokens behind those of tables; pages that are shared are copied before they are written."""
        made = []
        for table, ids in asked:
            first = table.length
            for token in ids:
                _, copied = self.pages.append(table, token)
                if copied:
                    source, target = self._page(list(copied))
                    self.model.copy([(source, target)])
            made.append(Span(ids, first, self._page(table.pages)))
        return made

    def check(self, asked: list[tuple[Any, list[int]]]) -> None:
        """One pass: every span's logits are the session's."""
        got = self.model.read(self.spans(asked))
        assert got.shape == (len(asked), self.model.vocab_size) and got.dtype == np.float32
        for (table, _), logits in zip(asked, got, strict=True):
            self.pages.written(table)
            self.alone.reset()
            want = self.alone.logits(table.tokens)
            assert np.array_equal(logits.view(np.uint32), want.view(np.uint32)), (table.length, np.abs(logits - want).max())


def drawn(count: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, 40, count)]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("name", FAMILIES)
def test_each_is_read_as_if_it_were_alone(name: str, count: int) -> None:
    """Of other lengths, by prompts and then steps of a token each; pages in any order."""
    beside = Beside(loaded_of(name).model(), pages=32, order=count)
    tables = [beside.pages.open([]) for _ in range(count)]
    for n, table in enumerate(tables):
        for part in (drawn(9 * n + 1, n), drawn(7 * n + 11, n + 9)):
            beside.check([(table, part)])
    for step in range(4):
        beside.check([(table, drawn(1, step + n)) for n, table in enumerate(tables)])


@pytest.mark.parametrize("name", ["llama", "gemma3, sliding"])
@pytest.mark.parametrize("cut", [1, 7, 33, 64])
def test_a_prompt_in_chunks_of_any_cut(name: str, cut: int) -> None:
    """And other sequences' steps in the same passes."""
    beside = Beside(loaded_of(name).model())
    prompt, steps = drawn(130), [beside.pages.open([]) for _ in range(3)]
    for n, table in enumerate(steps):
        beside.check([(table, drawn(n + 2, n))])
    table = beside.pages.open([])
    for start in range(0, len(prompt), cut):
        part = prompt[start : min(start + cut, start + beside.model.rows - 3)]
        asked = [(other, drawn(1, start)) for other in steps if other.length < 100]
        beside.check([*asked, (table, part)])


def test_pages_that_are_shared() -> None:
    """A common prefix is stored once, a fork's last page is copied by whoever writes first, and neither sees what the other reads."""
    beside = Beside(loaded_of("llama").model(), order=3)
    first = beside.pages.open([])
    for part in (drawn(60), drawn(40, 1), drawn(31, 2)):
        beside.check([(first, part)])
    other = beside.pages.open([*first.tokens[:128], 5, 6, 7])
    assert other.pages == first.pages[:2]
    fork = beside.pages.fork(first)
    assert fork.pages == first.pages
    beside.check([(fork, [1]), (other, [5, 6, 7]), (first, [2])])
    assert fork.pages[:2] == first.pages[:2] and fork.pages[2] != first.pages[2]
    beside.check([(first, [3]), (fork, [3]), (other, [3])])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_interleaving(data: st.DataObject) -> None:
    """Of opening, reading some tokens, forking and closing, several in a pass."""
    name = data.draw(st.sampled_from(["llama", "gemma3, sliding", "gpt2, learned positions"]))
    if name not in KEPT:
        model = loaded_of(name).model()
        KEPT[name] = Beside(model, order=1)
    beside = KEPT[name]
    beside.pages = Pages(24)
    tables: list[Any] = []
    for _ in range(data.draw(st.integers(1, 6))):
        if len(tables) < 4:
            tables.append(beside.pages.open([]))
        if len(tables) < 5 and data.draw(st.booleans()):
            tables.append(beside.pages.fork(data.draw(st.sampled_from(tables))))
        room, asked = beside.model.rows, []
        for table in data.draw(st.permutations(tables)):
            count = data.draw(st.integers(0 if asked else 1, min(room, 256 - table.length, 40)))
            if count:
                asked.append((table, drawn(count, data.draw(st.integers(0, 3)))))
                room -= count
            if room < 1:
                break
        beside.check(asked)
        if data.draw(st.booleans()):
            beside.pages.close(tables.pop(data.draw(st.integers(0, len(tables) - 1))))


KEPT: dict[str, Beside] = {}


def test_what_a_pass_does_not_use_is_not_seen() -> None:
    """Every other place of the pool, and every row behind those of a pass, may hold what is no number."""
    model = loaded_of("llama").model()
    beside = Beside(model)
    one, other = beside.pages.open([]), beside.pages.open([])
    beside.check([(one, drawn(50)), (other, drawn(3))])
    for cache in beside.model.compiled.graph.decoder.caches:
        for pool in (cache.keys, cache.values):
            held = beside.model.compiled.read(pool)
            for table, (full, rest) in ((one, (0, 50)), (other, (0, 3))):
                held[table.pages[full], rest:] = np.nan
            held[[page for page in range(24) if page not in (*one.pages, *other.pages)]] = np.nan
            beside.model.compiled.write(pool, held)
    wanted = beside.model.compiled.graph.wanted
    beside.model.compiled.write(wanted, np.full(wanted.shape, np.nan, np.float32))
    beside.check([(one, [3]), (other, drawn(20))])
    beside.check([(one, [4]), (other, [5])])
    beside.check([(other, [6])])


def test_what_is_no_number_stays_with_its_sequence() -> None:
    """One sequence's keys are spoiled; the others' logits are as before."""
    beside = Beside(loaded_of("llama").model())
    one, other = beside.pages.open([]), beside.pages.open([])
    beside.check([(one, drawn(10)), (other, drawn(13))])
    cache = beside.model.compiled.graph.decoder.caches[0]
    held = beside.model.compiled.read(cache.keys)
    held[one.pages[0]] = np.nan
    beside.model.compiled.write(cache.keys, held)
    spoiled, sound = beside.model.read(beside.spans([(one, [1]), (other, [2])]))
    assert np.isnan(spoiled).all()
    assert np.array_equal(sound, beside.alone.logits(other.tokens))


@pytest.mark.parametrize("run", [dict(dtype="bfloat16", cache_dtype="bfloat16"), dict(cache_dtype="float16")], ids=str)
def test_of_any_dtype(run: dict[str, str]) -> None:
    """Activations and caches in fewer bits."""
    beside = Beside(loaded_of("llama", **run).model())
    tables = [beside.pages.open([]) for _ in range(3)]
    beside.check([(table, drawn(12 * n + 3, n)) for n, table in enumerate(tables)])
    beside.check([(table, drawn(1, n)) for n, table in enumerate(tables)])


@pytest.mark.parametrize("activations", ["int8_block", "exact"])
@pytest.mark.parametrize("dtype", ["q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k"])
def test_of_blocks(dtype: str, activations: str) -> None:
    """Rows of any company meet weights in blocks with one row's bits, in either arithmetic."""
    wide = dict(hidden_size=256, intermediate_size=512, num_layers=1, num_heads=8, head_dim=32, rotary=RotaryConfig(32))
    loaded = loading.random(Llama, DecoderConfig(**SIZES | wide), 0, dtype=dtype, max_seq_len=128)
    beside = Beside(loaded.model(activations=activations))
    tables = [beside.pages.open([]) for _ in range(8)]
    for count in (1, 2, 3, 5, 8):
        beside.check([(table, drawn(1, count + n)) for n, table in enumerate(tables[:count])])
    beside.check([(table, drawn(n + 1, n)) for n, table in enumerate(tables)])


def test_a_model_with_states_that_cannot_go_back_is_refused_by_name() -> None:
    """Pages hold keys and values alone."""
    with pytest.raises(UsageError, match=r"GatedDelta keeps of its tokens what pages do not hold.*Legal: a Session"):
        PagedModel(testing.tiny(Qwen35, RECURRENT, max_seq_len=208).model(), pages=4, sequences=2, backend="host")


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([], "0 spans of 0 tokens"),
        ([Span([1], 0, [0])] * 3, "3 spans of 3 tokens"),
        ([Span([1] * 65, 0, [0, 1])], "1 spans of 65 tokens"),
        ([Span([], 0, [0])], "span 0 has tokens 0 to -1"),
        ([Span([1], 256, [0] * 5)], "span 0 has tokens 256 to 256"),
        ([Span([1], 64, [0])], "span 0 ends at 64 and has 1 pages"),
        ([Span([1], 0, [4])], "page 4; legal: 0 to 3"),
        ([Span([40], 0, [0])], "token 40 is outside the vocabulary"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_cannot_be_read_is_refused(spans: list[Span], said: str) -> None:
    """By what it is, before anything is written."""
    if "refusing" not in KEPT:
        KEPT["refusing"] = Beside(loaded_of("llama").model(), pages=4, sequences=2)
    with pytest.raises(BoundsError, match=said):
        KEPT["refusing"].model.read(spans)


@pytest.mark.parametrize("given", [dict(pages=0, sequences=1), dict(pages=1, sequences=0)], ids=str)
def test_there_is_a_page_and_a_sequence(given: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="=0; legal: 1 or more"):
        PagedModel(loaded_of("llama").model(), **given)


def test_a_real_model(smollm2: Path) -> None:
    """SmolLM2 in Q4_1, four sequences: prompts and steps, the bits of its session."""
    model = iron_lm.load(str(smollm2), max_seq_len=256, backend="host")
    beside = Beside(model.loaded.model(), pages=8, sequences=4, alone=model.session)
    tables = [beside.pages.open([]) for _ in range(4)]
    beside.check([(table, drawn(11 * n + 1, n)) for n, table in enumerate(tables[:3])])
    beside.check([(tables[3], drawn(40)), *((table, [n + 1]) for n, table in enumerate(tables[:3]))])
    beside.check([(table, [n + 7]) for n, table in enumerate(tables)])
