"""A tiny BERT that transformers made, as the folder that people have of such a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest

DATA = Path(__file__).parents[1] / "data"
#: A vocabulary of 96 pieces: those that BERT has, letters, letters that go on, and a few words.
PIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ascii_lowercase, *"0123456789.,", *(f"##{c}" for c in ascii_lowercase),
    *(f"word{n}" for n in range(27)),
]  # fmt: skip


@pytest.fixture(scope="session")
def golden() -> Any:
    """config, weights, ids and hidden states of the tiny BERT."""
    return np.load(DATA / "tiny_bert.npz")


@pytest.fixture
def tiny_bert(tmp_path: Path, golden: Any) -> Callable[..., Path]:
    """`tiny_bert(pooling=None, rename=str, **changes)`: a new folder of it; changes: to config.json."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    library = pytest.importorskip("tokenizers")

    def made(pooling: str | None = None, rename: Callable[[str], str] = str, **changes: Any) -> Path:
        folder = tmp_path / f"bert-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        weights = {rename(key[2:]): golden[key] for key in golden if key.startswith("w/")}
        save.save_file(weights, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(json.loads(str(golden["config"])) | changes))
        spelled = library.Tokenizer(library.models.WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]"))
        spelled.normalizer = library.normalizers.BertNormalizer()
        spelled.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        spelled.post_processor = library.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        spelled.save(str(folder / "tokenizer.json"))
        if pooling is not None:
            write_modules(folder, "Transformer", "Pooling", "Normalize")
            (folder / "1_Pooling").mkdir()
            modes = {"pooling_mode_mean_tokens": False, f"pooling_mode_{pooling}": True}
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
        return folder

    return made


def write_modules(folder: Path, *kinds: str) -> None:
    """modules.json, as sentence-transformers writes it."""
    listed = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
