"""The arrays of `ResampleTaps` and `Resample`: what they take, and that bounds and lanes change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import Unresolvable
from iron_ops_aie import Resample, ResampleTaps
from iron_ops_aie.images.table import make_table
from iron_sim.run import simulate


@given(st.integers(1, 120), st.integers(1, 120), st.integers(9, 99), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.data())
@settings(max_examples=40, deadline=None)
def test_any_lanes_make_one_table(inputs, outputs, words, columns, channels, data):
    """Whatever bounds the sizes."""
    op = ResampleTaps(in_size=inputs, out_size=outputs, words=words, num_aie_columns=columns, num_channels=channels)
    bounds = dict(in_length=data.draw(st.integers(0, inputs)), out_length=data.draw(st.integers(0, outputs)))
    made, masks, _ = simulate(op, "npu1", {}, bounds)
    assert not masks["taps"].any()
    assert np.array_equal(made["taps"], make_table(bounds["in_length"], bounds["out_length"], words, None, op.chunks))


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_the_largest_weight_goes_from_the_first_core_to_all(dev):
    """The ends of an enlarged picture have weights over 1, the rest have not: one bit less for every chunk."""
    op = ResampleTaps(in_size=8, out_size=64, words=34, slots=1)
    made, _, _ = simulate(op, dev, {})
    alone = make_table(8, 64, 4000, None, 1)[0, 0]
    assert set(made["taps"][:, 0].tolist()) == {alone} == {14}
    lanes = op.resolved(dev).num_aie_columns * 2
    assert lanes == {"npu1": 8, "npu2": 16}[dev]


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_cores_make_one_picture(data):
    """Of any size, on any number of cores, whatever bounds it: the reference's patches."""
    draw = data.draw
    rows, columns, cores = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    size = dict(height=draw(st.integers(1, 60)), width=draw(st.integers(1, 60)), out_height=16 * rows, out_width=16 * columns)
    if columns > 8 * cores:
        columns, size["out_width"] = 8, 128
    more = dict(chunks_w=columns + draw(st.integers(0, 5)), chunks_h=rows + draw(st.integers(0, 5)))
    op = Resample(**size, **more, cores=cores)
    op = Resample(**size, **more, cores=cores, patches_out=op.patches_out + cores * draw(st.integers(0, 2)))
    bounds = dict(rows=draw(st.integers(1, op.height)), out_rows=16 * draw(st.integers(0, rows)))
    bounds["out_columns"] = 16 * draw(st.integers(1, columns))
    image = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (op.height, op.row_bytes)).astype(np.uint8)
    taps_w = make_table(draw(st.integers(1, op.width)), bounds["out_columns"], op.words, 16, op.chunks_w)
    taps_h = make_table(bounds["rows"], bounds["out_rows"], op.words, 16, op.chunks_h)
    made, masks, _ = simulate(op, draw(st.sampled_from(["npu1", "npu2"])), dict(image=image, taps_w=taps_w, taps_h=taps_h), bounds)
    small = op.bounded(height=bounds["rows"], out_height=bounds["out_rows"], out_width=bounds["out_columns"])
    want = small.reference(image[: bounds["rows"]], taps_w, taps_h).astype(made["patches"].dtype)
    assert not masks["patches"].any() and made["patches"].tobytes() == want.tobytes()


def test_rows_longer_than_one_slice_are_read_in_parts():
    """A pixel may lie across two slices; of 4096 bytes one is cut in its middle."""
    op = Resample(height=5, width=3000, out_height=16, out_width=512, cores=4)
    assert op.row_bytes == 3 * 4096 and 4096 % 3
    given_ = op.test.draw(op, np.random.default_rng(0))
    made, _, _ = simulate(op, "npu2", given_)
    assert np.array_equal(made["patches"], op.reference(**given_).astype(made["patches"].dtype))


@pytest.mark.parametrize("wrong", ["width", "height"])
def test_a_table_that_is_none_gives_zeros(wrong):
    """As on every backend."""
    op = Resample(height=300, width=300, out_height=16 if wrong == "height" else 160, out_width=16 if wrong == "width" else 160, cores=2)
    image = np.full((300, 4096), 9, np.uint8)
    made, masks, _ = simulate(op, "npu2", dict(image=image, taps_w=op.table("width"), taps_h=op.table("height")))
    assert not made["patches"].any() and not masks["patches"].any()


SIZE = dict(height=40, width=60, out_height=32, out_width=160)


@pytest.mark.parametrize(
    ("fields", "dev", "said", "legal"),
    [
        (dict(T=np.float32), "npu2", "T=float32; .* Legal: T=bfloat16", dict()),
        (dict(cores=20), "npu1", "cores=20 in .*; npu1 has 4 columns of 4. Nearest legal: cores=16", dict(cores=16)),
        (dict(cores=5), "npu1", "cores=5 in .*; npu1 has 4 columns of 4. Nearest legal: cores=4 or 6", dict(cores=6)),
        (dict(cores=1), "npu2", "out_width=160; cores=1 make 8 patch columns each. Legal: out_width=128", dict(cores=2)),
        (dict(patches_out=50), "npu2", "patches_out=50 is not whole .* Nearest legal patches_out: 48 or 64", dict(patches_out=64)),
        (dict(num_aie_columns=3), "npu2", "num_aie_columns=3 x .* is not cores=16. Legal: cores=12", dict(cores=12, num_aie_columns=3)),
        (dict(words=1300), "npu2", "core core0 needs .* Legal: words=356", dict(words=356)),
    ],
)
def test_what_no_array_takes_is_refused(fields, dev, said, legal):
    """By keyword and rule, with what is legal; that is taken."""
    with pytest.raises(Unresolvable, match=f"Resample: {said}"):
        Resample(**SIZE | fields).resolved(dev)
    Resample(**SIZE | legal).resolved(dev)


@pytest.mark.parametrize(
    ("fields", "said", "legal"),
    [
        (dict(chunks=21, num_aie_columns=4), "chunks=21 is .* Nearest legal chunks: 20 or 24", dict(chunks=24, num_aie_columns=4)),
        (dict(num_aie_columns=9), "num_aie_columns=9; npu2 has 8", dict(num_aie_columns=8)),
        (dict(num_channels=3), "num_channels=3; .* Legal: 1, 2", dict(num_channels=2)),
        (dict(words=9000), "core core0 needs .* Legal: words=256", dict(words=256)),
    ],
)
def test_tables_that_no_array_takes_are_refused(fields, said, legal):
    """Likewise."""
    with pytest.raises(Unresolvable, match=f"ResampleTaps: {said}"):
        ResampleTaps(**dict(in_size=40, out_size=160) | fields).resolved("npu2")
    ResampleTaps(**dict(in_size=40, out_size=160) | legal).resolved("npu2")
