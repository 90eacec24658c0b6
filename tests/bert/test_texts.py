"""Texts that share a call: each vector is the same in any company, and what the model's twin gives."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from iron_bert.model import BERT
from iron_lm import loading
from iron_lm.encoding import TEXTS, EncoderModel, room_of
from iron_lm.parts.texts import laid_out

TINY = attrs.evolve(
    BERT.full_size(),
    vocab_size=90,
    hidden_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=4,
    head_dim=12,
    intermediate_size=56,
    max_positions=70,
)


@pytest.mark.parametrize("pooling, longest", [("mean", 70), ("cls", 70), ("last", 40)])
def test_a_vector_is_the_same_in_any_company(pooling: str, longest: int) -> None:
    """Bit for bit, of texts of one id up to the longest, which may be less than there are places for, more of them than share a call,
    and near the twin."""
    loaded = loading.random(BERT, TINY, 5, dtype="float32", max_seq_len=longest)
    model = EncoderModel(loaded, pooling, backend="host")
    rng = np.random.default_rng(3)
    lengths = [1, loaded.context, 2, 33, loaded.context - 1, 5, *([7] * (TEXTS + 1))]
    texts = [rng.integers(1, TINY.vocab_size, n).tolist() for n in lengths]
    together = model.vectors(texts)
    assert len(list(model._groups(texts))) >= 2 and sum(lengths[:4]) <= room_of(loaded)
    for ids, vector in zip(texts[:8], together, strict=False):
        assert np.array_equal(model.vectors([ids])[0], vector)
        twin = model.loaded.build().twin(loaded.exact, ids)[0]
        assert np.abs(vector - twin / np.linalg.norm(twin)).max() < 1e-5


def test_where_rows_of_several_texts_stand() -> None:
    """Ids behind one another, the place of each in its text, the rows of its text, and what each vector is pooled of."""
    ids, places, spans, pooled = laid_out([[5, 6], [7], [8, 9, 10]], 8, 4, "mean")
    assert ids.tolist() == [5, 6, 7, 8, 9, 10, 0, 0] and places.tolist() == [0, 1, 0, 0, 1, 2, 0, 0]
    assert spans[:6].tolist() == [[0, 2], [0, 2], [2, 3], [3, 6], [3, 6], [3, 6]] and pooled[:3].tolist() == [[0, 2], [2, 3], [3, 6]]
    assert laid_out([[5, 6], [7]], 8, 4, "cls")[3][:2].tolist() == [[0, 1], [2, 3]]
    assert laid_out([[5, 6], [7]], 8, 4, "last")[3][:2].tolist() == [[1, 2], [2, 3]]
