"""The files of a tokenizer beside new weights: a folder's own, or made of a GGUF's vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text import tokenizer_files as module
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.template import find_template
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.tokenizer_files import tokenizer_files

TEXT = "the héap <s> of\ttime</s> 你好 \U0001f642"


def written(checkpoint: Checkpoint, folder: Path) -> Tokenizer:
    """The tokenizer of these files, in a folder of their own."""
    for name, data in tokenizer_files(checkpoint).items():
        (folder / name).write_bytes(data)
    tokenizer = open_tokenizer(folder)
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("begins", [True, False])
def test_a_ggufs_vocabulary_spells_the_same(tiny_gguf: Any, byte_metadata: dict[str, Any], tmp_path: Path, begins: bool) -> None:
    """The ids of a text, the token it begins with or none, those that end an answer, the text of ids, the chat template."""
    template = "{{ bos_token }}{% for message in messages %}[{{ message.content }}]{{ eos_token }}{% endfor %}"
    metadata = byte_metadata | {"tokenizer.ggml.add_bos_token": begins, "tokenizer.chat_template": template}
    checkpoint = Checkpoint.open(tiny_gguf(metadata=metadata))
    own, made = open_tokenizer(None, checkpoint), written(checkpoint, tmp_path)
    assert own is not None and own.encode(TEXT) == made.encode(TEXT) and (252 == own.encode(TEXT)[0]) == begins
    assert (own.bos, own.stop, own.vocab_size) == (made.bos, made.stop, made.vocab_size) and own.stop == (253,)
    assert own.decode(range(256)) == made.decode(range(256))
    said = [find_template(checkpoint, own), find_template(None, made, tmp_path)]
    texts = [one.render([{"role": "user", "content": "hi"}]) for one in said if one is not None]
    assert texts == ["<s>[hi]</s>"] * 2


def test_a_folders_files_are_its_own(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, those that say how text is spelled and no others; one of a size that none has is refused."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(tiny.checkpoint.path / name)
    (tmp_path / "tokenizer.json").write_bytes(b"{ }")
    (tmp_path / "chat_template.jinja").write_bytes(b"hi")
    (tmp_path / "README.md").write_bytes(b"hi")
    checkpoint = Checkpoint.open(tmp_path)
    assert tokenizer_files(checkpoint) == {"tokenizer.json": b"{ }", "chat_template.jinja": b"hi"}
    monkeypatch.setattr(module, "_MOST", 2)
    with pytest.raises(CheckpointError, match=r"tokenizer.json: 3 bytes; legal: up to 2\."):
        tokenizer_files(checkpoint)


def test_a_gguf_without_a_vocabulary_gives_none(tiny_gguf: Any) -> None:
    """There is nothing to write."""
    assert tokenizer_files(Checkpoint.open(tiny_gguf())) == {}
