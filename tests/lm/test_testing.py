"""`iron_lm.testing`: what a family's or a part's own tests are made of; a wrong model does not pass."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_gemma3.model import Gemma3, Gemma3Config
from iron_llama.model import Llama
from iron_lm import testing
from iron_lm.decoder_config import DecoderConfig
from iron_lm.generation.session import Session
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from iron_qwen3.model import Qwen3

SIZES: dict[str, Any] = dict(
    vocab_size=60, hidden_size=24, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=40, max_positions=512,
    rotary=RotaryConfig(16),
)  # fmt: skip
WINDOWS: dict[str, Any] = dict(sliding=(True, False, True), window=6, local_rotary=RotaryConfig(16, 100.0))
MODELS: list[Any] = [
    (Llama, DecoderConfig(**SIZES)),
    (Qwen3, DecoderConfig(**SIZES | dict(tied=False))),
    (Gemma3, Gemma3Config(**SIZES, **WINDOWS)),
]


@pytest.mark.parametrize("backend", ["reference", "host"])
@pytest.mark.parametrize(("family", "config"), MODELS, ids=lambda given: getattr(given, "name", None) or "config")
def test_a_tiny_model_of_a_family_passes(family: Any, config: DecoderConfig, backend: str) -> None:
    """Accuracy against its twin, determinism and a chat turn, each of something."""
    loaded = testing.tiny(family, config, max_seq_len=32, prefill_chunk=8)
    reports = testing.check_model(loaded, backend=backend)
    assert len(reports) == 3 and all(report.compared for report in reports)
    for report in reports:
        assert report.passed, report.lines()


def test_one_whose_graph_is_not_its_twin_does_not() -> None:
    """Another scale of the scores, in the graph alone, is seen by the accuracy check; the others compare it with itself."""
    loaded = testing.tiny(Llama, DecoderConfig(**SIZES), max_seq_len=32, prefill_chunk=8)
    other = attrs.evolve(loaded, config=attrs.evolve(loaded.config, score_scale=1.0))
    session = Session(loaded.model(), backend="host")
    assert not testing.check_accuracy(session, other.twin, list(range(20))).passed


def test_its_weights_are_drawn_by_the_seed() -> None:
    """The same again, others for another seed; vectors near one, no two numbers of a tensor alike."""
    part = Llama.build(DecoderConfig(**SIZES), Run(32, 8))
    first, again, other = (testing.drawn(part, seed) for seed in (0, 0, 1))
    for path, shape in part.tensors().items():
        assert first[path].shape == shape and first[path].dtype == np.float32 and np.unique(first[path]).size == first[path].size
        assert (first[path] == again[path]).all() and (first[path] != other[path]).any()
    assert abs(first["norm.weight"].mean() - 1) < 0.2


class Doubled(GatedMLP):
    """With a twin that gives twice as much."""

    def twin(self, weights: Any, x: Any) -> np.ndarray:
        return 2 * super().twin(weights, x)


class Short(GatedMLP):
    """With a twin that gives a row less."""

    def twin(self, weights: Any, x: Any) -> np.ndarray:
        return super().twin(weights, x)[1:]


def test_a_part_that_is_not_its_twin_does_not_pass() -> None:
    """Nor does one of which nothing was compared, or whose twin has another shape."""
    run, x = Run(24, 8, dtype="float32", cache_dtype="float32"), np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    kinds = {kind: kind(GatedMLPConfig(6, 9), run) for kind in (GatedMLP, Doubled, Short)}
    assert {kind: testing.check_part(part, run, x, backend="host").passed for kind, part in kinds.items()} == {
        GatedMLP: True, Doubled: False, Short: False,
    }  # fmt: skip


def test_a_part_alone_gives_a_row_for_each_of_its_inputs() -> None:
    """However they are cut into chunks and steps."""
    run = Run(24, 8, dtype="float32", cache_dtype="float32")
    part = GatedMLP(GatedMLPConfig(6, 9), run)
    part.fill(testing.drawn(part))
    x = np.random.default_rng(0).standard_normal((11, 6)).astype(np.float32)
    found = [testing.alone(part, run, x, prompt, backend="reference") for prompt in (0, 3, 8, 11)]
    assert all(one.shape == (11, 6) and np.abs(one - found[0]).max() < 1e-5 for one in found)
