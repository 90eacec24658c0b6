"""The encoder of texts: what it says of each token."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_embedding_gemma2 import names
from iron_embedding_gemma2.text import TextTower
from tests.embedding_gemma2.conftest import drawn

IDS = np.random.default_rng(1).integers(0, 256, 64).astype(np.int32)


@pytest.fixture(scope="module")
def tower(text_config: Any, run: Any) -> Any:
    tower = TextTower(text_config, run)
    weights = drawn(tower)
    tower.fill(weights)
    return tower, weights


def test_the_graph_is_its_twin(tower: Any, backend: str) -> None:
    """One compile takes texts of every length up to its own, each within 1e-4 of the numpy forward."""
    part, weights = tower
    graph = part.compile(ids=((64,), np.int32), backend=backend)
    for n in (1, 2, 3, 31, 63, 64, 5):
        assert np.abs(graph(IDS, rows=n) - part.twin(weights, IDS[:n])).max() < 1e-4, n


def test_a_layer_that_slides_sees_both_sides(text_config: Any, run: Any) -> None:
    """With the layers that slide alone, a token further away than all of their windows reach changes nothing; one in reach does."""
    config = attrs.evolve(text_config, num_layers=2, sliding=(True, True))
    part = TextTower(config, run)
    weights = drawn(part)
    want = part.twin(weights, IDS[:20])
    for place, same in ((5, True), (6, False), (14, False), (15, True)):
        other = IDS[:20].copy()
        other[place] = (other[place] + 1) % 256
        assert np.array_equal(part.twin(weights, other)[10], want[10]) == same, place


def test_it_says_what_transformers_says(golden: Any, run: Any, backend: str) -> None:
    """Every token's state of a text of 60, within 1e-4; and the vector is their mean."""
    ids = np.zeros(64, np.int32)
    ids[:60] = golden["ids"]
    for pooling, want in ((None, golden["states"]), ("mean", golden["states"].mean(0)[None])):
        config = attrs.evolve(golden.config, pooling=pooling)
        part = TextTower(config, run)
        golden.filled(part, names.text(config))
        assert np.abs(part.compile(ids=((64,), np.int32), backend=backend)(ids, rows=60) - want).max() < 1e-4
