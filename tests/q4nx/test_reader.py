"""Folders as FastFlowLM lays them out are read as they are stored, and what cannot be told, or is known to be wrong, is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4NX, Q4NX_K, Q4NX_MXFP4, Q4NX_Q8, Q4NX_SIGNED, Q4NX_ZERO, format_of
from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.identity import origin
from iron_q4nx.chunks import has_minima, signed_or_not
from iron_q4nx.reader import Q4NXFolder
from tests.q4nx.folders import CONFIG, container, folder, matrices, quantized

NUMBERS = matrices(CONFIG)
DOWN, GATE, Q = (f"model.layers.0.{name}.weight" for name in ("mlp.down_proj", "mlp.gate_proj", "self_attn.q_proj"))


def stored(array: Any) -> bytes:
    return (array.data if isinstance(array, iron.PackedArray) else array).tobytes()


def same(found: Any, wanted: dict[str, Any]) -> bool:
    """The same tensors, bit for bit?"""
    return set(found) == set(wanted) and all(
        shape == wanted[name].shape and format == format_of(wanted[name]) and stored(array) == stored(wanted[name])
        for name, (shape, format, array) in found.items()
    )


@pytest.mark.parametrize("rank", (2, 3))
@pytest.mark.parametrize(("said", "format"), [("Q4_1", Q4NX), ("Q4_0", Q4NX_SIGNED), ("minima", Q4NX), ("minima", Q4NX_SIGNED)])
def test_chunks_are_read_in_the_shapes_of_config_json(tmp_path, rank, said, format):
    """As [chunks, bytes] or [rows / 32, columns / 256, bytes]; whoever opens the file says what they were made from."""
    tensors = quantized(NUMBERS, format)
    file = Q4NXFolder.open(folder(tmp_path / "m", tensors, rank=rank), said)
    assert same(file.tensors, tensors) and not file.tensors.refused
    assert file.tensors[DOWN][0] == (64, 320) and file.tensors[DOWN][2].dequantize().shape == (64, 320)


def test_older_headers_name_the_dtype_and_mean_zero_points(tmp_path):
    """Their shape is the matrix's own."""
    tensors = quantized(NUMBERS, Q4NX_ZERO)
    file = Q4NXFolder.open(folder(tmp_path / "m", tensors))
    assert same(file.tensors, tensors) and file.tensors[DOWN][1] is Q4NX_ZERO


def chunks(format, shape, seed=0):
    raw = np.random.default_rng(seed).integers(0, 64, format.nbytes(shape), np.uint8)
    return iron.PackedArray(raw, shape, format)


def test_chunks_of_every_size_are_told_by_it(tmp_path):
    """8704 bytes, 4736, and 2560 of 32 x 128; nothing has to be said of these."""
    others = {GATE: chunks(Q4NX_K, (320, 64)), Q: chunks(Q4NX_MXFP4, (128, 64))}
    tensors = quantized({k: v for k, v in NUMBERS.items() if k not in others}, Q4NX_Q8) | others
    file = Q4NXFolder.open(folder(tmp_path / "m", tensors))
    assert same(file.tensors, tensors)
    assert {file.tensors[name][1] for name in (GATE, Q, DOWN)} == {Q4NX_K, Q4NX_MXFP4, Q4NX_Q8}


def test_a_file_may_say_itself_what_it_was_made_from(tmp_path):
    """In its metadata, which FastFlowLM skips; nobody else has to, or may say otherwise."""
    tensors = quantized(NUMBERS, Q4NX_SIGNED)
    path = folder(tmp_path / "m", tensors, metadata={"quantized_from": "Q4_0", "format": "pt"})
    assert same(Q4NXFolder.open(path).tensors, tensors) and Q4NXFolder.open(path, "Q4_0").metadata["quantized_from"] == "Q4_0"
    with pytest.raises(CheckpointError, match="its header says quantized_from=Q4_0, and Q4_1 is asked for"):
        Q4NXFolder.open(path, "Q4_1")
    odd = folder(tmp_path / "odd", tensors, metadata={"quantized_from": "Q5_K"})
    with pytest.raises(CheckpointError, match=r"quantized_from is 'Q5_K' in its header; legal: Q4_0, Q4_1, minima"):
        Q4NXFolder.open(odd)
    with pytest.raises(UsageError, match=r"quantized_from='Q8_0'; legal: Q4_0, Q4_1, minima"):
        Q4NXFolder.open(path, "Q8_0")


@pytest.mark.parametrize(
    ("format", "evidence"),
    [(Q4NX, "8 of 8 matrices have minima that are not 0; Q4_0's all are"), (Q4NX_SIGNED, "all minima looked at in its 8 matrices are 0")],
)
def test_nothing_is_guessed_of_four_bits(tmp_path, format, evidence):
    """Where nobody says it the matrices are refused, each for one reason, with what to say and the evidence."""
    file = Q4NXFolder.open(folder(tmp_path / "m", quantized(NUMBERS, format)))
    (why,) = set(file.tensors.refused.values())
    assert len(file.tensors.refused) == 8 and "say --quantized-from Q4_1, or Q4_0" in why and evidence in why
    with pytest.raises(CheckpointError, match="nothing in it says whether its 4-bit matrices are made from Q4_1"):
        file.tensors[DOWN]


def test_what_is_said_is_held_against_the_minima(tmp_path):
    """A matrix with minima was not made from Q4_0; one of several may have been ("minima")."""
    tensors = quantized(NUMBERS, Q4NX, {DOWN: Q4NX_SIGNED})
    path = folder(tmp_path / "m", tensors)
    refused = Q4NXFolder.open(path, "Q4_0").tensors.refused
    assert len(refused) == 7 and "has minima that are not 0, and is said to be made from Q4_0" in refused[GATE]
    assert same(Q4NXFolder.open(path, "minima").tensors, tensors)


@pytest.mark.parametrize("place", [(0, 512), (999, 1023), (300, 700)])
def test_one_minimum_is_enough(place):
    """Wherever among a thousand chunks, in whichever of its bytes; scales and nibbles are none."""
    raw = np.full((1000, 5120), 7, np.uint8)
    raw[:, 512:1024] = 0
    assert not has_minima(raw) and signed_or_not(raw, "minima") is Q4NX_SIGNED
    raw[place] = 1
    assert has_minima(raw) and signed_or_not(raw, "minima") is Q4NX
    assert has_minima(raw, 2) == (place[0] in (0, 999))  # the first and the last are looked at


def test_places_are_the_headers(tmp_path):
    """Not in order, with gaps between them and other entries among them; relative to the header's end."""
    tensors = quantized(NUMBERS, Q4NX)
    path = folder(tmp_path / "m", tensors, gap=3, version=4, notes={"by": "somebody"})
    assert same(Q4NXFolder.open(path / "model.q4nx", "Q4_1").tensors, tensors)


def refusal(tmp_path, name, tensor, **config):
    """Why one tensor is refused."""
    tensors = quantized(NUMBERS, Q4NX) | {name: tensor}
    return Q4NXFolder.open(folder(tmp_path / "m", tensors, CONFIG | config), "Q4_1").tensors.refused[name]


def padded_eight_bits(count):
    """Chunks of 4608 bytes, filled up to 5120, their scales twice."""
    raw = np.random.default_rng(0).integers(1, 64, (count, 5120), np.uint8)
    raw[:, 256:512], raw[:, -512:] = raw[:, :256], 0
    return raw.tobytes()


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        (DOWN, ("I8", [4, 9216], bytes(4 * 9216)), "chunks of 9216 bytes: an 8-bit variant with minima, which FastFlowLM does not load"),
        (DOWN, ("I8", [4, 4608], bytes(4 * 4608)), "chunks of 4608 bytes: an 8-bit variant of 128 columns"),
        (DOWN, ("I8", [4, 1280], bytes(4 * 1280)), "chunks of 1280 bytes: a smaller chunk"),
        (DOWN, ("I8", [4, 100], bytes(400)), r"chunks of 100 bytes\. Legal: 2560, 4736, 5120, 8704"),
        (DOWN, ("I8", [4, 5120], padded_eight_bits(4)), "looks like the 8-bit variant that is filled up to 5120 bytes"),
        (DOWN, ("I8", [20480], bytes(20480)), r"is 'I8' \[20480\]\. Legal: F32, F16, BF16, Q4NX, or I8 of \[chunks, bytes\]"),
        (DOWN, ("I64", [4], bytes(32)), r"is 'I64' \[4\]\. Legal: F32"),
        (DOWN, ("I8", [5, 5120], bytes(5 * 5120)), r"is \[5, 5120\] in the header; it is \[64, 320\] by config\.json\. Legal: \[4, 5120\]"),
        (DOWN, ("I8", [10, 5120], bytes(51200)), r"is \[10, 5120\] in the header, which its transpose would have; it is \[64, 320\]"),
        (DOWN, ("I8", [10, 1, 5120], bytes(51200)), r"is \[10, 1, 5120\] in the header, which its transpose would have"),
        (DOWN, ("Q4NX", [320, 64], bytes(51200)), r"is \[320, 64\] in the header, which its transpose would have; it is \[64, 320\]"),
        (DOWN, ("Q4NX", [64, 320], bytes(5120)), "is 20480 bytes by its shape; its place has 5120"),
        (DOWN, ("I8", [4, 5120], bytes(5120)), "is 20480 bytes by its shape; its place has 5120"),
        ("model.layers.0.mlp.moe.weight", ("I8", [4, 5120], bytes(20480)), "config.json does not say of what shape"),
        ("model.embed_tokens.weight.scale", ("BF16", [4], bytes(8)), "whose meaning nobody has written down"),
        ("vision_tower.patch.weight", ("BF16", [4], bytes(8)), "is of vision or audio, whose matrices are blocked for an NPU"),
    ],
)  # fmt: skip
def test_what_is_known_to_be_wrong_is_refused_by_name(tmp_path, name, tensor, says):
    """And keeps no other tensor from being read."""
    why = refusal(tmp_path, name, tensor)
    assert why.startswith(f"{tmp_path}/m/model.q4nx: tensor {name} ")
    with pytest.raises(CheckpointError, match=says):
        raise CheckpointError(why)


def test_rows_are_whole_chunks(tmp_path):
    """No row is filled up; config.json that says otherwise is none of this file."""
    assert "it is" not in (why := refusal(tmp_path, "lm_head.weight", ("I8", [3, 5120], bytes(15360)), vocab_size=90))
    assert "is [90, 64] by config.json; q4nx: a column of 90 is not whole blocks of 32" in why


def test_weights_of_zeros_are_no_eight_bit_variant(tmp_path):
    """Though all of their bytes are the same."""
    tensors = quantized(NUMBERS | {DOWN: np.zeros((64, 320), np.float32)}, Q4NX)
    assert same(Q4NXFolder.open(folder(tmp_path / "m", tensors), "Q4_1").tensors, tensors)


def test_the_head_is_the_files_though_config_json_ties_it(tmp_path):
    """It is quantised, and the embedding is not; without it the head is the embedding."""
    path = folder(tmp_path / "m", quantized(NUMBERS, Q4NX_Q8))
    assert Q4NXFolder.open(path).metadata["config"]["tie_word_embeddings"] is False
    tied = folder(tmp_path / "tied", quantized({k: v for k, v in NUMBERS.items() if k != "lm_head.weight"}, Q4NX_Q8))
    assert Q4NXFolder.open(tied).metadata["config"]["tie_word_embeddings"] is True


def test_a_folder_is_recognised(tmp_path):
    """By its .q4nx files; what lies beside for vision is left, and said."""
    path = folder(tmp_path / "m", quantized(NUMBERS, Q4NX_Q8))
    container(path / "vision_weight.q4nx", {})
    for given in (path, path / "model.q4nx"):
        checkpoint = Checkpoint.open(given)
        assert checkpoint.kind == "q4nx" and checkpoint.file.described == "Q4NX, without vision_weight.q4nx"
    with pytest.raises(CheckpointError, match=r"matrices of vision and audio are not read; model\.q4nx, the decoder's, is"):
        Checkpoint.open(path / "vision_weight.q4nx")
    (path / "model.q4nx").unlink()
    with pytest.raises(CheckpointError, match=r"no model\.q4nx, the decoder's matrices; it holds vision_weight\.q4nx"):
        Checkpoint.open(path)


def test_shapes_need_a_config(tmp_path):
    """Refused where there is none, or where it lacks a size."""
    tensors = quantized(NUMBERS, Q4NX_Q8)
    with pytest.raises(CheckpointError, match=r"no config\.json beside model\.q4nx; the shapes of matrices are read from there"):
        Checkpoint.open(folder(tmp_path / "m", tensors, None))
    short = {key: value for key, value in CONFIG.items() if key != "intermediate_size"}
    file = Q4NXFolder.open(folder(tmp_path / "short", tensors, short))
    assert "config.json lacks intermediate_size" in file.tensors.refused[DOWN] and Q in file.tensors


def test_a_decoder_among_other_parts_has_its_own_entries(tmp_path):
    """model.q4nx is the decoder alone."""
    text = {key: value for key, value in CONFIG.items() if key != "model_type"}
    path = folder(tmp_path / "m", quantized(NUMBERS, Q4NX_Q8), {"model_type": "llama", "vision_config": {}, "text_config": text})
    file = Q4NXFolder.open(path)
    assert file.metadata["config"] == CONFIG | {"tie_word_embeddings": False} and file.tensors[DOWN][0] == (64, 320)


@pytest.mark.parametrize("model", ("gpt_oss", "qwen2", "qwen3_5", "gemma4"))
def test_families_in_an_order_that_nobody_compared_are_refused_by_name(tmp_path, model):
    """Of FastFlowLM's; a file that says what it was made from is none of these."""
    tensors, config = quantized(NUMBERS, Q4NX_Q8), CONFIG | {"model_type": model}
    with pytest.raises(CheckpointError, match=f"FastFlowLM's files of {model} have rows, columns or nibbles in an order of their own"):
        Q4NXFolder.open(folder(tmp_path / "m", tensors, config))
    Q4NXFolder.open(folder(tmp_path / "ours", tensors, config, metadata={"quantized_from": "Q4_1"}))


def test_what_is_kept_of_a_file_is_known_by_its_header(tmp_path):
    """A digest of it is a part of the identity of the file's bytes."""
    path = folder(tmp_path / "m", quantized(NUMBERS, Q4NX_Q8))
    known = origin(Q4NXFolder.open(path).tensors[DOWN][2].data)
    assert known is not None
    plain = iron_mapped(path / "model.q4nx")
    assert known.samples != plain.samples and (known.path, known.size) == (plain.path, plain.size)


def iron_mapped(path: Path) -> Any:
    from iron_core.cache.keys import FileIdentity

    with path.open("rb") as file:
        return FileIdentity.of(str(path), file.fileno())


def test_show_lists_matrices_and_what_is_not_read(tmp_path, iron_command):
    """`iron checkpoints show` takes it as any checkpoint."""
    path = folder(tmp_path / "m", quantized(NUMBERS, Q4NX, {"lm_head.weight": Q4NX_Q8}))
    done = iron_command("checkpoints", "show", str(path), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["kind"] == "q4nx" and facts["formats"]["q4nx_q8"] == {"tensors": 1, "bytes": 3 * 8704}
    assert {one["name"] for one in facts["refused"]} >= {DOWN, GATE, Q}
