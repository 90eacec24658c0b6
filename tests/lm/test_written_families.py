"""Families that others write: their mistakes are told as theirs, and what a file does wrong as the file's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
import iron_lm
from iron_core.errors import CheckpointError, DeclarationError
from iron_llama.model import Llama
from iron_lm import loading, testing
from iron_lm.checkpoints import huggingface, names
from iron_lm.checkpoints.sources import PlusOne, Transpose
from iron_lm.decoder_config import DecoderConfig, windowed
from iron_lm.generation.session import Session
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.part import Part, bounded
from iron_lm.parts.rotary import RotaryConfig
from iron_ops_aie import Scale

Q_PROJ = "model.layers.{i}.self_attn.q_proj.weight"
TINY = Path(__file__).parents[1] / "data" / "tiny_llama"


@attrs.frozen(kw_only=True)
class Sized(DecoderConfig):
    """One field more than a decoder's."""

    depth: int


def written(**members: Any) -> Any:
    """A family of this module, a Llama but for these members; functions take the class first."""
    made = {name: classmethod(member) if callable(member) and not isinstance(member, type) else member for name, member in members.items()}
    return type("Mine", (Llama,), {"__module__": __name__, "name": "mine"} | made)


MISTAKES = {
    "a field that is none": (
        dict(from_huggingface=lambda cls, entries: DecoderConfig(**huggingface.decoder(entries), dept=3)),
        r"Mine\.from_huggingface\(\) fails at test_written_families\.py:\d+: TypeError: .*'dept'",
    ),
    "an entry of another kind": (
        dict(from_huggingface=lambda cls, entries: entries.entries["rope_parameters"] + 1),
        r"Mine\.from_huggingface\(\) fails at test_written_families\.py:\d+: TypeError",
    ),
    "a field that nothing is read for": (
        dict(Config=Sized, from_huggingface=lambda cls, entries: iron_lm.Family.from_huggingface.__func__(cls, entries)),  # type: ignore
        r"Mine\.Config\(\) fails: TypeError: .*'depth'",
    ),
    "no config": (dict(from_huggingface=lambda cls, entries: None), r"Mine\.from_huggingface\(\) gives None; legal: a DecoderConfig"),
    "an argument too few": (dict(build=lambda cls, config: None), r"Mine\.build\(\) fails: TypeError"),
    "a part of the wrong config": (
        dict(build=lambda cls, config, run: Decoder(run, Embedding(3, run), [], Norm(3), None)),  # type: ignore[arg-type]
        r"Mine\.build\(\) fails at test_written_families\.py:\d+: AttributeError: 'int'",
    ),
    "no model": (dict(build=lambda cls, config, run: None), r"Mine\.build\(\) gives None; legal: a Decoder"),
    "a mixer that is not given back": (dict(mixer=lambda cls, *given: None), r"Mine\.mixer\(\) gives None; legal: a Part"),
    "a mixer of the wrong config": (
        dict(mixer=lambda cls, config, run, i, rotary: Attention(config, run, rotary)),
        r"Mine\.mixer\(\) fails at test_written_families\.py:\d+: AttributeError",
    ),
    "a layer that is a part of one": (
        dict(layer=lambda cls, config, run, i, rotary: cls.mixer(config, run, i, rotary)),
        r"Mine\.layer\(\) gives an object of class `Attention`; legal: a Layer",
    ),
    "a mixer that is not given back, to a layer of its own": (
        dict(mixer=lambda cls, *given: None, layer=lambda cls, c, run, *given: Layer(cls.mixer(c, *given), GatedMLP(c.mlp(), run))),
        r"Layer: mixer is None; legal: a Part",
    ),
    "a norm that is none": (
        dict(norm=lambda cls, config: config.norm()),
        r"Mine\.norm\(\) gives an object of class `NormConfig`; legal: a Part",
    ),
    "layers that are none": (
        dict(build=lambda cls, c, run: Decoder(run, Embedding(c.embedding(), run), [GatedMLP(c.mlp(), run)], cls.norm(c), None)),  # type: ignore
        r"Decoder: layers\[0\] is an object of class `GatedMLP`; legal: a Layer",
    ),
    "no head": (
        dict(build=lambda cls, c, run: Decoder(run, Embedding(c.embedding(), run), [], cls.norm(c), None)),  # type: ignore[arg-type]
        r"Decoder: head is None; legal: a Part",
    ),
    "a layer that takes too little": (dict(layer=lambda cls, config, run, i: None), r"Mine\.layer\(\) fails: TypeError"),
    "names of a kind it lacks": (
        dict(names=lambda cls, kind, config: {"gguf": names.GGUF}[kind]),
        r"Mine\.names\(\) fails at test_written_families\.py:\d+: KeyError: 'safetensors'",
    ),
    "a name for a weight that no part has": (
        dict(names=lambda cls, kind, config: names.HUGGINGFACE | {"layers.{i}.mixer.qq": PlusOne(Q_PROJ)}),
        r"the family makes layers\.0\.mixer\.qq of model\.layers\.0\.self_attn\.q_proj\.weight, and no part needs it; "
        r"there is layers\.0\.mixer\.q, which is made of that otherwise",
    ),
    "a name for a weight that no part has, of all layers": (
        dict(names=lambda cls, kind, config: names.HUGGINGFACE | {"norms.weight": PlusOne("model.norm.weight")}),
        r"the family makes norms\.weight of model\.norm\.weight, and no part needs it; there is norm\.weight",
    ),
    "a head that is not the embedding's table": (
        dict(
            from_huggingface=lambda cls, entries: DecoderConfig(**huggingface.decoder(entries) | dict(tied=True)),
            names=lambda cls, kind, config: names.HUGGINGFACE | {"head.matrix": "absent"},
            build=lambda cls, c, run: Decoder(run, Embedding(c.embedding(), run), [], cls.norm(c), Head(c.head(), run)),
        ),
        r"Mine\.build\(\) gives a head with a matrix of its own, which .* does not have; "
        r"legal where config\.tied: Head\(config\.head\(\), run, embedding\)\.",
    ),
    "few names": (
        dict(names=lambda cls, kind, config: {"norm.weight": "model.norm.weight"}),
        r"the family names no tensor for embedding\.table, layers\.\{i\}\.mixer_norm\.weight, layers\.\{i\}\.mixer\.q, "
        r"layers\.\{i\}\.mixer\.k, layers\.\{i\}\.mixer\.v, layers\.\{i\}\.mixer\.o and 5 more; legal",
    ),
    "no names": (dict(names=lambda cls, kind, config: None), r"Mine\.names\(\) gives None; legal: a Mapping"),
}


@pytest.mark.parametrize(("members", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_of_a_family_is_its_authors(members: dict[str, Any], says: str) -> None:
    """It names the class, what of it, and the line; nothing says that the file were damaged."""
    with pytest.raises(DeclarationError, match=says) as refused:
        loading.load(written(**members), TINY)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize(
    "change", [dict(hidden_size="wide"), dict(rope_parameters=[1]), dict(num_attention_heads=7), dict(tie_word_embeddings=1)]
)
@pytest.mark.parametrize("family", [Llama, written()], ids=["ours", "another's"])
def test_what_a_file_does_wrong_is_the_files(family: Any, change: dict[str, Any], tmp_path: Path) -> None:
    """Whoever wrote the family."""
    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        loading.load(family, folder)


def test_a_header_says_the_familys_name_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder's config.json may have no other name for the model."""
    line = ["--checkpoint", str(TINY), "--backend", "reference", "--max-seq-len", "32", "--prompt-len", "2", "--num-tokens", "1"]
    assert Llama.main(line) == 0
    said = capsys.readouterr()
    assert "\nllama · float32 as in the file" in said.out + said.err


def test_a_table_may_name_what_this_model_lacks() -> None:
    """Those of every decoder do: a tensor that one family calls its feed-forward's norm is another's norm after the mixer."""
    path, name = "layers.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"
    family = written(names=lambda cls, kind, config: names.HUGGINGFACE | {path: PlusOne(name), "layers.{i}.mixer.sink": "absent.{i}"})
    weights, plain = (loading.load(each, TINY, max_seq_len=32).exact["layers.0.ffn_norm.weight"] for each in (family, Llama))
    np.testing.assert_array_equal(weights, plain.astype(np.float32) + 1)


class Turned(Transpose):
    """The other way round, over the file."""

    def read(self, reading: Any, shape: Any) -> Any:
        return np.asarray(self.of.read(reading, shape[::-1])).T


def test_weights_that_are_turned_are_counted_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies otherwise in the file than it runs takes memory, as what is widened does; what is mapped takes none."""
    swapped = {"layers.{i}.mixer.q": Turned(Q_PROJ.replace("q_", "o_")), "layers.{i}.mixer.o": Turned(Q_PROJ)}
    turned = written(names=lambda cls, kind, config: names.HUGGINGFACE | swapped)
    exact = loading.load(turned, TINY, max_seq_len=32).exact
    size = sum(array.nbytes for path, array in exact.items() if path.endswith(("mixer.q", "mixer.o")))
    monkeypatch.setattr("iron_lm.process.available_bytes", lambda: size - 1)
    with pytest.raises(CheckpointError, match=rf"its weights take {size / 1e6:.1f} MB of memory as they run; .* are free"):
        loading.load(turned, TINY, max_seq_len=32)
    monkeypatch.setattr("iron_lm.process.available_bytes", lambda: 0)
    loading.load(Llama, TINY, max_seq_len=32)


def test_our_own_mistake_is_no_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of ours that fails on what a file holds is told of the file, from another's family too."""
    monkeypatch.setattr(huggingface, "rotary", lambda *_: huggingface.scaling(3, None))  # type: ignore[arg-type]
    for family in (Llama, written(from_huggingface=lambda cls, entries: DecoderConfig(**huggingface.decoder(entries)))):
        with pytest.raises(CheckpointError, match=r"config\.json: damaged, or not what its kind of file holds \(AttributeError"):
            loading.load(family, TINY)


def slid(cls: Any, entries: Any) -> DecoderConfig:
    """Every layer slides by what the file names."""
    return DecoderConfig(**windowed(huggingface.decoder(entries), entries.whole("sliding_window")))


@pytest.mark.parametrize(
    ("said", "sliding"),
    [
        (dict(sliding_window=None), ()),
        (dict(sliding_window=16, use_sliding_window=False), ()),
        (dict(sliding_window=16, layer_types=["full_attention"] * 2), ()),
        (dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"]), (True, False)),
        (dict(sliding_window=16, sliding_window_pattern=2), (True, False)),
        (dict(sliding_window=16, use_sliding_window=True, max_window_layers=1), (False, True)),
        (dict(sliding_window=16), None),
        (dict(sliding_window=16, max_window_layers=1), None),
    ],
)
def test_no_window_is_dropped_in_silence(said: dict[str, Any], sliding: tuple[bool, ...] | None, tmp_path: Path) -> None:
    """Entries say which layers have it, or that none has, or the family asks for it; else it is refused by name."""
    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | said))
    if sliding is not None:
        assert loading.load(written(), folder, max_seq_len=32).config.sliding == sliding
        return
    with pytest.raises(CheckpointError, match=r"config\.json: sliding_window is 16; this model runs without it"):
        loading.load(written(), folder)
    asked = loading.load(written(from_huggingface=slid), folder, max_seq_len=32).config
    assert (asked.window, asked.sliding) == (16, (True, True))


@pytest.mark.parametrize("absent", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
def test_a_flag_that_a_file_leaves_out_is_the_familys(absent: bool, said: bool | None) -> None:
    """`absent` says whether the head is the embedding's table, and what was taken is listed; what the file says goes before."""
    raw = json.loads((TINY / "config.json").read_text())
    raw.pop("tie_word_embeddings", None)
    entries = huggingface.entries_of(raw if said is None else raw | {"tie_word_embeddings": said}, {"tie_word_embeddings": absent})
    assert huggingface.decoder(entries)["tied"] is (absent if said is None else said)
    assert entries.assumed.get("tie_word_embeddings") is (absent if said is None else None)
    plain = huggingface.entries_of(raw)
    assert huggingface.decoder(plain)["tied"] is False and "tie_word_embeddings" not in plain.assumed


def test_a_family_of_a_script_runs(tmp_path: Path) -> None:
    """Its sources are known by no name, so nothing of it is kept for the next start."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, iron_lm\nfrom iron_llama.model import Llama\nclass Mine(Llama): name = 'mine'\n"
        "model = iron_lm.load(Mine, sys.argv[1], max_seq_len=32, backend='reference')\n"
        "print(model.loaded.cache_key, model.logits([3, 4]).shape)\n"
    )
    told = subprocess.run([sys.executable, str(script), str(TINY)], capture_output=True, text=True, check=True)
    assert told.stdout == "None (256,)\n"
    assert loading.load(Llama, TINY, max_seq_len=32).cache_key is not None


class Halved(Part):
    """A mixer that keeps nothing: half of each row."""

    def body(
        self, x: Any, *, chunk: iron.Scratchpad[np.int32], rows: iron.Scratchpad[np.int32], position: iron.Scratchpad[np.int32]
    ) -> Any:
        return Scale(bounded(x, rows), factor=0.5)

    def twin(self, weights: Any, x: Any, positions: Any) -> np.ndarray:
        return np.asarray(x * np.float32(0.5))


def test_a_model_whose_mixers_keep_nothing_runs() -> None:
    """Nothing says what stands of a history, so every prompt runs from its start; the checks pass."""

    def build(cls: Any, c: Any, run: Any) -> Decoder:
        layers = [Layer(Halved(), GatedMLP(c.mlp(), run), mixer_norm=Norm(c.norm()), ffn_norm=Norm(c.norm())) for _ in range(2)]
        embedding = Embedding(c.embedding(), run)
        return Decoder(run, embedding, layers, Norm(c.norm()), Head(c.head(), run, embedding))

    config = DecoderConfig(
        vocab_size=60, hidden_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=40, max_positions=64,
        rotary=RotaryConfig(16),
    )  # fmt: skip
    loaded = testing.tiny(written(build=build), config, max_seq_len=32, prefill_chunk=8)
    for report in testing.check_model(loaded, backend="reference"):
        assert report.passed, report.lines()
    assert Session(loaded.model(), backend="reference").generate(list(range(11)), 3)
