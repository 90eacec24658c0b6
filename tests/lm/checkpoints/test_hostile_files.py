"""Files made to do harm: refused in one line, in little time and memory, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iron_core.cli import main
from iron_core.declare.formats import IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, PackedArray
from iron_core.errors import CheckpointError, IronError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.gguf import GGUFFile
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.checkpoints.scale_check import ScaleCheck
from tests.lm.hostile import ANY, Runs, meta, refused, sparse

# -- GGUF -----------------------------------------------------------------------------------------

HUGE = 1 << 63


def gguf(metadata: bytes = b"", pairs: int = 0, tensors: bytes = b"", count: int | None = None) -> bytes:
    n = (1 if tensors else 0) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", 3, n, pairs) + metadata + tensors


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def place(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(dims)}QIQ", len(name), name.encode(), len(dims), *dims, kind, offset)


GIGABYTE = struct.pack("<Q", 1 << 30)
CASES = {
    "tensors": (gguf(count=HUGE), 1 << 20, "number of tensors is 9223372036854775808"),
    "entries": (gguf(pairs=HUGE), 1 << 20, "number of metadata entries is 9223372036854775808"),
    "a million entries": (gguf(pairs=1 << 20), 1 << 31, "more than any model's"),
    "a million tensors": (gguf(count=1 << 20), 1 << 31, "more than any model's"),
    "array length": (gguf(key("k", 9, struct.pack("<IQ", 4, HUGE)), 1), 1 << 20, "length of k is 9223372036854775808"),
    "array beyond the file": (gguf(key("k", 9, struct.pack("<IQ", 12, 1 << 24)), 1), 1 << 20, "cut short or damaged"),
    "string length": (gguf(key("k", 8, struct.pack("<Q", HUGE)), 1), 1 << 20, "length of k is"),
    "a string of a gigabyte": (gguf(key("k", 8, GIGABYTE), 1), 3 << 30, "length of k is 1073741824"),
    "a key of a gigabyte": (gguf(GIGABYTE, 1), 3 << 30, "metadata key 0 is 1073741824"),
    "a token of a gigabyte": (gguf(key("t", 9, struct.pack("<IQ", 8, 2) + GIGABYTE), 1), 3 << 30, "entry 0 of t claims 1073741824"),
    "sixteen million strings": (gguf(key("t", 9, struct.pack("<IQ", 8, 1 << 24)), 1), 1 << 30, "more than any model's"),
    "many strings of 16 MB": (gguf((key("k", 8, struct.pack("<Q", 1 << 24)) + bytes(1 << 24)) * 3, 3), 1 << 26, "more than any model's"),
    "arrays of empty arrays": (gguf(key("k", 9, struct.pack("<IQ", 9, 1 << 24)), 1), 1 << 31, "more than any model's"),
    "dimension": (gguf(tensors=place("w", (HUGE,), 0, 0)), 1 << 20, "dimension of w is 9223372036854775808"),
    "dimensions together": (gguf(tensors=place("w", (1 << 24,) * 4, 0, 0)), 1 << 20, "cut short or damaged"),
    "offset": (gguf(tensors=place("w", (4,), 0, HUGE)), 1 << 20, "cut short or damaged"),
    "offset wraps": (gguf(tensors=place("w", (4,), 0, (1 << 64) - 16)), 1 << 20, "cut short or damaged"),
    "name of a gigabyte": (gguf(tensors=GIGABYTE), 3 << 30, "name of tensor 0 is 1073741824"),
    "overlap by four bytes": (gguf(tensors=place("a", (65,), 0, 0) + place("b", (64,), 0, 256), count=2), 1 << 20, "tensor b overlaps a"),
    "overlap by 28 bytes": (gguf(tensors=place("b", (64,), 0, 64) + place("a", (23,), 0, 0), count=2), 1 << 20, "tensor b overlaps a"),
    "overlap": (gguf(tensors=place("a", (64,), 0, 0) + place("b", (64,), 0, 128), count=2), 1 << 20, "tensor b overlaps a"),
    "one place": (gguf(tensors=place("a", (64,), 0, 0) + place("b", (64,), 8, 0), count=2), 1 << 20, "overlaps"),
    "the same name": (gguf(tensors=place("a", (4,), 0, 0) + place("a", (4,), 99, 32), count=2), 1 << 20, "two tensors are named a"),
    "alignment": (gguf(key("general.alignment", 4, struct.pack("<I", 1 << 31)), 1, place("w", (4,), 0, 0)), 1 << 20, "cut short"),
    "half a superblock": (gguf(tensors=place("w", (128, 4), 12, 0)), 1 << 20, "q4_k: a row of 128 is not whole blocks"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_gguf_that_claims_too_much(tmp_path: Path, case: str) -> None:
    """Counts, lengths, dimensions and offsets are checked before anything is made of them."""
    head, size, says = CASES[case]
    path = sparse(tmp_path / "bad.gguf", head, size)
    refused(says, lambda: GGUFFile.open(path))


@pytest.mark.slow
def test_what_a_header_may_hold_takes_little(tmp_path: Path) -> None:
    """Two million empty strings, the most there may be, and then an end that is none."""
    head = gguf(key("t", 9, struct.pack("<IQ", 8, (1 << 21) - 1000)), 1, count=1)
    refused("name of tensor 0|more than any", lambda: GGUFFile.open(sparse(tmp_path / "bad.gguf", head, 1 << 26)))


@pytest.mark.parametrize("format", (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS), ids=str)
def test_scales_that_are_no_numbers_are_found(format: Any) -> None:
    """NaN or infinity in any scale or minimum of any block; every other bit may be what it likes."""
    rng = np.random.default_rng(0)
    halves = [at for at, _ in format.scale_offsets]
    data = rng.integers(0, 256, (8, 4 * format.block_bytes), np.uint8)
    blocks = data.reshape(-1, format.block_bytes)
    for at in halves:
        blocks[:, at : at + 2] = rng.standard_normal(len(blocks)).astype(np.float16)[:, None].view(np.uint8)
    array = PackedArray(data, (8, 4 * format.block[1]), format)
    assert ScaleCheck()(array)
    for at in halves:
        for value in (np.nan, np.inf, -np.inf):
            before = blocks[17, at : at + 2].copy()
            blocks[17, at : at + 2] = np.array([value], np.float16).view(np.uint8)
            assert not ScaleCheck()(array)
            blocks[17, at : at + 2] = before


# -- safetensors ----------------------------------------------------------------------------------


def safetensors(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"[" * (1 << 23) + b"]" * (1 << 23), "more brackets"),
        (b"{" + b",".join(b'"%d":{}' % i for i in range(1 << 20)) + b"}", "more brackets"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "header"),
        (b'{"a":{"dtype":"F32","shape":[' + b",".join([b"140737488355327"] * 100_000) + b'],"data_offsets":[0,4]}}', "no tensor has"),
        (b'{"a":{"dtype":"F32","shape":[' + b"9" * 100_000 + b'],"data_offsets":[0,4]}}', "header"),
        (b'{"a":{"dtype":"F32","shape":[1e308],"data_offsets":[0,4]}}', "no tensor has"),
        (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', "no tensor has"),
        (b'{"a":{"dtype":"F32","shape":"aaaa","data_offsets":[0,4]}}', "no tensor has"),
        (b'{"__metadata__":7,"\\n":{}}', "header"),
        (b"\xff\xfe{}", "header"),
    ],
)
def test_a_safetensors_header_that_is_a_bomb(tmp_path: Path, header: bytes, says: str) -> None:
    """Brackets without end, numbers without end, axes without end."""
    path = safetensors(tmp_path / "bad.safetensors", header, bytes(8))
    refused(says, lambda: SafetensorsFile.open(path))


def test_a_header_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    """The file is as long as it says, and still no model's header is."""
    path = sparse(tmp_path / "bad.safetensors", struct.pack("<Q", 1 << 30) + b"{", 2 << 30)
    refused("claims 1073741824 bytes", lambda: SafetensorsFile.open(path))


@pytest.mark.parametrize("name", (SafetensorsFile.index, "config.json"))
def test_json_of_a_gigabyte_is_refused(tmp_path: Path, name: str) -> None:
    """An index or config.json that is all zeros, and long."""
    safetensors(tmp_path / "model.safetensors", b"{}")
    sparse(tmp_path / name, b"{", 1 << 30)
    refused("1073741824 bytes of JSON", lambda: SafetensorsFile.open(tmp_path))


@pytest.mark.parametrize(
    "file",
    ("../secret.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "a\nb", 7, None, ["x"], "pipe", "folder", "absent", "loop"),
)
def test_an_index_that_points_elsewhere(tmp_path: Path, file: Any) -> None:
    """Outside the folder, at a pipe nobody writes to, at a folder, at nothing, at itself."""
    safetensors(tmp_path / "secret.safetensors", b"{}")
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / SafetensorsFile.index).write_text(json.dumps({"weight_map": {"a": file}}))
    refused(r"legal: the name of a file|not a file|No such file|symbolic links", lambda: SafetensorsFile.open(folder))


def test_an_index_of_many_files_that_are_not_there(tmp_path: Path) -> None:
    """A hundred thousand names: the first that is missing ends it."""
    (tmp_path / SafetensorsFile.index).write_text(json.dumps({"weight_map": {f"t{i}": f"f{i}.safetensors" for i in range(100_000)}}))
    refused("No such file", lambda: SafetensorsFile.open(tmp_path))


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    """Whatever is no regular file is refused without being opened."""
    for name in ("a.safetensors", "params.json", "b.gguf"):
        os.mkfifo(tmp_path / name)
    for name in ("a.safetensors", "b.gguf"):
        with pytest.raises(CheckpointError, match="not a"):
            Checkpoint.open(tmp_path / name)


# -- anything at all ------------------------------------------------------------------------------

ENTRIES = [
    "general.architecture", "general.alignment", "general.name", "split.count", "llama.vocab_size", "llama.context_length",
    "llama.embedding_length", "llama.block_count", "llama.feed_forward_length", "llama.attention.head_count",
    "llama.attention.head_count_kv", "llama.attention.key_length", "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
    "llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.dimension_count", "llama.attention.scale",
    "llama.final_logit_softcapping", "llama.attn_logit_softcapping", "tokenizer.ggml.tokens",
    "tokenizer.ggml.model", "tokenizer.ggml.eos_token_id",
]  # fmt: skip
VALUES = st.one_of(
    st.integers(0, 300).map(lambda n: (4, struct.pack("<I", n))),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: (11, struct.pack("<q", n))),
    st.floats(width=32).map(lambda x: (6, struct.pack("<f", x))),
    st.booleans().map(lambda b: (7, bytes([b]))),
    st.sampled_from(["llama", "linear", "none", "gpt2", "", "two\nlines"]).map(lambda s: (8, struct.pack("<Q", len(s)) + s.encode())),
    st.lists(st.integers(0, 99), max_size=3).map(lambda v: (9, struct.pack(f"<IQ{len(v)}I", 4, len(v), *v))),
    st.lists(st.sampled_from([b"", b"a", b"\xff"]), max_size=3).map(
        lambda v: (9, struct.pack("<IQ", 8, len(v)) + b"".join(struct.pack("<Q", len(s)) + s for s in v))
    ),
    st.just((9, struct.pack("<IQIQ", 9, 1, 9, 0) + struct.pack("<IQ", 4, 0))),
)


@ANY
@given(changes=st.dictionaries(st.sampled_from(ENTRIES), VALUES, min_size=1, max_size=4))
def test_any_metadata_is_taken_or_refused(tmp_path: Path, changes: dict[str, tuple[int, bytes]]) -> None:
    """A model of one small layer whose entries are replaced by any value of any type: it loads, or one line says why not."""
    from iron_llama.model import Llama
    from iron_lm import loading

    whole = (4, struct.pack("<I", 32))
    usual = {name: whole for name in ENTRIES if name.startswith("llama.") and name.rpartition(".")[2] not in ("type", "factor", "scale")}
    usual |= {"llama.block_count": (4, struct.pack("<I", 1)), "llama.attention.layer_norm_rms_epsilon": (6, struct.pack("<f", 1e-5))}
    usual |= {f"llama.attention.{name}": (4, struct.pack("<I", 2)) for name in ("head_count", "head_count_kv")}
    usual |= {"llama.attention.key_length": (4, struct.pack("<I", 16)), "llama.rope.dimension_count": (4, struct.pack("<I", 16))}
    usual["general.architecture"] = (8, struct.pack("<Q", 5) + b"llama")
    del usual["llama.final_logit_softcapping"], usual["llama.attn_logit_softcapping"]
    entries = usual | changes
    layer = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm")
    names = ["token_embd", "output_norm", *(f"blk.0.{name}" for name in layer)]
    places = [place(f"{name}.weight", (32,) if "norm" in name else (32, 32), 0, 4096 * i) for i, name in enumerate(names)]
    head = gguf(b"".join(key(name, *value) for name, value in entries.items()), len(entries), b"".join(places), len(names))
    path = sparse(tmp_path / "any.gguf", head, 4096 * (len(names) + 4))
    try:
        loading.load(Llama, str(path))
    except IronError as error:
        assert "\n" not in str(error), error


def test_the_command_line_says_it_in_one_line(tmp_path: Path, pth: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`iron-run llama FILE` of each kind: status 2, one line, nothing on standard output."""
    meta(tmp_path, pth, pickle.dumps({"w": Runs(os.system, "true")}))
    head, size, _ = CASES["a string of a gigabyte"]
    files = [
        sparse(tmp_path / "bad.gguf", head, size),
        safetensors(tmp_path / "bad.safetensors", b"[" * (1 << 22)),
        tmp_path / "consolidated.00.pth",
    ]
    for path in files:
        assert main(["run", "llama", str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and re.fullmatch(r"error: [^\n]+\n", err), err
