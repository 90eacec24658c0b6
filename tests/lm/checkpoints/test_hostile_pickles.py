"""Pickled checkpoints made to do harm: nothing in them is run, and each opens or is refused in one line, soon and in little memory."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.meta import MetaFolder
from iron_lm.checkpoints.pickled import read
from tests.lm.hostile import ANY, Runs, meta, refused, sparse


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ("system", "eval", "open", "getattr", "import"))
def test_nothing_a_pickle_names_is_run(tmp_path: Path, pth: Any, protocol: int, name: str) -> None:
    """Whatever protocol and function: the name is refused, and the file it would have made is not there."""
    mark = tmp_path / "was run"
    what = {
        "system": Runs(os.system, f"touch '{mark}'"),
        "eval": Runs(eval, f"open({str(mark)!r}, 'w')"),
        "open": Runs(open, str(mark), "w"),
        "getattr": Runs(getattr, Path(mark), "touch"),
        "import": Runs(__import__, "antigravity"),
    }[name]
    refused("which is no part of a tensor|pickle instruction|damaged", meta(tmp_path, pth, pickle.dumps({"w": what}, protocol)))
    assert not mark.exists()


PICKLES = {
    "a tensor's function given a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cbuiltins\neval\ntR.",
    "a storage of a name": b"\x80\x02(X\x07\0\0\0storagecos\nsystem\ntQ.",
    "a parameter that is called": b"\x80\x02(X\x01\0\0\0atctorch._utils\n_rebuild_parameter\n)R.",
    "state set on a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x08\0\0\0__code__Nsb.",
    "an object's new": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "an extension": b"\x80\x02\x82\x01.",
    "an instance": b"\x80\x02(icollections\nOrderedDict\n.",
    "nothing": b"",
    "no stop": b"\x80\x02}",
    "an empty stack": b".",
    "a mark that is not there": b"\x80\x02}u.",
    "a number of 2000 bits": b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
    "a string beyond the end": b"\x80\x02X\xff\xff\xff\xff.",
    "a name without end": b"\x80\x02c" + b"a" * 4096,
    "a name of control characters": b"\x80\x02c\x1b[2J\nx\x07\n.",
    "a key that takes long": b"\x80\x02})" + b"\x85" * 1000 + b"Ns.",
    "marks without end": b"\x80\x02" + b"(" * (1 << 21),
    "steps without end": b"\x80\x02" + b"N0" * (1 << 22) + b".",
    "a list of itself": b"\x80\x02]q\0" + b"h\0a" * 100_000 + b".",
    "laughs": b"\x80\x02]q\0(" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(200)) + b"t.",
    "numbers where a tensor should be": b"\x80\x02}X\x01\0\0\0wK\x07s.",
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_pickle_that_is_no_dict_of_tensors(tmp_path: Path, pth: Any, case: str) -> None:
    """Calls, states and objects of any other kind, and what is broken or without end."""
    refused(r"consolidated\.00\.pth", meta(tmp_path, pth, PICKLES[case]))


def test_a_pickle_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    """The archive says how long it is, and it is not read."""
    (tmp_path / "params.json").write_text("{}")
    name, size = b"a/data.pkl", 1 << 30
    local = b"PK\3\4" + bytes(22) + struct.pack("<HH", len(name), 0) + name
    central = b"PK\1\2" + bytes(16) + struct.pack("<IIHHH", size, size, len(name), 0, 0) + bytes(8) + struct.pack("<I", 0) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + size, 0)
    path = sparse(tmp_path / "consolidated.00.pth", local, len(local) + size)
    with path.open("ab") as file:
        file.write(central + end)
    refused("a pickle of 1073741824 bytes", lambda: MetaFolder.open(tmp_path))


PLAIN = dict(key="0", kind="FloatStorage", numel=16, offset=0, shape=(16,), strides=(1,))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(numel=1 << 47), "lies outside its 64 bytes"),
        (dict(offset=1), "lies outside"),
        (dict(shape=(17,)), "lies outside"),
        (dict(shape=(1 << 47, 1 << 47), strides=(1 << 47, 1)), "lies outside"),
        (dict(shape=(-16,)), "damaged"),
        (dict(strides=(-1,)), "damaged"),
        (dict(shape=(16, 1), strides=(1,)), "damaged"),
        (dict(shape=(1,) * 9, strides=(1,) * 9), "damaged"),
        (dict(key="1"), "which the file lacks"),
        (dict(key="../../../etc/passwd"), "which the file lacks"),
        (dict(shape=(4, 5), strides=(1, 4)), "lies outside"),
        (dict(shape=(2, 2), strides=(1, 1 << 47)), "lies outside"),
    ],
)
def test_a_tensor_that_is_not_in_its_storage(tmp_path: Path, pth: Any, change: dict[str, Any], says: str) -> None:
    """Offsets, shapes and strides beyond the 16 numbers there are; storages that are not there."""
    refused(says, meta(tmp_path, pth, pth.pickled({"w": pth.tensor(**(PLAIN | change))}), {"0": bytes(64)}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(shape=(0,)), "1 or more along each axis"),
        (dict(strides=(0,)), "each number in a place of its own"),
        (dict(shape=(1 << 40,), strides=(0,)), "each number in a place of its own"),
        (dict(shape=(4, 4), strides=(1, 3)), "each number in a place of its own"),
        (dict(shape=(2, 2, 2), strides=(1, 1, 4)), "each number in a place of its own"),
        (dict(kind="LongStorage"), r"is a LongStorage\. Legal: FloatStorage"),
    ],
)
def test_a_tensor_that_is_not_taken_costs_nothing(tmp_path: Path, pth: Any, change: dict[str, Any], says: str) -> None:
    """Of other numbers, of none, of one number many times: the rest is read; who asks for it is told why not."""
    tensors = {"w": pth.tensor(**(PLAIN | change)), "v": pth.tensor(**PLAIN)}
    attempt = meta(tmp_path, pth, pth.pickled(tensors), {"0": bytes(64)})
    assert set(attempt().tensors) == {"v"}
    refused(says, lambda: attempt().tensors["w"])


def test_a_compressed_archive_is_no_bomb(tmp_path: Path, pth: Any) -> None:
    """torch stores entries as they are; one that is packed is not unpacked."""
    tensor = pth.tensor("0", "FloatStorage", 1 << 24, 0, (1 << 24,), (1,))
    refused("is compressed", meta(tmp_path, pth, pth.pickled({"w": tensor}), {"0": bytes(1 << 26)}, compress=True))


def test_an_archive_of_other_byte_order_is_refused(tmp_path: Path, pth: Any) -> None:
    """Numbers of a big-endian machine are not ours."""
    refused("byte order is b'big'", meta(tmp_path, pth, pth.pickled({}), order=b"big"))


def test_an_archive_that_lies_about_its_directory(tmp_path: Path, pth: Any) -> None:
    """Counts, sizes and places of the directory, and entries laid over each other."""
    attempt = meta(tmp_path, pth, pth.pickled({"w": pth.tensor("0", "FloatStorage", 4, 0, (4,), (1,))}), {"0": bytes(16)})
    path = tmp_path / "consolidated.00.pth"
    whole = path.read_bytes()
    attempt()
    end, second = whole.rindex(b"PK\5\6"), whole.index(b"PK\1\2", whole.index(b"PK\1\2") + 4)
    for at, value, says in (
        (end + 10, struct.pack("<H", 0xFFFF), "cut short"),
        (end + 12, struct.pack("<I", 0xFFFFFFFF), "claims"),
        (end + 16, struct.pack("<I", 0xFFFFFFF0), "cut short or damaged"),
        (second + 42, struct.pack("<I", 0), "overlaps"),
        (second + 20, struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF), "cut short or damaged"),
        (second + 20, struct.pack("<II", 1 << 30, 1 << 30), "cut short or damaged"),
        (end, b"XXXX", "no zip directory"),
    ):
        path.write_bytes(whole[:at] + value + whole[at + len(value) :])
        refused(says, attempt)


# -- anything at all ------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path: Path, pth: Any) -> Path:
    """A checkpoint in Meta's layout of two tensors in two storages."""
    tensors = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "norm": np.ones(4, np.float16)}
    (tmp_path / "params.json").write_text("{}")
    pth.save(tmp_path / "consolidated.00.pth", tensors)
    return tmp_path


def opens_or_is_refused(folder: Path) -> None:
    try:
        found = MetaFolder.open(folder).tensors
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        for shape, _, array in found.values():
            assert array.shape == shape
            np.asarray(array).astype(np.float64).sum()


@ANY
@given(damage=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3))
def test_damage_anywhere_in_an_archive(good: Path, damage: list[tuple[int, bytes]]) -> None:
    """Whatever bytes are overwritten, it opens, and its tensors are read, or is refused in one line."""
    path = good / "consolidated.00.pth"
    whole = path.read_bytes()
    data = bytearray(whole)
    for at, there in damage:
        data[at % len(data) : at % len(data) + len(there)] = there
    path.write_bytes(data)
    try:
        opens_or_is_refused(good)
    finally:
        path.write_bytes(whole)


@ANY
@given(share=st.floats(0, 1))
def test_an_archive_cut_anywhere(good: Path, share: float) -> None:
    """However short, it is refused by name."""
    path = good / "consolidated.00.pth"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * (len(whole) - 1))])
    try:
        with pytest.raises(CheckpointError, match=r"consolidated\.00\.pth"):
            MetaFolder.open(good)
    finally:
        path.write_bytes(whole)


CODES = [bytes([c]) for c in b"(0N}])tuse.aQRbqhrjKMJXcG\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95"]
WORDS = [
    b"ccollections\nOrderedDict\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
    b"X\x01\0\0\0a",
    b"X\x07\0\0\0storage",
    b"K\x01",
]


@ANY
@given(program=st.lists(st.sampled_from(CODES + WORDS) | st.binary(max_size=4), max_size=40))
def test_any_program_of_the_stack_machine(program: list[bytes]) -> None:
    """Any instructions in any order make data, or a CheckpointError of one line; nothing else."""
    try:
        read(b"".join(program) + b".", "here")
    except CheckpointError as error:
        assert "\n" not in str(error)


@ANY
@given(
    entries=st.dictionaries(
        st.sampled_from(["dim", "n_layers", "n_heads", "n_kv_heads", "norm_eps", "rope_theta", "use_scaled_rope", "vocab_size", "x\ny"]),
        st.none() | st.booleans() | st.integers(-1, 1 << 70) | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    )
)
def test_any_params_are_taken_or_refused(good: Path, entries: dict[str, Any]) -> None:
    """Whatever params.json says, the command line answers in one line."""
    from iron_llama.model import Llama
    from iron_lm import loading

    (good / "params.json").write_text(json.dumps(entries))
    with pytest.raises(ValueError) as caught:  # CheckpointError, ParamError and UsageError are
        loading.load(Llama, str(good))
    assert "\n" not in str(caught.value)
