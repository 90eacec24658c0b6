"""Gathers on an array: control words that a shim decodes into descriptors, and rows that are the reference's."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.array.build import build
from iron_core.array.gather import BATCH, Gather, packet
from iron_core.array.sequence import AwaitToken, Free, Transfer
from iron_core.array.spec import check
from iron_core.declare.formats import Q4_1, PackedArray
from iron_core.declare.pattern import Pattern
from iron_core.devices import device
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import Copy
from iron_ops_aie.moving.copy_gather import part
from iron_sim.control import BASE
from iron_sim.errors import Deadlock, PoisonError, Race, SimulationError
from iron_sim.machine import Machine
from iron_sim.run import regions_of, simulate

NPU2 = device("npu2")


def table(rows, width, dtype):
    """Any bits at all."""
    size = rows * width * np.dtype(dtype).itemsize
    return np.random.default_rng(rows).integers(0, 256, size, np.uint8).view(dtype)


def some(op, seed=0):
    """Ids on both sides of the table's ends."""
    return np.random.default_rng(seed).integers(-op.table_rows - 2, op.table_rows + 2, op.rows).astype(np.int32)


@given(st.data())
@settings(max_examples=60)
def test_a_simulated_gather_is_the_reference(data):
    """Any number of rows and feeds; ids from the end and past it; y as it was where nothing is written."""
    dtype = data.draw(st.sampled_from((np.int8, ml_dtypes.bfloat16, np.float32)))
    width = 4 // np.dtype(dtype).itemsize * data.draw(st.integers(1, 20))
    rows, held = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 40))
    feeds = data.draw(st.sampled_from((None, 1, 2, 3, 4)))
    gap = data.draw(st.sampled_from((0, 4)))
    dst = Pattern(gap, (rows, width), (width + gap, 1)) if gap else None
    fields = dict(input_size=held * width, gather=True, table_rows=held, rows=rows, X=dtype, dst=dst)
    if gap:
        fields["output_size"] = dst.span[1] + 3
    try:
        op = Copy(**fields, num_channels=feeds).resolved(NPU2)
    except Unresolvable as error:
        assert feeds and f"num_channels={feeds} feeds for {rows} rows" in str(error)
        return
    design = build(op, NPU2).design
    check(design)
    x, ids, y = table(held, width, dtype), some(op), table(1, op.output_size, dtype)
    outputs, masks, stats = simulate(op, NPU2, {"x": x, "ids": ids, "y": y})
    assert not masks["y"].any() and stats.elements("x") == stats.elements("y") == rows * width
    assert outputs["y"].tobytes() == op.composed(x, ids, y=y.copy()).tobytes()


def test_one_design_gathers_again_and_again():
    """A call finds nothing left over from the one before it, and its ids are the ones it is given."""
    op = Copy(input_size=50 * 8, gather=True, table_rows=50, rows=45, X=np.float32, num_channels=2).resolved(NPU2)
    design, kernels = build(op, NPU2)
    machine = Machine(design.array, kernels)
    x = table(50, 8, np.float32)
    for seed in range(3):
        ids = some(op, seed)
        regions = regions_of(design, {"x": x, "ids": ids, "y": np.zeros(op.output_size, np.float32)})
        machine.run(design.sequence, regions, {})
        assert regions["y"].data.tobytes() == op.reference(x, ids, y=np.zeros(op.output_size, np.float32)).tobytes()


def test_ids_that_are_not_given_are_unwritten():
    """As any tensor is that is left out: the first of them is told."""
    op = Copy(input_size=50 * 8, gather=True, table_rows=50, rows=8, X=np.float32)
    with pytest.raises(PoisonError, match=r"ids\[0\] is an id nobody wrote"):
        simulate(op, NPU2, {"x": table(50, 8, np.float32)})


def test_a_gather_is_placed_per_call():
    """`out_offset` moves what is written; a channel's drains are one descriptor each then."""
    op = Copy(input_size=20 * 4, output_size=200, gather=True, table_rows=20, rows=19, X=np.float32, dst=Pattern.whole((76,)))
    op = op.resolved(NPU2)
    check(build(op, NPU2, {"out_offset"}).design)
    x, ids, y = table(20, 4, np.float32), some(op), table(1, 200, np.float32)
    for at in (0, 100, 7):
        outputs, _, _ = simulate(op, NPU2, {"x": x, "ids": ids, "y": y}, {"out_offset": at})
        assert outputs["y"].tobytes() == op.reference(x, ids, y=y.copy(), out_offset=at).tobytes()


def test_packed_rows_are_gathered(rng):
    """A table of a block format: whole rows of bytes."""
    x = Q4_1.quantize(rng.standard_normal((12, 64)).astype(np.float32))
    op = Copy(input_size=12 * 64, gather=True, table_rows=12, rows=10, X=Q4_1).resolved(NPU2)
    y = PackedArray(np.zeros((10, Q4_1.row_bytes(64)), np.uint8), (10, 64), Q4_1)
    ids = some(op)
    outputs, _, _ = simulate(op, NPU2, {"x": x, "ids": ids, "y": y})
    assert outputs["y"].tobytes() == op.reference(x, ids, y=y).data.tobytes()


# -- control words ----------------------------------------------------------------------------------


def decoded(words):
    """(register address, data words) of every packet."""
    found, at = [], 0
    while at < len(words):
        header = int(words[at])
        assert bin(header).count("1") % 2 == 1 and header >> 22 & 0x1FF == 0
        count = (header >> 20 & 3) + 1
        found.append((header & 0xFFFFF, [int(w) for w in words[at + 1 : at + 1 + count]]))
        at += 1 + count
    return found


def test_a_packet_is_a_header_of_odd_parity_and_its_words():
    """One to four words to consecutive registers."""
    assert packet(0x1D004, 1, 2) == [0x1011D004 & 0x0011D004 | 0x80000000 * (bin(0x0011D004).count("1") % 2 == 0), 1, 2]
    for words in range(1, 5):
        (header, *rest) = packet(0x1D21C, *range(words))
        assert bin(header).count("1") % 2 == 1 and header & 0x3FFFFF == (words - 1) << 20 | 0x1D21C and rest == [*range(words)]
    with pytest.raises(ParamError, match="a control packet of 5 words"):
        packet(0x1D000, *range(5))


@given(st.integers(1, 80), st.integers(1, 4), st.integers(1, 30), st.integers(0, 1 << 40))
@settings(max_examples=100)
def test_words_are_as_many_as_said_and_address_the_rows(rows, feeds, held, base):
    """Every batch rewrites the addresses of the set it starts; a short one ends its chain itself."""
    base *= 4
    made = Gather("x", held, rows, 64, feeds)
    ids = np.random.default_rng(rows).integers(-held, held, rows)
    words = made.control_words(ids, base)
    assert words.dtype == np.uint32 and words.size == made.words
    covered, gathered = 0, []
    for feed in range(feeds):
        first, count = made.share(feed)
        assert first == min(rows, covered) and sum(made.batches(feed)) == count
        covered += count
        last = {}
        for number, (at, length) in enumerate(made.parts(feed)):
            start, chain, bd = None, [], {}
            for address, data in decoded(words[at : at + length]):
                if 0x1D000 <= address < 0x1D200:
                    n, k = divmod(address - 0x1D000, 0x20)
                    for i, word in enumerate(data):
                        last[n, k // 4 + i] = word
                        bd[n] = True
                else:
                    assert address == 0x1D218 and data[0] == 0xF00
                    start = data[1]
            assert start == 1 << 31 | number % 2 * BATCH
            n = start & 15
            while True:
                chain.append((last[n, 2] << 32 | last[n, 1], last[n, 0]))
                if not last[n, 7] >> 26 & 1:
                    break
                n = last[n, 7] >> 27 & 15
            assert len(chain) == made.batches(feed)[number]
            gathered += chain
    assert covered == rows
    assert gathered == [(base + 64 * (int(i) % held), 16) for i in ids]


@pytest.mark.parametrize(
    ("ids", "address", "message"),
    [
        (np.zeros(3, np.int32), 0, "3 ids of int32; a gather of 4 rows"),
        (np.zeros(4, np.float32), 0, "4 ids of float32"),
        (np.zeros(4, np.int32), 2, "multiples of 4 below"),
        (np.zeros(4, np.int32), (1 << 48) - 64, "multiples of 4 below"),
        (np.zeros(4, np.int32), -4, "multiples of 4 below"),
    ],
)
def test_wrong_ids_or_addresses_are_refused(ids, address, message):
    """Before they would steer a DMA anywhere."""
    with pytest.raises(ParamError, match=message):
        Gather("x", 2, 4, 64, 1).control_words(ids, address)


# -- what may go wrong is seen -----------------------------------------------------------------------


def run(change_steps=None, change_words=None, rows=40):
    op = Copy(input_size=50 * 8, gather=True, table_rows=50, rows=rows, X=np.float32, num_channels=1).resolved(NPU2)
    design, kernels = build(op, NPU2)
    steps = design.sequence.steps if change_steps is None else change_steps(list(design.sequence.steps))
    regions = regions_of(design, {"x": table(50, 8, np.float32), "ids": some(op), "y": np.zeros(op.output_size, np.float32)})
    if change_words is not None:
        change_words(regions["ids"].data)
    machine = Machine(design.array, kernels)
    machine.run(attrs.evolve(design.sequence, steps=tuple(steps)), regions, {})


def no_waits(steps):
    """All tokens are waited for at the end."""
    tokens = [s for s in steps if isinstance(s, (AwaitToken, Free))]
    return [s for s in steps if s not in tokens] + tokens


def test_a_set_rewritten_while_it_is_read_is_a_race():
    """The token of the batch before last is what makes it safe."""
    with pytest.raises(Race, match=r"descriptor 0 is written while chain 0 of rows0 still needs it"):
        run(lambda steps: no_waits(steps_without_drain(steps)), rows=24)


def steps_without_drain(steps):
    """The drain comes last, so rows are held up and their descriptors stay in use."""
    drains = [s for s in steps if isinstance(s, Transfer) and s.way == "drain"]
    at = max(i for i, s in enumerate(steps) if isinstance(s, Transfer)) + 1
    rest = [s for s in steps[:at] if s not in drains]
    return rest + drains + steps[at:]


def test_a_token_nobody_waits_for_would_be_the_next_calls():
    """The sequence takes every token it asks for."""
    with pytest.raises(SimulationError, match="nobody waited for 1 tokens of rows0"):
        run(lambda steps: [s for i, s in enumerate(steps) if i != max(j for j, t in enumerate(steps) if isinstance(t, AwaitToken))])


def test_one_token_too_many_is_a_deadlock():
    """It never comes."""
    with pytest.raises(Deadlock, match="a token of rows0"):
        run(lambda steps: [*steps, AwaitToken("rows0")])


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, lambda w: w ^ 0x80000000, "an even number of ones"),
        (0, lambda w: w ^ 0x00C00000, "is no write"),
        (1, lambda w: w + 1, "chain|middle of an object|in no tensor|Deadlock|waits for"),
        (9, lambda w: w & ~(1 << 25), "is not valid"),
        (4, lambda w: w | 1 << 20, "is more than one run"),
    ],
)
def test_wrong_words_are_seen(index, change, message):
    """Parity, operation, length, and descriptor bits of the first descriptor's packets."""
    with pytest.raises(SimulationError, match=message):
        run(change_words=lambda words: words.__setitem__(index, change(int(words[index])) & 0xFFFFFFFF))


def test_addresses_outside_of_every_tensor_are_seen():
    """The simulated host begins above 32 bits, so both words of an address matter."""
    assert BASE > 1 << 32

    def low_only(words):
        at = 160 + 2
        assert words[160] & 0xFFFFF == 0x1D004
        words[at] = 0

    with pytest.raises(SimulationError, match="are in no tensor of the sequence"):
        run(change_words=low_only)


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "bound", "message"),
    [
        (dict(input_size=12 * 3, X=np.int8), (), "a row of the table is 3 elements, 3 bytes; .* Nearest legal: rows of 4 bytes"),
        (dict(num_channels=3), (), "num_channels=3 feeds for 9 rows.* Nearest legal: num_channels=2"),
        (dict(tile_size=3), (), r"tile_size=3 is no object of a gathered row of 8 .* tile_size=2 or 4"),
        (dict(dst=Pattern.whole((9, 8)), dst_axis=0), (), "takes its ids whole"),
        ({}, ("in_offset",), "in_offset is given per call; a gather on an array"),
        ({}, ("src_valid", "dst_valid"), "src_valid is given per call"),
        (dict(output_size=900, dst=tuple(Pattern(8 * k * k, (8,), (1,)) for k in range(9)), num_channels=1), (), "5 descriptors, and 4"),
        (dict(Y=np.float32), (), "makes other numbers"),
    ],
)  # fmt: skip
def test_a_gather_no_array_takes_is_refused_in_words(fields, bound, message):
    """The rule and what would be legal."""
    given = dict(input_size=96, gather=True, table_rows=12, rows=9) | fields
    with pytest.raises(Unresolvable, match=message):
        build(Copy(**given), NPU2, bound)


def test_a_feed_takes_two_columns():
    """One column gathers nothing; four have two feeds."""
    fields = dict(input_size=96, gather=True, table_rows=12, rows=80)
    with pytest.raises(Unresolvable, match="take two columns each; npu2_1col has 1"):
        build(Copy(**fields), "npu2_1col")
    assert Copy(**fields).resolved("npu1").num_channels == 2
    assert Copy(**fields).resolved("npu2").num_channels == 4


@given(st.data())
@settings(max_examples=150)
def test_a_part_of_a_walk_is_that_part(data):
    """Cut anywhere, over several patterns."""
    patterns = tuple(
        Pattern(data.draw(st.integers(0, 9)), tuple(sizes), tuple(data.draw(st.integers(0, 9)) for _ in sizes))
        for sizes in data.draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3))
    )
    walk = np.concatenate([p.view(np.arange(200)).reshape(-1) for p in patterns])
    low = data.draw(st.integers(0, walk.size))
    high = data.draw(st.integers(low, walk.size))
    got = [p.view(np.arange(200)).reshape(-1) for p in part(patterns, low, high)]
    assert np.concatenate([*got, np.zeros(0, int)]).tolist() == walk[low:high].tolist()
