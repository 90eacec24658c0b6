"""Tokenizers of packs: asked for by name, named by a family or a checkpoint, or found by their file; Iron's own come by the same door."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from iron_core.cli import main
from iron_core.errors import CheckpointError, PluginError, PluginWarning, UsageError
from iron_core.plugins.registry import registry
from iron_llama.model import Llama
from iron_lm import load, loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text.opening import Tokenizing, open_tokenizer
from iron_lm.text.tokenizer import Tokenizer
from tests.lm.conftest import TINY

#: Bytes as ids, turned by a number; with less and less of what a tokenizer may have. The tiny Llama has 256 ids.
PACK = """
from pathlib import Path

class Turned:
    vocab_size, stop = 256, (0,)
    def __init__(self, by=0): self.by = by
    def encode_plain(self, text): return [(b + self.by) % 256 for b in text.encode()]
    def decode(self, ids): return bytes((i - self.by) % 256 for i in ids if i).decode("utf-8", "replace")

class Spelled(Turned):
    bos = 1
    def spell(self, id): return None if id == 0 else bytes([(id - self.by) % 256])

class Bytes:
    "Each byte is an id."
    @staticmethod
    def open(path, checkpoint): return Turned()

class Turn:
    "Turned by what a file says."
    files = ("turn.acme",)
    @staticmethod
    def sniff(path, head): return head.startswith(b"TURN")
    @staticmethod
    def open(path, checkpoint): return Spelled(0 if path is None else int(Path(path).read_text()[4:]))
"""
ENTRIES = {"acme-bytes": "acme_tokens:Bytes", "acme-turn": "acme_tokens:Turn"}
TEXT = "Grüße, 世界"


@pytest.fixture
def acme(site):
    """A pack of two tokenizers."""
    site.add("iron-acme", entries={"iron.tokenizers.v1": ENTRIES}, modules={"acme_tokens.py": PACK})
    registry.cache_clear()
    return site


@pytest.fixture
def weights(tmp_path):
    """`weights(config=..., **files)`: the tiny Llama's folder, with more in its config.json and beside it."""

    def made(config: dict[str, Any] | None = None, **files: str) -> Path:
        folder = tmp_path / "m"
        shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("outputs.npz"), dirs_exist_ok=True)
        said = json.loads((folder / "config.json").read_text()) | (config or {})
        (folder / "config.json").write_text(json.dumps(said))
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return made


def spelled(tokenizer: Tokenizer | None, text: str = TEXT) -> list[int]:
    """The ids of a text, which are that text again, at once and one by one."""
    assert tokenizer is not None
    ids = tokenizer.encode(text)
    stream = tokenizer.stream()
    behind = ids if tokenizer.bos is None else ids[1:]
    assert tokenizer.decode(behind) == stream.take(behind) + stream.rest() == text
    return ids


def test_one_is_had_by_its_name(acme):
    """From a pack that says no more of it than ids and text."""
    assert spelled(open_tokenizer("acme-bytes")) == list(TEXT.encode())
    assert spelled(open_tokenizer("iron-acme:acme-bytes")) == list(TEXT.encode())
    tokenizer = open_tokenizer("acme-bytes")
    assert (tokenizer.bos, tokenizer.stop, tokenizer.after, tokenizer.vocab_size) == (None, (0,), (), 256)
    assert tokenizer.token(65) == "A" and tokenizer.token(256) is None


def test_what_it_says_more_is_taken(acme):
    """The id that texts begin with, and the bytes of each id."""
    tokenizer = open_tokenizer("acme-turn")
    assert spelled(tokenizer) == [1, *TEXT.encode()] and tokenizer.encode_plain("A") == [65]
    assert tokenizer.spelling.spell(0xC3, False) == b"\xc3" and tokenizer.spelling.spell(0, False) is None


def test_a_file_that_it_recognises_is_its_own(acme, tmp_path):
    """Given by itself, in a folder that is given, or beside the weights; none of Iron's kinds is it."""
    (tmp_path / "any.name").write_text("TURN3")
    assert spelled(open_tokenizer(tmp_path / "any.name"))[1:] == [(b + 3) % 256 for b in TEXT.encode()]
    (tmp_path / "turn.acme").write_text("TURN5")
    assert spelled(open_tokenizer(tmp_path))[1:] == [(b + 5) % 256 for b in TEXT.encode()]


def test_what_lies_beside_weights_is_found_by_its_name(acme, weights):
    """As a tokenizer.json is."""
    folder = weights(turn_acme="TURN7")
    found = open_tokenizer(None, Checkpoint.open(folder))
    assert spelled(found)[1:] == [(b + 7) % 256 for b in TEXT.encode()] and found.where == str(folder / "turn.acme")


def test_a_checkpoint_names_one(acme, weights):
    """In its config.json; what the user asks for goes over it."""
    folder = weights({"iron_tokenizer": "acme-bytes"}, turn_acme="TURN7")
    assert spelled(open_tokenizer(None, Checkpoint.open(folder))) == list(TEXT.encode())
    assert spelled(open_tokenizer("acme-turn", Checkpoint.open(folder)))[1:] == [(b + 7) % 256 for b in TEXT.encode()]
    model = load(folder, backend="reference", max_seq_len=64)
    assert model.tokenizer.encode("A") == [65]


def test_a_reader_names_one(acme, weights):
    """For files that say nothing of it."""
    source = """
from iron_lm.checkpoints.safetensors import SafetensorsFile
class It:
    @staticmethod
    def sniff(path, head): return False
    @staticmethod
    def open(path):
        file = SafetensorsFile.open(path)
        file.tokenizer = "acme-bytes"
        return file
"""
    acme.add("iron-reads", entries={"iron.checkpoints.v1": {"odd": "odd_reader:It"}}, modules={"odd_reader.py": source})
    registry.cache_clear()
    assert spelled(open_tokenizer(None, Checkpoint.open(weights(), reader="odd"))) == list(TEXT.encode())


def test_a_gguf_names_one(acme, smollm2):
    """In its metadata, over a vocabulary of its own."""
    checkpoint = Checkpoint.open(smollm2)
    checkpoint.metadata["iron.tokenizer"] = "acme-bytes"
    assert spelled(open_tokenizer(None, checkpoint)) == list(TEXT.encode())


def test_a_family_names_one(acme, weights):
    """For all its checkpoints that name no other."""

    class Bytewise(Llama):
        name, tokenizer = "bytewise", "acme-bytes"

    loaded = loading.load(Bytewise, weights(), max_seq_len=32)
    assert spelled(loaded.tokenizer) == list(TEXT.encode()) and loaded.beside is None
    loaded = loading.load(Bytewise, weights({"iron_tokenizer": "acme-turn"}), max_seq_len=32)
    assert loaded.tokenizer.bos == 1


def test_a_model_speaks_by_it(acme, weights, capsys):
    """`iron-run --tokenizer NAME`, its prompt and its answer."""
    line = ["--prompt", "AB", "--num-tokens", "3", "--max-seq-len", "64", "--backend", "reference", "--json"]
    assert main(["run", str(weights()), "--tokenizer", "acme-turn", *line]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["prompt_ids"] == [1, 65, 66] and said["text"] == open_tokenizer("acme-turn").decode(said["ids"])


def test_a_name_that_nobody_has_is_refused(acme, weights):
    """With those there are; and with who named it."""
    for asked in ("acme-byte", "nowhere/tokenizer.json"):
        with pytest.raises(CheckpointError, match=rf"{asked}: no such tokenizer\. Legal: .*or a name: acme-bytes, acme-turn, gguf, json"):
            open_tokenizer(asked)
    folder = weights({"iron_tokenizer": "other"})
    with pytest.raises(CheckpointError, match=rf"{folder}: it names a tokenizer: no tokenizer `other`.*acme-bytes"):
        open_tokenizer(None, Checkpoint.open(folder))
    with pytest.raises(CheckpointError, match=r"its tokenizer is 3; legal: the name of one"):
        open_tokenizer(None, Checkpoint.open(weights({"iron_tokenizer": 3})))
    with pytest.raises(UsageError, match=r"tokenizer=''; legal: a file, a folder that one is in, or the name of one"):
        open_tokenizer("")


def test_our_own_come_through_the_same_door(site, smollm2, minilm):
    """Each kind is an entry; each tokenizer is what an entry gives; and no pack's is imported to read ours."""
    site.add("iron-acme", entries={"iron.tokenizers.v1": ENTRIES}, modules={"acme_tokens.py": PACK})
    registry.cache_clear()
    own = {r.name: r.value for r in registry().select("tokenizers") if r.own}
    assert set(own) == {"json", "gguf", "tiktoken", "sentencepiece", "wordpiece"}
    for path in (smollm2, minilm):
        found = open_tokenizer(None, Checkpoint.open(path))
        assert isinstance(found, Tokenizing) and found.decode(found.encode_plain("time")).strip() == "time"
    assert open_tokenizer("gguf", Checkpoint.open(smollm2)).stop == open_tokenizer(None, Checkpoint.open(smollm2)).stop
    assert open_tokenizer("json", Checkpoint.open(minilm)).after == open_tokenizer(None, Checkpoint.open(minilm)).after
    with pytest.raises(CheckpointError, match=r"not a GGUF, whose vocabulary was asked for"):
        open_tokenizer("gguf", Checkpoint.open(minilm))
    assert "acme_tokens" not in sys.modules


def test_a_name_of_ours_is_ours(site):
    """Another's is reached by its distribution."""
    site.add("iron-acme", entries={"iron.tokenizers.v1": {"json": "acme_tokens:Bytes"}}, modules={"acme_tokens.py": PACK})
    registry.cache_clear()
    assert registry().load("tokenizers", "json").__module__ == "iron_lm.text.kinds"
    assert spelled(open_tokenizer("iron-acme:json")) == list(TEXT.encode())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("1 / 0", r"failed to open its tokenizer: ZeroDivisionError"),
        ("return 3", r"open\(\) gave 3 \(int\); legal: an object with vocab_size, encode_plain\(text\) and decode\(ids\)"),
        ("return Turned", r"open\(\) gave a class `Turned`"),
        ("t = Turned(); t.vocab_size = 0; return t", r"its vocab_size is 0 \(int\); legal: 1 or more"),
        ("t = Turned(); t.stop = (256,); return t", r"of its bos, stop and after, 256 is no id; legal: 0 to 255"),
        ("t = Turned(); t.stop = 5.0; return t", r"of its bos, stop and after, 5\.0 is no id"),
    ],
)
def test_what_is_no_tokenizer_is_refused_with_whose_it_is(site, body, says):
    """When it is opened."""
    source = PACK + f"\nclass Odd:\n    @staticmethod\n    def open(path, checkpoint):\n        {body}\n"
    site.add("iron-acme", entries={"iron.tokenizers.v1": {"odd": "acme_tokens:Odd"}}, modules={"acme_tokens.py": source})
    registry.cache_clear()
    with pytest.raises(PluginError, match=rf"iron-acme 1\.0.*{says}"):
        open_tokenizer("odd")


def test_what_fails_at_a_text_is_told_with_whose_it_is(site):
    """And an id that it does not have."""
    source = PACK + (
        "class Odd(Turned):\n    def encode_plain(self, text): return [999] if text == 'x' else 1 / 0\n    def decode(self, ids): 1 / 0\n"
        "class It:\n    @staticmethod\n    def open(path, checkpoint): return Odd()\n"
    )
    site.add("iron-acme", entries={"iron.tokenizers.v1": {"odd": "acme_tokens:It"}}, modules={"acme_tokens.py": source})
    registry.cache_clear()
    tokenizer = open_tokenizer("odd")
    with pytest.raises(PluginError, match=r"iron-acme 1\.0.*encode_plain\(\) gave the id 999; legal: 0 to 255"):
        tokenizer.encode("x")
    with pytest.raises(PluginError, match=r"iron-acme 1\.0.*to make ids of a text: ZeroDivisionError"):
        tokenizer.encode("y")
    with pytest.raises(PluginError, match=r"iron-acme 1\.0.*to make a text of ids: ZeroDivisionError"):
        tokenizer.decode([1])


def test_of_two_that_recognise_a_file_the_user_says_which(acme, tmp_path):
    """One that fails at it is passed over, with a warning."""
    (tmp_path / "turn.acme").write_text("TURN3")
    broken = PACK.replace('return head.startswith(b"TURN")', "return 1 / 0")
    acme.add("iron-broken", entries={"iron.tokenizers.v1": {"broken": "broken_tokens:Turn"}}, modules={"broken_tokens.py": broken})
    registry.cache_clear()
    with pytest.warns(PluginWarning, match=r"tokenizer `broken` of iron-broken 1\.0 .*is passed over: its sniff failed: ZeroDivisionError"):
        assert open_tokenizer(tmp_path / "turn.acme").bos == 1
    acme.add("iron-second", entries={"iron.tokenizers.v1": {"second": "second_tokens:Turn"}}, modules={"second_tokens.py": PACK})
    registry.cache_clear()
    with (
        pytest.warns(PluginWarning),
        pytest.raises(CheckpointError, match=r"both recognise it\. Legal: --tokenizer acme-turn=.*turn\.acme, or second=\.\.\."),
    ):
        open_tokenizer(tmp_path / "turn.acme")
    assert spelled(open_tokenizer(f"second={tmp_path / 'turn.acme'}"))[1:] == [(b + 3) % 256 for b in TEXT.encode()]
    with pytest.raises(CheckpointError, match=r"nowhere: no such file, which tokenizer `second` shall read"):
        open_tokenizer("second=nowhere")
