"""A tiny EmbeddingGemma 2, its weights drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_embedding_gemma2 import described
from iron_embedding_gemma2.config import TextConfig
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.sources import Names, sources_of
from iron_lm.parts.part import Part
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from tests.embedding_gemma2.weights import PICTURED, numbers


@pytest.fixture(scope="session", params=["reference", "host"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def run() -> Run:
    """Texts of up to 64 tokens, in float32."""
    return Run(64, 64, dtype="float32", cache_dtype="float32")


@pytest.fixture(scope="session")
def text_config() -> TextConfig:
    """Five layers that see 2 tokens to either side, then one that sees all."""
    return TextConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_layers=6,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        global_head_dim=32,
        global_kv_heads=1,
        signal_size=16,
        output_size=48,
        window=3,
        sliding=(True,) * 5 + (False,),
        max_positions=512,
        rotary=RotaryConfig(32, 1e6),
        local_rotary=RotaryConfig(16, 1e4),
        activation="gelu_tanh",
        norm_epsilon=1e-6,
    )


def drawn(part: Part, seed: int = 0) -> dict[str, Any]:
    """Weights for a part: matrices of size 1 / root of their width, vectors about 1, bounds that hold some."""
    rng = np.random.default_rng(seed)

    def one(path: str, shape: tuple[int, ...]) -> np.ndarray:
        if not shape:
            return np.array(-1.5 if path.endswith("min") else 1.25, np.float32)
        numbers = rng.standard_normal(shape)
        return (1 + 0.1 * numbers if len(shape) == 1 else numbers / np.sqrt(shape[-1])).astype(np.float32)

    return {path: one(path, shape) for path, shape in part.tensors().items()}


class Golden:
    """What transformers said of a tiny model: its config.json, ids and clips, and what came out."""

    def __init__(self) -> None:
        self.stored = dict(np.load(Path(__file__).parents[1] / "data/embedding_gemma2.npz"))
        self.json: dict[str, Any] = json.loads(str(self.stored.pop("config")))

    @property
    def config(self) -> TextConfig:
        return described.config_of(huggingface.entries_of(self.json))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.stored[name]

    def filled(self, part: Part, named: Names, dtype: Any = np.float32) -> dict[str, Any]:
        """The weights of a part, drawn by their names in a checkpoint; the part has them, matrices and vectors in a dtype."""
        shapes = part.tensors()
        weights = {path: source.read(_Drawing(), shapes[path]) for path, source in sources_of(named, shapes).items()}
        weights = {path: array.astype(dtype) if array.shape else array for path, array in weights.items()}
        part.fill(weights)
        return weights


class _Drawing:
    """A checkpoint that has everything."""

    def has(self, name: str) -> bool:
        return True

    def tensor(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return numbers(name, shape)


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()


WORDS = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"w{i}" for i in range(4, 512))]


def tokenizer() -> dict[str, Any]:
    """A tokenizer.json of words, which puts <bos> first and <eos> last."""
    special = [
        dict(id=i, content=WORDS[i], special=True, single_word=False, lstrip=False, rstrip=False, normalized=False) for i in range(4)
    ]
    ends = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("<bos>", "<eos>")}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    single = [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, sequence, {"SpecialToken": {"id": "<eos>", "type_id": 0}}]
    return {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": [*single, sequence], "special_tokens": ends},
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "<unk>"},
    }


def written(path: Path, golden: Golden, **vision: int) -> Path:
    """A folder with every tensor that transformers saves, under its name, and `tokenizer`. vision: what of that tower's config differs."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    shapes = json.loads(str(golden["shapes"]))
    tower = golden.json["vision_config"] | vision
    shapes["vision_tower.patch_embedder.input_proj.weight"] = [32, 3 * tower["patch_size"] ** 2]
    shapes["vision_tower.patch_embedder.position_embedding_table"] = [2, tower["position_embedding_size"], 32]
    save.save_file({name: numbers(name, tuple(shape)) for name, shape in shapes.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(golden.json | {"vision_config": tower}))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return path


@pytest.fixture(scope="session")
def folder(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose images are too small for files."""
    return written(tmp_path_factory.mktemp("embedding_gemma2"), golden)


@pytest.fixture(scope="session")
def pictured(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that takes pictures: patches of 16 x 16, three to a side."""
    return written(tmp_path_factory.mktemp("pictured"), golden, **PICTURED)


def unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector))
