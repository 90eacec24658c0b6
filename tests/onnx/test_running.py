"""Models of ONNX files: they run as they are stored, and are those of the numbers that they hold."""

from __future__ import annotations

import numpy as np

import iron_lm
from iron_core.cli import main
from iron_core.declare.formats import format_of
from iron_host.backend import HostBackend
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from tests.lm.checkpoints.packers import drawn, folder, numbers
from tests.onnx.graphs import dense, linear, n_bits, saved
from tests.q4nx.folders import CONFIG, matrices

IDS = np.random.default_rng(0).integers(0, 96, 24).tolist()


def model(path, external=True):
    """A folder with model.onnx, and one of the numbers that it stands for; of projections half are in each form."""
    parts, plain = [], {}
    for at, (name, values) in enumerate(matrices(CONFIG).items()):
        node = f"/{name.removesuffix('.weight').replace('.', '/').replace('layers/', 'layers.')}/MatMul"
        if name.endswith("_proj.weight"):
            made = drawn(*values.shape, 32, seed=at, scale=np.float32)
            plain[name] = numbers(*made)
            pack = n_bits if at % 2 else linear
            parts += pack(f"onnx::MatMul_{at}", *made, node=node)
        else:
            plain[name] = values
            parts += dense(f"onnx::MatMul_{at}", values, node) if name == "lm_head.weight" else dense(name, values)
    settings = CONFIG | {"tie_word_embeddings": False}
    return saved(path / "m", parts, settings, external), folder(path / "plain", plain, None, settings)


def test_a_model_is_that_of_the_numbers_it_holds(tmp_path):
    """Its twin's logits are equal to those of a float32 file, and the kernels' near them: exact, and with rounded activations."""
    path, plain = model(tmp_path)
    stored = loading.load(Llama, path, activations="exact", max_seq_len=32)
    want = loading.load(Llama, plain, max_seq_len=32).twin(IDS)
    assert stored.stored.startswith("uint4_group32_float32 as in the file, put in rows")
    assert str(format_of(stored.weights["layers.0.ffn.down"])) == "uint4_group32_float32"
    assert np.array_equal(stored.twin(IDS), want)
    assert np.abs(Session(stored.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 5e-3
    rounded = loading.load(Llama, path, max_seq_len=32)
    assert rounded.run.activations == "int8_block"
    assert np.abs(Session(rounded.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 0.2


def test_a_file_is_found_by_its_name_and_shown(tmp_path, capsys):
    """`iron_lm.load(path)` finds the family in config.json; `iron checkpoints show` the file or its folder."""
    path, plain = model(tmp_path, external=False)
    options = dict(max_seq_len=32, backend="reference", dtype="float32")
    found, want = (iron_lm.load(each, **options).logits(IDS[:4]) for each in (path / "model.onnx", plain))
    assert np.abs(found - want).max() < 1e-5
    assert main(["checkpoints", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "ONNX of tests · llama · 12 tensors (7 uint4_group32_float32, 5 float32)" in shown
