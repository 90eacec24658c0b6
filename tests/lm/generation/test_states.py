"""What a session holds, in a file: another goes on from it, bit for bit; another's file, or a damaged one, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.fingerprint import fingerprint
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors_header import read_header
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.states import States

WHOSE = {"family": "llama", "weights": "0123"}


def states(tiny: Any, **run: Any) -> States:
    return States(Session(tiny.model(**run), backend="host"), WHOSE)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one.view(np.uint32), other.view(np.uint32)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_another_session_goes_on_bit_for_bit(tiny: Any, tmp_path: Path, dtype: str) -> None:
    """With the next token, with a prompt, with an answer; and it runs none of what it was given again."""
    one, other = states(tiny, cache_dtype=dtype), states(tiny, cache_dtype=dtype)
    said = one.session.generate(tiny.ids[:40], 12, Sampler(temperature=1.0, seed=2))
    assert one.save(tmp_path / "s") == 51
    saved = other.load(tmp_path / "s")
    assert saved.ids == one.session.held == other.session.held == [*tiny.ids[:40], *said[:-1]] and saved.talk == ""
    for more in ([said[-1]], [said[-1], *tiny.ids[:30]]):
        assert same(*(each.session.logits([*saved.ids, *more]).copy() for each in (one, other)))
    assert one.session.generate([*saved.ids, 5], 20) == other.session.generate([*saved.ids, 5], 20)


def test_the_file_is_one_of_safetensors(tiny: Any, tmp_path: Path) -> None:
    """Any reader of such finds the ids and the rows in use, and no others."""
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors, another reader, is not installed")
    one = states(tiny)
    one.session.logits(tiny.ids[:40])
    one.save(tmp_path / "s", "grüße")
    found = numpy.load_file(tmp_path / "s")
    assert found["ids"].tolist() == tiny.ids[:40] and found["talk"].tobytes().decode() == "grüße"
    keys = one.session.compiled.read(one.session.model.layers[0].mixer.cache.keys)
    assert np.array_equal(found["cache.0.keys"], keys[:40])
    assert sorted(found) == ["cache.0.keys", "cache.0.values", "cache.1.keys", "cache.1.values", "digest", "ids", "talk"]
    assert len(os.listdir(tmp_path)) == 1


def test_nothing_held_is_a_state_too(tiny: Any, tmp_path: Path) -> None:
    """Of no tokens; the talk comes along."""
    one, other = states(tiny), states(tiny)
    assert one.save(tmp_path / "s", "talk") == 0
    other.session.logits(tiny.ids[:5])
    assert other.load(tmp_path / "s").talk == "talk" and other.session.held == []
    assert same(one.session.logits(tiny.ids[:9]), other.session.logits(tiny.ids[:9]))


@pytest.fixture(scope="module")
def written(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[States, bytes, Path]:
    """States whose session holds 12 tokens, a file of 30 others, and a place for damaged ones."""
    one, folder = states(tiny), tmp_path_factory.mktemp("states")
    one.session.logits(tiny.ids[20:50])
    one.save(folder / "whole")
    one.session.logits(tiny.ids[:12])
    return one, (folder / "whole").read_bytes(), folder / "damaged"


def refused(one: States, path: Path) -> str:
    """What is said of a file; the session is as it was."""
    before = list(one.session.held)
    with pytest.raises(CheckpointError) as caught:
        one.load(path)
    said = str(caught.value)
    assert one.session.held == before and str(path) in said and said.isprintable() and len(said) < 400
    return said


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_file_of_other_bytes_is_refused(written: tuple[States, bytes, Path], data: st.DataObject) -> None:
    """Cut short anywhere, longer, or with any bit turned: one line, and nothing is lost."""
    one, raw, place = written
    damage: Callable[[bytes], bytes] = data.draw(
        st.sampled_from(
            [
                lambda b: b[: data.draw(st.integers(0, len(b) - 1))],
                lambda b: b + data.draw(st.binary(min_size=1, max_size=9)),
                lambda b: (n := data.draw(st.integers(0, len(b) - 1))) * 0 or b[:n] + bytes([b[n] ^ 1 << n % 8]) + b[n + 1 :],
            ]
        )
    )
    place.write_bytes(damage(raw))
    refused(one, place)


def test_another_models_file_is_refused_by_what_differs(tiny: Any, written: tuple[States, bytes, Path]) -> None:
    """By name; and so is what is no state at all, or no file."""
    one, raw, place = written
    place.write_bytes(raw)
    for whose, says in (
        (WHOSE | {"weights": "4567"}, r"whose weights is another (0123 there, 4567 here)"),
        (WHOSE | {"more": "x"}, "whose more is another ( there, x here)"),
    ):
        assert says in refused(States(one.session, whose), place)
    smaller = States(Session(tiny.model(max_seq_len=32), backend="host"), WHOSE)
    assert smaller.load(place).ids == tiny.ids[20:50]  # its rows are the same; `whose` of a loaded model tells contexts apart
    shorter = States(Session(tiny.model(max_seq_len=16, prefill_chunk=16), backend="host"), WHOSE)
    assert "its tokens are none of this model. Legal: up to 16, each 0 to 95" in refused(shorter, place).replace("255", "95")
    narrow = States(Session(tiny.model(cache_dtype="float16"), backend="host"), WHOSE)
    assert "cache.0.keys is another (F32 [30, " in refused(narrow, place)
    place.write_bytes(b"[]")
    assert "needs bytes" in refused(one, place)
    refused(one, place.parent)
    refused(one, place.parent / "nowhere")
    weights = Path(__file__).parents[2] / "data" / "tiny_llama" / "model.safetensors"
    assert "it is no state that this version of Iron writes" in refused(one, weights)


def test_a_file_that_says_what_cannot_be_is_refused(tiny: Any, tmp_path: Path) -> None:
    """Of bytes that are whole: bases, states and names that no session of the model has."""
    one = states(tiny)
    one.session.logits(tiny.ids[:5])
    for whose, says in (
        ({"base": "7"}, "what no session of this model holds"),
        ({"at": "3"}, "what no session of this model holds"),
        ({"copies": "1 9"}, "what no session of this model holds"),
        ({"base": "x"}, "do not say where it stands"),
    ):
        _with_metadata(one, tmp_path / "s", whose)
        assert says in refused(one, tmp_path / "s")


def _with_metadata(one: States, path: Path, changes: dict[str, str]) -> None:
    """A state whose metadata say otherwise, its digest being right."""
    from iron_lm.generation import state_file

    one.save(path)
    file = MappedFile(path)
    header = read_header(file)
    tensors = {}
    for entry in header.entries:
        if entry.name == "digest":
            continue
        raw = file.view(entry.begin, entry.end - entry.begin, "").copy()
        dtype = np.dtype({"I32": np.int32, "F32": np.float32, "U8": np.uint8}[entry.dtype])
        array = raw.view(dtype).reshape(entry.shape)
        tensors[entry.name] = state_file.Tensor(entry.shape, dtype, lambda array=array: array)  # type: ignore[misc]
    metadata = {key: str(value) for key, value in header.metadata.items() if key != "kind"} | changes
    state_file.write(path, metadata, tensors)


def test_what_accepts_refuses_changes_nothing(tiny: Any, tmp_path: Path) -> None:
    """It sees the talk before the session is touched."""
    one = states(tiny)
    one.session.logits(tiny.ids[:5])
    one.save(tmp_path / "s", "talk")
    one.session.logits(tiny.ids[9:20])

    def accepts(talk: str) -> None:
        raise ValueError(talk)

    with pytest.raises(ValueError, match="talk"):
        one.load(tmp_path / "s", accepts)
    assert one.session.held == tiny.ids[9:20]


def test_a_cache_that_says_nothing_of_its_rows_is_refused_by_name(tiny: Any, tmp_path: Path) -> None:
    """Nothing is written."""

    class Ring:
        pass

    one = states(tiny)
    one.session.model.layers[0].mixer.cache = Ring()
    with pytest.raises(UsageError, match=r"a model with a Ring cannot be saved, for it has no in_use\(\)\. Legal: "):
        one.save(tmp_path / "s")
    assert not os.listdir(tmp_path)


def test_a_write_that_fails_leaves_what_was_there(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half way through the caches."""
    one = states(tiny)
    one.session.logits(tiny.ids[:9])
    one.save(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    one.session.logits(tiny.ids[:30])
    read, reads = one.session.compiled.read, []

    def fails(*given: Any) -> Any:
        reads.append(given)
        if len(reads) == 3:
            raise KeyboardInterrupt
        return read(*given)

    monkeypatch.setattr(one.session.compiled, "read", fails)
    with pytest.raises(KeyboardInterrupt):
        one.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == before and os.listdir(tmp_path) == ["s"]


def test_a_load_that_is_broken_off_leaves_nothing_held(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half way through the caches: what comes next runs from its start."""
    one = states(tiny)
    one.session.logits(tiny.ids[:30])
    one.save(tmp_path / "s")
    want = one.session.logits(tiny.ids[:31]).copy()
    write, writes = one.session.compiled.write, []

    def fails(*given: Any) -> Any:
        writes.append(given)
        if len(writes) == 3:
            raise KeyboardInterrupt
        return write(*given)

    with monkeypatch.context() as patched:
        patched.setattr(one.session.compiled, "write", fails)
        with pytest.raises(KeyboardInterrupt):
            one.load(tmp_path / "s")
    assert one.session.held == [] and same(one.session.logits(tiny.ids[:31]), want)


def test_weights_are_told_apart_by_some_of_their_numbers(tiny: Any) -> None:
    """By names, shapes, and rows here and there; a copy has the same fingerprint."""
    weights = {"a": np.arange(400, dtype=np.float32).reshape(40, 10), "b": np.ones(3, np.float32)}
    known = fingerprint(weights)
    assert known == fingerprint({name: array.copy() for name, array in weights.items()})
    other = weights["a"].copy()
    other[39, 9] = 0
    ones = np.ones(4, np.float32)
    changed = ({"a": other}, {"b": ones}, {"b": ones[:3].astype(np.float16)}, {"b": 2 * ones[:3]}, {"c": ones[:3]})
    assert len({known, *(fingerprint(weights | change) for change in changed)}) == 6
