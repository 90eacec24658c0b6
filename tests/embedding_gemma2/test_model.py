"""EmbeddingGemma 2 as people have it: a folder with config.json, safetensors of all towers, and a tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import pytest

import iron_lm
from iron_core.cli import main
from iron_core.errors import CheckpointError, UsageError
from iron_embedding_gemma2 import clips, embedder, search_command
from iron_embedding_gemma2.model import EmbeddingGemma2
from iron_lm.checkpoints import config_json, huggingface
from tests.embedding_gemma2.weights import clip


@pytest.fixture(scope="module")
def model(folder: Path) -> embedder.MediaEncoder:
    return embedder.load(folder, max_seq_len=64, backend="host")


def unit(states: np.ndarray, dims: int | None = None) -> np.ndarray:
    mean = states.mean(0)[:dims]
    return np.asarray(mean / np.linalg.norm(mean))


def test_a_text_begins_and_ends_with_marks(model: Any) -> None:
    assert model.tokenizer.encode_whole("w7 w9") == [2, 7, 9, 1]


def test_vectors_of_texts_are_transformers(model: Any, golden: Any) -> None:
    """The mean of the states, of length 1; cut, and of length 1 again. The towers beside the text are no reason to refuse a file."""
    for dims in (None, 16):
        got = model.vectors([[int(i) for i in golden["ids"]]], dims)
        assert np.abs(got[0] - unit(golden["states"], dims)).max() < 1e-5


def test_weights_of_float16_say_nearly_the_same(folder: Path, model: Any) -> None:
    """Of which layers' scalars are numbers too."""
    found = embedder.load(folder, max_seq_len=64, dtype="float16", backend="host")
    assert found.embed("w4 w5")[0] @ model.embed("w4 w5")[0] > 0.999


def test_it_is_found_from_the_file(folder: Path, model: Any) -> None:
    """`iron_lm.load_encoder(path)` runs the same encoder."""
    found = iron_lm.load_encoder(folder, max_seq_len=64, backend="host")
    assert found.family is EmbeddingGemma2
    assert np.array_equal(found.embed("w4 w5"), model.embed("w4 w5"))


def test_a_clip_is_what_transformers_says(model: Any, golden: Any) -> None:
    """Its marks and soft tokens between <bos> and <eos>; a text stands behind it."""
    ids = [int(i) for i in golden["heard_ids"]]
    inner = " ".join(f"w{i}" for i in ids[-4:-1])
    got = model.embed_clip(clip(7333, 1), inner)
    # The stored text has two words before the clip, so it is this order's twin that is compared.
    ((part, _),) = model._merged.values()
    weights = {f"text.{path}": array for path, array in model.loaded.exact.items()} | model._towers["hearing"]
    sound = part.hearing.features.config
    order = [2, *ids[3:-4], *ids[-4:]]
    want = part.twin(weights, order, sound.laid(clip(7333, 1)), sound.frames_of(7333))[0]
    assert np.abs(got - want / np.linalg.norm(want)).max() < 1e-5


def test_a_clip_between_texts_is_what_transformers_says(model: Any, golden: Any) -> None:
    """In the order of the content, as the stored text has it."""
    ids = [int(i) for i in golden["heard_ids"]]
    before, behind = (" ".join(f"w{i}" for i in part) for part in (ids[1:3], ids[-4:-1]))
    got = model.embed_mixed([before, clip(7333, 1), behind])
    assert np.abs(got - unit(golden["heard_states"])).max() < 1e-4


def test_what_fits_no_more_is_refused(model: Any) -> None:
    """One line says how many tokens there are, and how many there may be."""
    with pytest.raises(UsageError, match="66 tokens with the text; legal: 1 to max_seq_len=64"):
        model.embed_clip(clip(160 * 4 * 62, 0))
    with pytest.raises(UsageError, match="legal: 1 to max_seq_len=64"):
        model.embed("w4 " * 80)


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another activation": (lambda c: c["text_config"].update(hidden_activation="silu"), "hidden_activation is 'silu'"),
    "biases": (lambda c: c["text_config"].update(attention_bias=True), "attention_bias"),
    "rotary embeddings of one kind alone": (lambda c: c["text_config"]["rope_parameters"].pop("sliding_attention"), "rope_parameters"),
    "layers of two sizes": (lambda c: c["text_config"]["per_layer_config"].update({"0": {"head_dim": 8}}), "per_layer_config differs"),
    "no kinds of layers": (lambda c: c["text_config"].pop("layer_types"), "lacks layer_types"),
    "chunks that see more than distances say": (lambda c: c["audio_config"].update(attention_chunk_size=5), "attention_chunk_size"),
    "sound that is heard ahead": (lambda c: c["audio_config"].update(attention_context_right=2), "attention_context_right"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_config_that_it_does_not_run_is_refused(change: str, golden: Any) -> None:
    """The entry is named."""
    raw = json.loads(json.dumps(golden.json))
    edit, said = CHANGES[change]
    edit(raw)
    with pytest.raises(CheckpointError, match=said):
        EmbeddingGemma2.from_huggingface(huggingface.entries_of(raw))


def test_a_config_json_of_the_encoder_alone_says_the_same() -> None:
    """What is written is read again, but for the towers."""
    alone = attrs.evolve(EmbeddingGemma2.full_size(), audio=None, vision=None)
    written = config_json.config_json(EmbeddingGemma2, alone)
    assert written["model_type"] == "embedding_gemma2_text" and written["per_layer_config"].keys() == {"5", "11", "17", "23"}


def test_documents_are_ranked(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    """By the cosine of their vectors with the query's, texts and clips; several follow one option."""
    monkeypatch.setattr(clips, "read", lambda path: clip(7333, 1))
    line = ["--query", "w4", "--document", "w4", "w9 w8", "--audio", "a.wav", "--max-seq-len", "64", "--dims", "16", "--json"]
    assert main(["run", "embedding_gemma2", str(folder), *line]) == 0
    said = json.loads(capsys.readouterr().out)
    scores = [one["score"] for one in said["documents"]]
    assert {one["document"] for one in said["documents"]} == {"w4", "w9 w8", "a.wav"} and said["dims"] == 16
    assert scores == sorted(scores, reverse=True) and all(-1 <= score <= 1 for score in scores)


def test_values_that_follow_an_option_are_its() -> None:
    line = ["DIR", "--document", "a", "b", "--json", "--audio", "x", "--document", "c"]
    assert search_command.spread(line) == ["DIR", "--document", "a", "--document", "b", "--json", "--audio", "x", "--document", "c"]


@pytest.mark.parametrize("word", ["-5", "- milk", "-.5", "-", "-- so"])
def test_a_value_may_begin_with_a_minus(word: str) -> None:
    """Where no letter follows, which an option has; the first value, and one behind others."""
    line = ["DIR", "--document", word, "a", word, "--dims", "16"]
    assert search_command.spread(line) == ["DIR", *["--document", word, "--document", "a", "--document", word], "--dims", "16"]


def test_an_option_there_is_not_is_no_value() -> None:
    """It ends what follows one, and is refused."""
    with pytest.raises(click.NoSuchOption, match="--dim"):
        search_command.main("embedding_gemma2", ["DIR", "--query", "w4", "--document", "a", "--dim", "16"])


def test_a_folder_alone_has_the_line_of_its_model(folder: Path, capsys: Any) -> None:
    """`iron-run DIR --query ...` is `iron-run embedding_gemma2 DIR --query ...`."""
    line = ["--query", "w4", "--document", "w4", "-5", "--max-seq-len", "64", "--json"]
    said = []
    for named in ([str(folder)], ["embedding_gemma2", str(folder)]):
        assert main(["run", *named, *line]) == 0
        said.append(json.loads(capsys.readouterr().out)["documents"])
    assert said[0] == said[1] and {one["document"] for one in said[0]} == {"w4", "-5"}


def test_an_option_that_no_line_has_is_refused_by_name(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """Of a folder alone too, of a model with a line of its own or not known, and of none."""
    (tmp_path / "config.json").write_text("{}")
    for path in (folder, tmp_path):
        assert main(["run", str(path), "--no-such"]) == 2
        assert "--no-such" in capsys.readouterr().err


def test_pieces_of_a_mixed_document_are_one_value() -> None:
    line = ["DIR", "--mixed", "a b", "image=x", "c", "--mixed", "audio=y", "--dims", "16"]
    assert search_command.spread(line) == ["DIR", "--mixed", "a b\0image=x\0c", "--mixed", "audio=y", "--dims", "16"]


def test_a_query_alone_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="compared with nothing"):
        EmbeddingGemma2.main([str(folder), "--query", "w4"])


def test_without_an_audio_tower_clips_are_refused(folder: Path, golden: Any, tmp_path: Path) -> None:
    """Texts run."""
    shutil.copytree(folder, tmp_path / "text")
    raw = golden.json | {"audio_config": None}
    (tmp_path / "text/config.json").write_text(json.dumps(raw))
    found = embedder.load(tmp_path / "text", max_seq_len=64, backend="reference")
    assert found.embed("w4").shape == (1, 48)
    with pytest.raises(UsageError, match="no audio tower"):
        found.embed_clip(clip(400, 0))
