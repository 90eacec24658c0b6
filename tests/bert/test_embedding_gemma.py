"""EmbeddingGemma, the first: Gemma 3 in both directions, pooled and through dense layers; against transformers' stored states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.errors import CheckpointError
from iron_gemma3.model import Gemma3
from iron_lm import loading
from tests.bert.conftest import write_modules

STORED = np.load(Path(__file__).parents[1] / "data" / "tiny_embedding_gemma.npz")
IDS, STATES = STORED["ids"].tolist(), STORED["states"]


def written(folder: Path, dense: tuple[np.ndarray, ...] = (), **entries: Any) -> Path:
    """The tiny model's folder, with dense modules of these matrices."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    save.save_file({key[2:]: STORED[key] for key in STORED if key.startswith("w/")}, folder / "model.safetensors")
    config = {key: value for key, value in json.loads(str(STORED["config"])).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    write_modules(folder, "Transformer", "Pooling", *["Dense"] * len(dense), "Normalize")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    for number, matrix in enumerate(dense, 2):
        place = folder / f"{number}_Dense"
        place.mkdir()
        sizes = {"in_features": matrix.shape[1], "out_features": matrix.shape[0], "bias": False}
        (place / "config.json").write_text(json.dumps(sizes | {"activation_function": "torch.nn.modules.linear.Identity"} | entries))
        save.save_file({"linear.weight": matrix}, place / "model.safetensors")
    return folder


@pytest.mark.parametrize("backend", ("reference", "host"))
def test_it_is_transformers_with_dense_layers_behind(tmp_path: Path, backend: str) -> None:
    """Hidden states of 33 tokens over windows of 4 on either side, their mean, two matrices, length 1."""
    rng = np.random.default_rng(0)
    dense = tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((56, 40), (24, 56)))
    loaded = loading.load(Gemma3, written(tmp_path, dense))
    assert loaded.config.encodes and loaded.config.reach(0) == 4 and loaded.config.reach(1) is None and loaded.config.vector_size == 24
    assert np.abs(loaded.build().states_twin(loaded.exact, IDS) - STATES).max() < 1e-4
    want = dense[1] @ (dense[0] @ STATES.mean(0))
    got = iron_lm.EncoderModel(loaded, backend=backend).vectors([IDS])[0]
    assert np.abs(got - want / np.linalg.norm(want)).max() < 1e-5


def test_dense_layers_that_are_not_run_are_refused(tmp_path: Path) -> None:
    """By the entry of their own config.json."""
    with pytest.raises(CheckpointError, match=r"2_Dense/config.json: bias is True; this model runs False"):
        loading.load(Gemma3, written(tmp_path, (np.ones((4, 40), np.float32),), bias=True))
