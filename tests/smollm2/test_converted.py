"""SmolLM2's GGUF converted to Q4NX: the narrowed formula's numbers, and a run that is that of weights made by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core import Q4_1, Q8_0, PackedArray, bfloat16
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.conversion.conversion import Conversion
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded

pytest.importorskip("iron_q4nx")
pytestmark = [pytest.mark.smollm2, pytest.mark.slow]
IDS = [504, 3575, 282, 4649, 314]


@pytest.fixture(scope="module")
def packed(smollm2: Path) -> Loaded:
    """The GGUF's own weights."""
    return loading.load(Llama, smollm2, max_seq_len=64)


@pytest.fixture(scope="module")
def folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("converted") / "smollm2"
    assert Conversion(smollm2, path, "q4nx").run().tensors == 273
    return path


@pytest.fixture(scope="module")
def converted(folder: Path) -> Loaded:
    return loading.load(Llama, folder, max_seq_len=64)


def wide(x: Any) -> np.ndarray:
    """Rounded to bfloat16, in float32."""
    return np.asarray(x, np.float32).astype(bfloat16).astype(np.float32)


def halves(rows: np.ndarray) -> np.ndarray:
    """Rows of heads of 64 whose turning pairs are neighbours, as those whose pairs are of the halves."""
    return rows.reshape(-1, 32, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def formula(path: str, array: Any) -> np.ndarray:
    """float32: what a weight of the GGUF is by the formula: integers times scale plus minimum, the latter two in bfloat16."""
    if not isinstance(array, PackedArray) or path == "embedding.table":
        return wide(array.dequantize() if isinstance(array, PackedArray) else array)
    if array.format is Q4_1:
        integers, scales, minima = Q4_1.fields(array.data, array.shape)
        assert minima is not None
    else:  # the head, which is the embedding
        assert array.format is Q8_0 and path == "head.matrix"
        groups = array.dequantize().reshape(len(array.data), -1, 32)
        minima, scales = groups.min(-1), (groups.max(-1) - groups.min(-1)) / np.float32(15)
        with np.errstate(divide="ignore"):
            inverse = np.where(scales > 0, np.float32(1) / scales, np.float32(0))
        integers = np.floor((groups - minima[..., None]) * inverse[..., None] + np.float32(0.5)).clip(0, 15).astype(np.int32)
    cut = integers.reshape(*scales.shape, 32).astype(np.float32)
    found = (cut * wide(scales)[..., None] + wide(minima)[..., None]).reshape(array.shape)
    return halves(found) if path.endswith((".mixer.q", ".mixer.k")) else found


def expected(packed: Loaded, path: str) -> np.ndarray:
    return formula(path, packed.exact.get(path, packed.exact["embedding.table"]))


def test_every_number_is_the_formulas(packed: Loaded, converted: Loaded) -> None:
    """Bit for bit, of all 134.5 million and the head's."""
    assert set(converted.exact) == {*packed.exact, "head.matrix"}
    for path, array in converted.exact.items():
        got = array.dequantize() if isinstance(array, PackedArray) else array.astype(np.float32)
        np.testing.assert_array_equal(got.view(np.uint32), expected(packed, path).view(np.uint32), err_msg=path)


def test_it_computes_what_the_formulas_numbers_do(packed: Loaded, converted: Loaded) -> None:
    """The oracle's logits of the file equal those of float32 weights that the formula gives, bit for bit."""
    made = attrs.evolve(converted, exact={path: expected(packed, path) for path in converted.exact})
    np.testing.assert_array_equal(converted.twin(IDS).view(np.uint32), made.twin(IDS).view(np.uint32))


def test_it_runs_as_a_copy_of_its_weights(converted: Loaded) -> None:
    """A run over the mapped file equals one of weights that lie in memory, and ranks the oracle's token first."""
    copied = attrs.evolve(converted, weights={path: array.copy() for path, array in converted.weights.items()})
    got, want = (Session(one.model(), backend="host").logits(IDS).copy() for one in (converted, copied))
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert int(got.argmax()) == int(converted.twin(IDS)[-1].argmax())


def test_its_tokenizer_is_the_same(packed: Loaded, converted: Loaded) -> None:
    """Ids of a text with control tokens, the ends of an answer, the chat template's text."""
    text = "The capital of France is <|im_start|>user\nhéllo 你好<|im_end|>\n  1234 def f(x):\treturn"
    own, made = packed.tokenizer, converted.tokenizer
    assert own is not None and made is not None
    ids = own.encode(text)
    assert ids == made.encode(text) and own.decode(ids) == made.decode(ids)
    assert (own.bos, own.stop) == (made.bos, made.stop)
    messages = [{"role": "user", "content": "hi"}]
    texts = [one.render(messages) for one in (packed.template(), converted.template()) if one is not None]
    assert len(texts) == 2 and texts[0] == texts[1]
