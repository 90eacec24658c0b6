"""docs/models.md: its family is installed and runs files of both kinds; its examples run."""

from __future__ import annotations

import inspect
import json
import math
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.cli import main
from iron_core.errors import CheckpointError
from iron_core.plugins.registry import registry
from iron_lm import testing
from iron_lm.checkpoints import names, sources
from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig
from iron_lm.parts import part
from tests.docs.pages import blocks, files, install, page

PAGE = page("models")
FILES = dict(files(PAGE))
GATES: dict[str, Any] = {
    "silu": lambda v: v / (1 + np.exp(-v)),
    "gelu": lambda v: v * np.vectorize(math.erfc)(v * -(0.5**0.5)) / 2,
    "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3))),
}
FROM_PYTHON, A_CALL, A_PART, A_MIXER, A_LAYER = (b.text for b in blocks(PAGE) if b.kind == "python" and "load_encoder" not in b.text)


@pytest.fixture
def family(site: Any) -> Any:
    """The page's family, on the path."""
    install(site, "iron-smollm3", FILES.items())
    registry.cache_clear()
    return registry().load("models", "smollm3")


@pytest.fixture
def tiny(family: Any) -> Any:
    """The tiny model of the page's test, loaded."""
    return testing.tiny(family, _tests()["TINY"])


def _tests() -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(compile(FILES["tests/test_smollm3.py"], "tests/test_smollm3.py", "exec"), module)
    return module


def _paths(tiny: Any, table: Any) -> dict[str, np.ndarray]:
    """Its weights by their names in a file."""
    return {sources.source_of(table, path).names[0]: array for path, array in tiny.weights.items()}


def _permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Query or key rows as llama.cpp's converter has them: the two halves of a head become neighbours."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    """The tiny model as a safetensors folder."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    c, place = tiny.config, tmp_path / "hub"
    place.mkdir()
    save.save_file(_paths(tiny, names.HUGGINGFACE), place / "model.safetensors")
    config = {
        "model_type": "smollm3", "vocab_size": c.vocab_size, "hidden_size": c.hidden_size, "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads, "num_key_value_heads": c.num_kv_heads, "head_dim": c.head_dim,
        "intermediate_size": c.intermediate_size, "max_position_embeddings": c.max_positions, "rope_theta": c.rotary.base,
        "rms_norm_eps": c.norm_epsilon, "no_rope_layers": [int(turns) for turns in c.turns], "use_sliding_window": False,
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    return place


@pytest.fixture
def gguf(tiny: Any, tmp_path: Path) -> Path:
    """The tiny model as a GGUF."""
    library = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    c, path = tiny.config, tmp_path / "tiny.gguf"
    writer = library.GGUFWriter(str(path), "smollm3")
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(c.max_positions)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_heads)
    writer.add_head_count_kv(c.num_kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.norm_epsilon)
    writer.add_rope_freq_base(c.rotary.base)
    for name, array in _paths(tiny, names.GGUF).items():
        heads = {"attn_q": c.num_heads, "attn_k": c.num_kv_heads}.get(name.split(".")[-2])
        writer.add_tensor(name, array if heads is None else np.ascontiguousarray(_permuted(array, heads)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_family_is_three_files() -> None:
    """And an empty `__init__.py`."""
    assert list(FILES) == ["pyproject.toml", "src/iron_smollm3/model.py", "tests/test_smollm3.py"]
    assert len(FILES["src/iron_smollm3/model.py"].splitlines()) < 70


def test_the_familys_own_tests_pass(family: Any) -> None:
    """As they stand on the page."""
    tests = {name: test for name, test in _tests().items() if name.startswith("test_")}
    assert len(tests) == 2
    for test in tests.values():
        test()


def test_it_runs_a_folder_and_a_gguf(family: Any, tiny: Any, folder: Path, gguf: Path) -> None:
    """Found from either file, the logits are the twin's."""
    ids = [5, 17, 3, 88, 41, 2, 9, 60]
    want = tiny.twin(ids)[-1]
    for path in (folder, gguf):
        model = iron_lm.load(path, max_seq_len=64, backend="reference")
        assert model.family is family and model.config.turns == (True, True, True, False)
        assert np.abs(model.logits(ids) - want).max() < 1e-4, path


def test_its_command_line_is_the_pages(family: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`iron models list` has the page's line; `iron-run PATH` finds it, and `--check-accuracy` passes."""
    assert main(["models", "list"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("smollm3"))
    assert row.split() == ["smollm3", "iron-smollm3", "0.1", "SmolLM3", "models."]
    assert "# smollm3  iron-smollm3 0.1  SmolLM3 models." in PAGE
    assert main(["run", str(folder), "--check-accuracy", "--max-seq-len", "32", "--backend", "reference"]) == 0
    assert "over 32 positions" in capsys.readouterr().out


def test_what_it_does_not_run_is_refused(family: Any, folder: Path) -> None:
    """By the entry, as its reader says."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"use_sliding_window": True}))
    with pytest.raises(CheckpointError, match="use_sliding_window is True; this model runs False"):
        iron_lm.load(folder)


def test_its_part_is_called_alone_and_in_a_body() -> None:
    """Either way SwiGLU by its formula; the gate is the other one where the page says so."""
    for activation, gate in GATES.items():
        space: dict[str, Any] = {"__name__": "page"}
        exec(compile(A_CALL.replace('"silu"', f'"{activation}"'), "models.md", "exec"), space)
        x, w = space["x"], space["weights"]
        want = (gate(x @ w["gate"].T) * (x @ w["up"].T)) @ w["down"].T
        assert np.abs(space["alone"](x) - want).max() < 1e-4 and np.abs(space["held"](x) - x - want).max() < 1e-4


@pytest.mark.parametrize("block", [A_PART, A_MIXER, A_LAYER], ids=["part", "mixer", "layer"])
def test_its_parts_pass_their_checks(block: str) -> None:
    """The blocks of a part, of a mixer and of a layer of one's own, as they stand."""
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "models.md", "exec"), space)
    assert space["report"].passed


def test_its_recipe_compares_row_by_row(tiny: Any, folder: Path) -> None:
    """`forced_logits` of a loaded model are the twin's rows; the entry of a head that is the embedding's table may be absent."""
    model = iron_lm.load(folder, dtype="float32", max_seq_len=64, backend="reference")
    assert "testing.forced_logits(model.session, ids)" in PAGE
    ids = [5, 17, 3, 88]
    assert np.abs(testing.forced_logits(model.session, ids) - tiny.twin(ids)).max() < 1e-3
    assert model.loaded.assumed["tie_word_embeddings"] is True


def test_what_is_read_is_the_pages() -> None:
    """One table names every method by which a family reads entries; the others are for what the readers share."""
    table = PAGE.partition("`entries` are what the file\nsays.")[2].partition("###")[0]
    public = {name for name in vars(Entries) if not name.startswith("_")}
    shared = {"denies", "first", "in_these_words", "refuse_unasked"}
    assert public - shared == set(re.findall(r"`(\w+)\(key", "".join(re.findall(r"^\|.*\|$", table, re.M))))


def test_python_runs_smollm2(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The block under "From Python", where its file is."""
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile(FROM_PYTHON, "models.md", "exec"), space)
    assert "Paris" in space["answer"] and capsys.readouterr().out.startswith(" Paris")


def _made(kind: type) -> str:
    """How one is made, without the types of what it takes."""
    signature = inspect.signature(kind)
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return kind.__name__ + str(inspect.Signature(bare)).replace("'", '"')


def test_the_parts_are_all_there() -> None:
    """One table names every part of `iron_lm.parts` as it is made, with its module, another every config, a third every source."""
    folder = Path(part.__file__).parent
    modules = [import_module(f"iron_lm.parts.{file.stem}") for file in folder.glob("*.py") if file.stem not in ("__init__", "part")]
    things = {thing for module in modules for thing in vars(module).values() if isinstance(thing, type)}
    parts = {thing for thing in things if issubclass(thing, part.Part)} - {part.Part}
    configs = {thing for thing in things if thing.__name__.endswith("Config") and not thing.__name__.startswith("_")} | {DecoderConfig}
    table = PAGE.partition("### The parts")[2].partition("###")[0]
    rows = re.findall(r"^\| `(\w+\(.*?\))` \| `(\w+)` \|", table, re.M)
    assert dict(rows) == {_made(each): each.__module__.rpartition(".")[2] for each in parts}
    assert set(re.findall(r"^\| `(\w+\(.*?\))` \|", table, re.M)) - dict(rows).keys() == {_made(each) for each in configs}
    known = {name for name, thing in vars(sources).items() if isinstance(thing, type) and issubclass(thing, sources.Source)}
    table = PAGE.partition("### Where a weight is")[2].partition("###")[0]
    assert known - {"Source", "Name", "_Of"} == set(re.findall(r"^\| `(\w+)\(", table, re.M))
