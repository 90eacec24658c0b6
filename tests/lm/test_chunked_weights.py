"""Weights in FastFlowLM's chunks: a model runs on them as they are stored, and what needs rows by themselves is given such."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import as_format
from iron_host.backend import HostBackend
from iron_llama.model import Llama
from iron_lm import loading, testing
from iron_lm.checkpoints import widening
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.row_blocks import row_blocks
from tests.layouts import BFP16EBS8, GPTQ, INT8_CHANNEL

CHUNKED = ("q4nx", "q4nx_signed", "q4nx_zero", "q4nx_q8")


def drawn(name: str, rows: int, columns: int, seed: int = 0) -> iron.PackedArray:
    """A matrix in a format, whatever bytes fill its chunks up."""
    format = as_format(name)
    values = np.random.default_rng(seed).standard_normal((rows, -(-columns // 256) * 256)).astype(np.float32)
    return iron.PackedArray(format.quantize(values).data, (rows, columns), format)


@pytest.mark.parametrize("name", CHUNKED)
def test_a_model_runs_on_them_as_stored(tiny: Any, name: str) -> None:
    """Every matrix in chunks, the embedding's too: only kernels, accuracy against the twin of the same numbers, determinism, and chunks
    of a prompt bit for bit; nothing is widened."""
    tensors = {}
    for key in tiny.checkpoint.tensors:
        shape, format, array = tiny.checkpoint.tensors[key]
        packed = as_format(name).quantize(np.asarray(array).astype(np.float32)) if len(shape) > 1 else array
        tensors[key] = (shape, as_format(name) if len(shape) > 1 else format, packed)
    file = SimpleNamespace(metadata=tiny.checkpoint.metadata, tensors=tensors)
    loaded = loading.load(Llama, Checkpoint(tiny.checkpoint.path, tiny.checkpoint.kind, file), max_seq_len=128)
    assert loaded.stored.startswith(f"{name} as in the file; the embedding as {name}_rows (") and loaded.run.activations == "int8_block"
    assert all(loaded.weights[path] is loaded.exact[path] for path in loaded.weights)
    assert {array.format.name for array in loaded.weights.values() if array.ndim > 1} == {name, f"{name}_rows"}
    for report in testing.check_model(loaded, backend=HostBackend(threads=2, strict=True)):
        assert report.passed and report.compared, report.lines()


@pytest.mark.parametrize("name", CHUNKED)
def test_rows_by_themselves_are_the_same_numbers(name: str) -> None:
    """Bit for bit, gathered in any order; a format that has rows is left as it is."""
    tensor = drawn(name, 96, 288)
    rows = row_blocks(tensor)
    assert rows.format.by_rows and rows.format.name == f"{name}_rows" and row_blocks(rows) is rows
    order = np.random.default_rng(1).permutation(96)
    assert np.array_equal(rows[order].dequantize().view(np.uint32), tensor.dequantize()[order].view(np.uint32))


@pytest.mark.parametrize("format", (GPTQ, INT8_CHANNEL, BFP16EBS8), ids=str)
def test_where_planes_stand_apart_rows_are_widened(format: Any) -> None:
    """To float32, the same numbers."""
    tensor = format.quantize(np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32))
    rows = row_blocks(tensor)
    assert rows is tensor if format.by_rows else np.array_equal(rows, tensor.dequantize()) and rows.dtype == np.float32


@pytest.mark.parametrize("name", CHUNKED)
def test_they_are_widened_whole_chunks_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes at once."""
    tensor = drawn(name, 160, 96)
    want = tensor.dequantize()
    for piece in (1, 40 * 96, 70 * 96, 1 << 20):
        monkeypatch.setattr(widening, "_PIECE", piece)
        assert np.array_equal(widening.dense(tensor, np.float32), want)
        assert np.array_equal(row_blocks(tensor).dequantize(), want)


def test_chunks_that_are_only_read_run_as_float32() -> None:
    """Scales of scales, and shared exponents: the same numbers, dense."""
    rng = np.random.default_rng(0)
    for name, across, scales in (("q4nx_k", 256, slice(4608, 4736)), ("q4nx_mxfp4", 128, slice(0, 512))):
        format = as_format(name)
        raw = rng.integers(0, 256, (2, 1, format.block_bytes), np.uint8)
        raw[..., scales] = 0x3C
        tensor = iron.PackedArray(raw.reshape(2, -1), (64, across), format)
        numbers = widening.runnable(tensor)
        assert numbers.dtype == np.float32 and numbers.any() and np.array_equal(numbers, tensor.dequantize())
