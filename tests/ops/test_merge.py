"""`Merge`: placeholders take the soft tokens' rows in turn, every other position its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.array.build import build
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import Copy, Merge
from iron_sim.run import simulate

AUDIO, IMAGE = 7, 5
SETTINGS = dict(audio_token=AUDIO, image_token=IMAGE)


def naive(ids, audio_at, vision_at):
    """The rule, id by id."""
    found, audio, vision = [], audio_at, vision_at
    for position, token in enumerate(ids):
        if token == AUDIO:
            found.append(audio)
            audio += 1
        elif token == IMAGE:
            found.append(vision)
            vision += 1
        else:
            found.append(position)
    return found


def some(rows, seed=0):
    return np.random.default_rng(seed).choice([AUDIO, IMAGE, 1, 2, -1], rows).astype(np.int32)


@given(st.integers(1, 200), st.integers(0, 300), st.integers(0, 300), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_any_ids_follow_the_rule(rows, audio_at, vision_at, seed):
    """By the reference, and block by block with what is counted between blocks."""
    op = Merge(rows=rows, audio_at=audio_at, vision_at=vision_at, **SETTINGS).resolved("npu2")
    ids = some(rows, seed)
    assert op.reference(ids).tolist() == op.composed(ids).tolist() == naive(ids, audio_at, vision_at)


def test_one_array_serves_every_number_of_rows_and_every_table():
    """Where the soft tokens begin is a word of the core's; a call that bounds the rows, too."""
    one = Merge(rows=128, audio_at=128, vision_at=160, **SETTINGS)
    other = Merge(rows=2048, audio_at=2048, vision_at=2560, **SETTINGS)
    assert build(one, "npu2").design.array is build(other, "npu2").design.array
    ids = some(128)
    for valid in (1, 64, 65, 128):
        made, _, stats = simulate(one, "npu1", dict(ids=ids), dict(valid=valid))
        assert made["y"][:valid].tolist() == naive(ids[:valid], 128, 160)
        assert stats.elements("ids") == -(-valid // 64) * 64


def test_a_row_depends_on_the_ids_before_it_and_on_what_was_counted():
    """What nobody wrote goes no further: an id poisons its row, those behind it and the counts; a count poisons every row."""
    poison = Merge(rows=4, audio_at=4, vision_at=8, **SETTINGS).resolved("npu2").kernel().contract.poison
    clean, wrong = np.zeros(4, bool), np.array([False, True, False, False])
    counts, rows = poison(wrong, np.zeros(3, bool))
    assert rows.tolist() == [False, True, True, True] and counts.all()
    counts, rows = poison(clean, np.array([False, False, True]))
    assert rows.all() and counts.tolist() == [False, False, True]


class Multimodal(iron.Graph):
    """Rows of [text | audio | vision] by what the ids say."""

    def __init__(self, rows):
        self.rows = rows
        self.table = iron.weight(np.random.default_rng(rows).standard_normal((3 * rows, 8)).astype(np.float32))

    def body(self, ids):
        return Copy(self.table[Merge(ids, audio_at=self.rows, vision_at=2 * self.rows, **SETTINGS)])


@pytest.mark.parametrize(("backend", "dev"), [("host", "host"), ("sim", "npu1"), ("sim", "npu2")])
def test_soft_tokens_take_their_placeholders_places(backend, dev):
    """The rows are gathered by ids that the graph made."""
    graph = Multimodal(24)
    run = graph.compile(backend=backend, dev=dev, ids=((24,), np.int32))
    for seed in range(2):
        rows = naive(some(24, seed), 24, 48)
        assert np.asarray(run(some(24, seed))).tobytes() == np.asarray(graph.table.data)[rows].tobytes()


@pytest.mark.parametrize(("backend", "dev"), [("host", "host"), ("sim", "npu1"), ("sim", "npu2")])
def test_what_lies_past_a_bound_changes_no_row_before(backend, dev):
    """Not even where nobody wrote it: ids may be given cut to the bound."""

    class Bounded(iron.Graph):
        def body(self, ids, *, n: iron.Scratchpad[np.int32]):
            return Merge(ids[:n], audio_at=128, vision_at=200, **SETTINGS)

    run = Bounded().compile(backend=backend, dev=dev, ids=((128,), np.int32))
    ids = some(128, 4)
    for n in (3, 70, 128):
        assert np.asarray(run(ids[:n], n=n)).tolist() == np.asarray(run(ids, n=n)).tolist() == naive(ids[:n], 128, 200)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(image_token=AUDIO), ParamError, "audio_token and image_token are both 7"),
        (dict(audio_at=-1), ParamError, "audio_at=-1, vision_at=9; legal: rows of a table, 0 or more"),
        (dict(block=5), Unresolvable, "block=5 of rows=12; .* Nearest legal: block=4 or 6"),
    ],
)
def test_what_cannot_be_merged_is_refused(fields, error, message):
    """With what would be legal."""
    with pytest.raises(error, match=message):
        build(Merge(**dict(rows=12, audio_at=12, vision_at=9) | SETTINGS | fields), "npu2")
