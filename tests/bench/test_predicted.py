"""The table of published changes: what is planned and priced for it, and how its gains are told."""

from __future__ import annotations

import time

import numpy as np
import pytest

from bench import predicted
from bench.predicted import Change, decode_image, main
from iron_core import bfloat16
from iron_core.devices import device
from iron_core.image.array_image import array_image
from iron_llama.model import Llama
from iron_lm.tunables import profile_of
from iron_lm.unread import unread
from iron_sim.timing.price import price


def test_gains_are_before_over_after():
    one = Change("x", "ms", ((10, 10), (4, 6)), (12.0, 8.0))
    assert one.gains == (2.0, 1.5)
    assert Change("x", "ms", ((10, 10), (4, 6)), (12.0, None)).gains == (2.0, None)


def test_the_table_has_a_row_for_each_and_says_what_is_not_predicted(monkeypatch, capsys):
    rows = (
        ("one", "us", ((2.0, 2.0), (1.0, 1.0)), lambda tune: (3.0, 2.0)),
        ("other", "ms", ((1, 1), (1.0, 1.2)), lambda tune: (5.0, 4.0 if tune else None)),
    )
    monkeypatch.setattr(predicted, "CHANGES", rows)
    assert main(["--untuned"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].split() == ["one", "us", "2", "->", "1", "3", "->", "2", "1.50", "2.000", "1.500"]
    assert said[2].split() == ["other", "of", "before", "1", "->", "1.1", "5", "->", "?", "0.909"]


#: Rows that nothing has to be searched for, and those that take minutes.
FIXED = ("decode, npu2, accurate exp2", "GEMV 2048x2048 and a residual, folded", "gather of 5120 rows, 4 feeds")
STATES = ("MHA of 2048 rows and keys, state in float32",)
SEARCHED = ("decode as one ELF, npu2, tuned", "decode as a chain, npu2, tuned", "decode, npu1, tuned")


@pytest.mark.parametrize("name", [*FIXED, *(pytest.param(name, marks=pytest.mark.slow) for name in (*STATES, *SEARCHED))])
def test_a_gain_has_its_direction_and_its_size_within_a_factor_of_one_and_a_half(name):
    name, unit, measured, predict = next(row for row in predicted.CHANGES if row[0] == name)
    before, after = Change(name, unit, measured, predict(name in SEARCHED)).gains
    assert 2 / 3 < (after - 1) / (before - 1) < 1.5


def test_weights_that_nobody_reads_take_no_memory():
    """Of the full model, 2.5 GB in bfloat16: each is one number."""
    loaded = unread(Llama, Llama.full_size(), max_seq_len=2048)
    weights = loaded.weights
    assert sum(array.nbytes for array in weights.values()) > 2e9
    assert all(not any(array.strides) and array.dtype == bfloat16 and not array.flags.writeable for array in weights.values())
    assert {path: array.shape for path, array in weights.items()} == loaded.model().tensors()


@pytest.fixture(scope="module")
def decode():
    return decode_image("npu2", predicted.THEN["npu2"])


def test_a_decode_step_is_planned_as_published(decode):
    """One full ELF with MHA as it was then; every product with the profile's tiles."""
    assert decode.elf and len(decode.steps) == 294
    attention = next(step for step in decode.steps if step.operator == "MHA")
    assert ("exp2", "fast") in attention.array_key[1]


def test_a_decode_step_is_priced_in_two_seconds(decode):
    """Of CPU time; it takes about 0.2."""
    began = time.process_time()
    found = price(decode, dict(token=0, position=1024, chunk=0, rows=0))
    assert time.process_time() - began < 2
    assert 30e3 < found.total_us < 300e3


@pytest.mark.slow
def test_a_chunk_of_a_prompt_is_priced_in_ten_seconds():
    """2048 rows, planning apart; it takes about three."""
    model = unread(Llama, Llama.full_size(), max_seq_len=32768, prefill_chunk=2048).model()
    with profile_of(Llama, device("npu2")):
        compiled = model.compile(backend="null", dev="npu2")
        compiled.add(ids=((2048,), np.int32))
        image = array_image(compiled.plan, compiled.plan.versions[-1].signature)
    began = time.process_time()
    found = price(image, dict(token=0, position=2047, chunk=0, rows=2048))
    assert time.process_time() - began < 10
    assert found.total_us > 100e3
