"""Meta's layout: params.json and consolidated.*.pth, whole or in shards, is the same model as the safetensors it was made from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_llama.model import META, Llama
from iron_lm import loading
from iron_lm.checkpoints import meta_params, names
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.meta import MetaFolder
from iron_lm.checkpoints.sources import source_of
from iron_lm.conversion.conversion import Conversion
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run

TORCH = Path(__file__).parents[2] / "data" / "torch"  # written by torch 2.13
Write = Callable[..., Path]
#: Which axis Meta's model-parallel programs cut, by the last word of a name.
CUT = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1, "tok_embeddings": 0}


def weights(tiny: Any) -> dict[str, np.ndarray]:
    """The tiny Llama under Meta's names, the rows of queries and keys in Meta's order."""
    config, found = tiny.config(), {}
    for path in Llama.build(config, Run(64)).tensors():
        theirs, name = (source_of(table, path).names[0] for table in (names.HUGGINGFACE, META))
        values = np.asarray(tiny.checkpoint.tensors[theirs][2]).astype(np.float32)
        if path.endswith((".q", ".k")):
            heads = config.num_heads if path.endswith(".q") else config.num_kv_heads
            values = values.reshape(heads, 2, -1, config.hidden_size).swapaxes(1, 2).reshape(values.shape)
        found[name] = values
    return found


def params(tiny: Any, **changes: Any) -> dict[str, Any]:
    c = tiny.config()
    plain = dict(dim=c.hidden_size, n_layers=c.num_layers, n_heads=c.num_heads, n_kv_heads=c.num_kv_heads,
                 head_dim=c.head_dim, vocab_size=c.vocab_size,
                 multiple_of=32, ffn_dim_multiplier=1.0, norm_eps=c.norm_epsilon, rope_theta=c.rotary.base)  # fmt: skip
    return {k: v for k, v in (plain | changes).items() if v is not None}


@pytest.fixture
def folder(tiny: Any, pth: Any, tmp_path: Path) -> Write:
    """folder(shards=1, columns=False, dtype=float32, drop=(), **params) -> a folder in Meta's layout. columns: embeddings
    cut as up to Llama 2. drop: names left out."""

    def write(shards: int = 1, columns: bool = False, dtype: Any = np.float32, drop: tuple[str, ...] = (), **changes: Any) -> Path:
        for shard in range(shards):
            part = {}
            for name, values in weights(tiny).items():
                axis = (CUT | {"tok_embeddings": int(columns)}).get(name.removesuffix(".weight").rpartition(".")[2])
                if name not in drop:
                    part[name] = (values if axis is None else np.split(values, shards, axis)[shard]).astype(dtype)
            pth.save(tmp_path / f"consolidated.{shard:02d}.pth", part)
        (tmp_path / "params.json").write_text(json.dumps(params(tiny, **changes)))
        return tmp_path

    return write


def load(path: Path, **options: Any) -> loading.Loaded:
    return loading.load(Llama, str(path), **options)


@pytest.fixture(scope="module")
def plain(tiny: Any) -> np.ndarray:
    """The oracle's logits on the safetensors, without scaling, which params.json cannot say as it is there."""
    config = tiny.config()
    return tiny.loaded(attrs.evolve(config, rotary=attrs.evolve(config.rotary, scaling=None))).twin(tiny.ids[:40])


@pytest.mark.parametrize(("shards", "columns"), [(1, False), (2, False), (2, True)])
def test_logits_are_those_of_the_safetensors(tiny: Any, folder: Write, plain: np.ndarray, shards: int, columns: bool) -> None:
    """Whole, in shards cut by rows, in shards whose embedding is cut by columns: one model, and the line says what it is."""
    loaded = load(folder(shards, columns))
    assert np.abs(loaded.twin(tiny.ids[:40]) - plain).max() < 1e-4
    session = Session(loaded.model(), backend="host")
    assert np.abs(session.logits(tiny.ids[:40]) - plain[-1]).max() < 1e-4
    assert loaded.recognised.startswith(f"Meta's layout, {shards} shard") and "21 tensors (21 float32)" in loaded.recognised
    assert ("put together from shards" in loaded.stored) == (shards > 1)


@pytest.mark.parametrize("shards", [1, 2])
def test_it_is_converted_to_what_the_safetensors_are(
    tiny: Any, folder: Write, tmp_path_factory: pytest.TempPathFactory, shards: int
) -> None:
    """Rows of queries and keys in Hugging Face's order, shards put together: the same weights to the byte, and the model's config."""
    pytest.importorskip("iron_q4nx", reason="iron-q4nx, which writes them, is not installed")
    source, out = folder(shards, max_seq_len=4096), tmp_path_factory.mktemp("converted")
    Conversion(source, out / "meta", "q4nx").run()
    Conversion(tiny.checkpoint.path, out / "hub", "q4nx").run()
    assert (out / "meta" / "model.q4nx").read_bytes() == (out / "hub" / "model.q4nx").read_bytes()
    stored, made = load(source).config, load(out / "meta").config
    assert made == attrs.evolve(stored, rotary=attrs.evolve(stored.rotary, neighbours=False), name=made.name)


def test_any_of_its_files_names_it(folder: Write) -> None:
    """The folder, params.json or a .pth file: each opens the whole."""
    path = folder(2)
    for given in (path, path / "params.json", path / "consolidated.01.pth"):
        opened = Checkpoint.open(given)
        assert opened.kind == "meta" and opened.path == path and len(opened.tensors) == 21


def test_one_shard_is_a_view_of_its_file(folder: Write) -> None:
    """No tensor is copied, bfloat16 among them; several shards are put together only when asked for."""
    for _, _, array in MetaFolder.open(folder(dtype=ml_dtypes.bfloat16)).tensors.values():
        base = array
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert type(base).__name__ in ("Map", "memoryview", "mmap"), type(base)
    loaded = load(folder(2), dtype="bfloat16")
    assert isinstance(loaded.weights["layers.0.mixer.q"], np.ndarray)
    assert not isinstance(loaded.exact["layers.0.mixer.q"], np.ndarray)


def test_hyperparameters_come_from_the_files(tiny: Any, folder: Write) -> None:
    """Sizes from params.json and the tensors; Meta's scaling where it is switched on; a vocabulary of -1 is the table's."""
    tensors = MetaFolder.open(folder()).tensors

    def read(**changes: Any) -> dict[str, Any]:
        return meta_params.decoder(meta_params.entries_of(params(tiny, **changes)), tensors)

    found = read(use_scaled_rope=True, vocab_size=-1)
    c = tiny.config()
    sizes = ("vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate_size")
    for field in (*sizes, "norm_epsilon"):
        assert found[field] == getattr(c, field), field
    assert found["rotary"] == RotaryConfig(c.head_dim, c.rotary.base, ("llama3", (8.0, 1.0, 4.0, 8192.0)), neighbours=True)
    assert not found["tied"]
    assert read(use_scaled_rope=True, rope_scaling_factor=32)["rotary"].scaling[1][0] == 32.0
    assert "scaled by 8" in load(folder(use_scaled_rope=True)).recognised
    assert "scaled" not in load(folder(use_scaled_rope=True, rope_scaling_factor=32)).recognised


def test_the_context_is_2048_unless_asked_for(folder: Write) -> None:
    """params.json does not say how long a context may be; --max-seq-len does."""
    path = folder()
    assert (load(path).context, load(path, max_seq_len=5000).context) == (2048, 5000)
    assert load(folder(max_seq_len=512)).context == 512


def test_without_a_head_the_embedding_is_it(folder: Write) -> None:
    """output.weight may be left out."""
    loaded = load(folder(drop=("output.weight",)))
    assert loaded.config.tied and "head.matrix" not in loaded.weights


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(dim=None), "params.json lacks dim"),
        (dict(n_heads=None), "params.json lacks n_heads"),
        (dict(rope_theta=-1), "rope_theta is -1; legal: a positive number"),
        (dict(n_layers=3), r"layers\.2\..* is missing"),
        (dict(n_layers=10**9), "n_layers is 1000000000"),
        (dict(n_heads="8"), "n_heads is '8'"),
        (dict(n_kv_heads=3), "num_kv_heads=3"),
        (dict(dim=128), r"not \[256, 128\]"),
        (dict(use_scaled_rope="yes"), "use_scaled_rope is 'yes'; legal: true, false"),
        (dict(moe_args={"num_experts": 16}), "'moe_args' is nothing this model has"),
        (dict(rope_scaling_factor=-1), "rope_scaling_factor is -1"),
    ],
)
def test_params_that_cannot_be_are_named(folder: Write, changes: dict[str, Any], says: str) -> None:
    """What is missing, of another kind, of another model, or at odds with the tensors: one line."""
    with pytest.raises((CheckpointError, ValueError), match=says) as caught:
        load(folder(**changes))
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(folder: Write, tiny: Any, pth: Any) -> None:
    """A shard between others, params.json, a tensor in one shard alone."""
    path = folder(2)
    (path / "consolidated.01.pth").rename(path / "consolidated.02.pth")
    with pytest.raises(CheckpointError, match=r"consolidated\.01\.pth is missing"):
        MetaFolder.open(path)
    pth.save(path / "consolidated.01.pth", {"norm.weight": np.ones(64, np.float32)})
    (path / "consolidated.02.pth").unlink()
    with pytest.raises(CheckpointError, match="and not in the other"):
        MetaFolder.open(path)
    (path / "params.json").unlink()
    with pytest.raises(CheckpointError, match=r"no params\.json"):
        MetaFolder.open(path / "consolidated.00.pth")


def test_a_file_of_many_gigabytes_is_read(tmp_path: Path, pth: Any) -> None:
    """A storage that begins beyond 4 GB, as in a model of eight billion numbers."""
    (tmp_path / "params.json").write_text("{}")
    numbers = np.arange(32, dtype=np.float32)
    pickled = pth.pickled({"w": pth.tensor("0", "FloatStorage", 32, 8, (4, 4), (4, 1))})
    pth.far(tmp_path / "consolidated.00.pth", pickled, numbers.tobytes(), 5 << 30)
    np.testing.assert_array_equal(MetaFolder.open(tmp_path).tensors["w"][2], numbers[8:24].reshape(4, 4))


# -- files torch wrote ----------------------------------------------------------------------------


def opened(tmp_path: Path, name: str) -> MetaFolder:
    (tmp_path / "params.json").write_text("{}")
    (tmp_path / "consolidated.00.pth").write_bytes((TORCH / name).read_bytes())
    return MetaFolder.open(tmp_path)


def test_a_state_dict_of_torch_is_read(tmp_path: Path) -> None:
    """Linear's weight and bias, as torch printed them."""
    found = opened(tmp_path, "linear.pth").tensors
    stored = json.loads((TORCH / "linear.json").read_text())
    for name, (shape, format, array) in found.items():
        assert str(format) == "float32" and shape == np.shape(stored[name])
        np.testing.assert_array_equal(array, np.array(stored[name], np.float32))
    assert set(found) == {"weight", "bias"}


def test_a_transposed_tensor_is_one(tmp_path: Path) -> None:
    """And a parameter, and float16."""
    found = {name: array for name, (_, _, array) in opened(tmp_path, "odd.pth").tensors.items()}
    assert set(found) == {"a", "h", "t"}
    np.testing.assert_array_equal(found["t"], np.arange(12, dtype=np.float32).reshape(3, 4).T)


def test_what_one_shard_refuses_is_refused(folder: Write, pth: Any) -> None:
    """Of integers in one of two shards: the others are put together, and this one says why it is not."""
    path = folder(2)
    for shard, dtype in enumerate((np.float32, np.int64)):
        pth.save(path / f"consolidated.{shard:02d}.pth", {"norm.weight": np.ones(4, np.float32), "ids": np.ones(4, dtype)})
    found = MetaFolder.open(path).tensors
    assert set(found) == {"norm.weight"}
    with pytest.raises(CheckpointError, match=r"consolidated\.01\.pth: tensor ids is a LongStorage"):
        found["ids"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("module.pth", "names torch.nn.modules.linear.Linear, which is no part of a tensor; nothing of it was run"),
        ("legacy.pth", "not a zip file; torch before 1.6"),
    ],
)
def test_other_files_of_torch_are_refused(tmp_path: Path, name: str, says: str) -> None:
    """A whole module, the format before 1.6: each says what it is."""
    with pytest.raises(CheckpointError, match=says):
        opened(tmp_path, name)


def test_what_params_json_leaves_out_is_as_metas_first_program_had_it(tiny: Any, folder: Write) -> None:
    """Llama 2's says nothing of a rotary base."""
    file = MetaFolder.open(folder())
    entries = meta_params.entries_of({k: v for k, v in params(tiny).items() if k not in ("rope_theta", "norm_eps")})
    found = meta_params.decoder(entries, file.tensors)
    assert (found["rotary"].base, found["norm_epsilon"]) == (10000.0, 1e-5)
    assert entries.assumed == {"rope_theta": 10000.0, "norm_eps": 1e-5}
