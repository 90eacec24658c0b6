"""Accuracy beside llama.cpp: figures, the gate that they make, and a table, with a peer that only pretends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import accuracy, weights
from bench.engines import Unavailable

SMALL = dict(weights._LLAMA_1B, embedding_length=64, block_count=1, feed_forward_length=96, vocab_size=128) | {
    "attention.head_count": 2, "attention.head_count_kv": 1, "rope.dimension_count": 32,
}  # fmt: skip


def bench(folder: Path, logits: np.ndarray | None) -> Any:
    """One with a small file of drawn weights, whose peer makes these logits, or is not there."""
    pytest.importorskip("gguf", reason="the gguf package, which makes the file, is not installed")
    file = folder / "small.gguf"
    weights.drawn("llama", SMALL, 1e4, "Q8_0", file)

    @contextlib.contextmanager
    def worker(engine: Any, name: str, settings: Any) -> Iterator[Any]:
        if logits is None:
            raise Unavailable("left out")
        yield SimpleNamespace(version="1", order=lambda do, ids, path: np.save(path, logits))

    found = SimpleNamespace(path=lambda name: file, folder=folder)
    return SimpleNamespace(weights=found, threads=1, ids=lambda count: [i * 7 % 128 for i in range(count)], worker=worker)


def test_iron_is_held_to_the_peers_figures(tmp_path: Path) -> None:
    """1.1 times its rms, three agreements less; both against the float32 oracle of the same file, whose logits are kept nowhere."""
    found = accuracy.measured(bench(tmp_path, np.zeros((8, 128), np.float32)), "q8_0", 8)
    limits = {gate.name: gate.limit for gate in found.report.gates}
    assert found.peer is not None and found.report.compared == found.peer["positions"] == 8 and found.report.passed
    assert limits["logit rms"] == 1.1 * found.peer["logit_rms"] and limits["top-1 agreement"] == found.peer["top1_agreement"] - 3
    assert not list(tmp_path.glob("*.npy")) and found.as_dict()["peer"]["program"] == "llama.cpp 1"
    (line,) = accuracy.lines([found])[2:]
    assert line.startswith("| q8_0 | ") and line.endswith(": met |")


def test_without_the_peer_the_distributions_are_judged(tmp_path: Path) -> None:
    """Its columns are empty, and the table says why."""
    found = accuracy.measured(bench(tmp_path, None), "q8_0", 8)
    assert found.peer is None and {gate.limit for gate in found.report.gates if gate.name == "mean KL"} != {None}
    assert accuracy.lines([found])[-2].split(" | ")[2::2] == ["", ""] and accuracy.lines([found])[-1] == "\nllama.cpp: left out"


def test_a_peers_figures() -> None:
    """Root mean square of all errors; positions whose largest logit is the same."""
    got, exact = np.array([[1.0, 0], [0, 3]], np.float32), np.array([[1.0, 0], [2, 0]])
    assert accuracy.figures(got, exact, "p") == {"program": "p", "positions": 2, "logit_rms": np.sqrt(13 / 4), "top1_agreement": 1}
