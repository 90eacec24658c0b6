"""The tiny Llama as a GGUF: permuted queries and keys, rotary factors in a tensor, an untied head, block weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import inverse_frequencies


def load(path: Path, **options: Any) -> loading.Loaded:
    return loading.load(Llama, str(path), **{"max_seq_len": 128, **options})


def session(loaded: loading.Loaded, backend: str = "host") -> Session:
    return Session(loaded.model(), backend=backend)


def test_factors_in_the_file_are_the_scaling_of_config_json(tiny: Any, tiny_gguf: Any) -> None:
    """rope_freqs.weight divides the frequencies into what llama3 scaling makes of them."""
    config = load(tiny_gguf()).config
    assert config.rotary.neighbours and config.rotary.factors is not None and config.rotary.scaling is None
    np.testing.assert_allclose(inverse_frequencies(config.rotary)[0], inverse_frequencies(tiny.config().rotary)[0], rtol=1e-6)


@pytest.mark.parametrize("backend", ("reference", "host"))
def test_float32_equals_transformers(tiny: Any, tiny_gguf: Any, backend: str) -> None:
    """A prompt over several chunks, and one token more, are within 1e-4 of transformers on the unpermuted weights."""
    running = session(load(tiny_gguf()), backend)
    assert np.abs(running.logits(tiny.ids[:90]) - tiny.logits[89]).max() < 1e-4
    assert np.abs(running.logits(tiny.ids[:91]) - tiny.logits[90]).max() < 1e-4


def test_the_oracle_equals_transformers(tiny: Any, tiny_gguf: Any) -> None:
    """The numpy forward takes neighbouring pairs and factors too."""
    loaded = load(tiny_gguf())
    assert np.abs(loaded.twin(tiny.ids) - tiny.logits).max() < 1e-4


@pytest.mark.parametrize("kind", ("Q8_0", "Q4_0", "Q4_1"))
def test_blocks_with_exact_activations_equal_the_oracle(tiny: Any, tiny_gguf: Any, kind: str) -> None:
    """With float32 activations and the file's own blocks, host is the oracle on the same blocks but for float16 caches."""
    loaded = load(tiny_gguf(kind), activations="exact")
    assert loaded.stored.startswith(kind.lower())
    want = loaded.twin(tiny.ids[:50])[-1]
    assert np.abs(session(loaded).logits(tiny.ids[:50]) - want).max() < 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("kind", ("Q8_0", "Q4_0", "Q4_1"))
def test_int8_activations_are_the_references(tiny: Any, tiny_gguf: Any, kind: str) -> None:
    """host and the reference do the same integer arithmetic; a head in blocks is a resident of its own.

    A float beside the middle between two integers may round to either, and what follows it differs by the noise of
    rounding; that befalls few prompts, and the others agree as floats do.
    """
    loaded = load(tiny_gguf(kind))
    assert loaded.run.activations == "int8_block"
    running = {b: session(loaded, b) for b in ("host", "reference")}
    differences = []
    for n in (1, 3, 5, 8, 12, 16, 20, 40):
        host, reference = (s.logits(tiny.ids[:n]).copy() for s in running.values())
        differences.append(np.abs(host - reference).max() / np.abs(reference).max())
    assert np.median(differences) < 1e-5 and max(differences) < 2e-2, differences
    assert np.abs(host - tiny.logits[39]).std() < (0.02 if kind == "Q8_0" else 0.3) * tiny.logits[39].std()


def test_blocks_widen_to_a_dtype(tiny: Any, tiny_gguf: Any) -> None:
    """dtype=float32 runs the file's dequantised numbers; bfloat16 rounds them once."""
    path = tiny_gguf("Q8_0")
    wide = load(path, dtype="float32")
    want = wide.twin(tiny.ids[:20])[-1]
    assert wide.run.dtype == "float32" and isinstance(wide.weights["layers.0.mixer.q"], np.ndarray)
    assert np.abs(session(wide).logits(tiny.ids[:20]) - want).max() < 1e-4
    assert load(path, dtype="bfloat16").weights["embedding.table"].dtype.name == "bfloat16"


def test_a_tied_head_is_the_embedding(tiny: Any, tiny_gguf: Any) -> None:
    """Without output.weight the logits come from the embedding table."""
    loaded = load(tiny_gguf(tied=True))
    assert loaded.config.tied and "head.matrix" not in loaded.weights
    want = loaded.twin(tiny.ids[:20])[-1]
    assert np.abs(session(loaded).logits(tiny.ids[:20]) - want).max() < 1e-4


def test_a_head_of_a_type_iron_does_not_take_is_not_a_tied_head(tiny_gguf: Any) -> None:
    """A head that is there, in integers, is refused by name instead of being replaced by the embedding."""
    with pytest.raises(CheckpointError, match=r"output.weight is I8"):
        load(tiny_gguf("Q8_0", head="I8"))


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"llama.block_count": None}, "lacks llama.block_count"),
        ({"llama.block_count": "two"}, "llama.block_count is 'two'"),
        ({"llama.block_count": 3}, r"blk.2.* is missing"),
        ({"llama.attention.head_count_kv": [2, 2]}, "llama.attention.head_count_kv"),
        ({"llama.attention.head_count_kv": 3}, "llama.attention.head_count_kv=3 does not divide llama.attention.head_count=8"),
        ({"llama.attention.head_count": 0}, "head_count is 0"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon is nan"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "lacks llama.attention.layer_norm_rms_epsilon"),
        ({"llama.rope.scaling.type": "linear"}, "lacks llama.rope.scaling.factor"),
        ({"llama.rope.scaling.factor": -2.0}, "rope.scaling.factor is -2.0; legal: a positive number"),
        ({"llama.rope.scaling.attn_factor": 0.5}, "rope.scaling.attn_factor is 0.5; this model runs 1.0"),
        ({"llama.rope.freq_base": 0.0}, "rope.freq_base is 0.0"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn'"),
        ({"llama.rope.dimension_count": 18}, "llama.rope.dimension_count=18; legal: an even number up to llama.attention.key_length=16"),
        ({"llama.rope.dimension_count": 8}, "8 factors; legal: one for each of 4 pairs"),
        ({"llama.feed_forward_length": 96}, r"not \[96, 64\]"),
        ({"llama.vocab_size": 999}, r"not \[999, 64\]"),
    ],
)
def test_metadata_that_cannot_be_is_named(tiny_gguf: Any, metadata: dict[str, Any], says: str) -> None:
    """Each entry that is missing, of another kind, or at odds with the tensors is one line that names it."""
    with pytest.raises((CheckpointError, ValueError), match=says) as caught:
        load(tiny_gguf(metadata=metadata))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "factor"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scale_linear": 4.0, "rope.scaling.factor": 2.0}, 2.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.factor": 0.0}, None),
        ({}, None),
    ],
)
def test_positions_are_divided_as_llama_cpp_does(tiny_gguf: Any, entries: dict[str, Any], factor: float | None) -> None:
    """A factor without a type is linear, as the older key is, which the newer one goes before; 0 and "none" scale nothing."""
    config = load(tiny_gguf(metadata={f"llama.{key}": value for key, value in entries.items()})).config
    assert config.rotary.scaling == (None if factor is None else ("linear", (factor,)))


def test_what_a_gguf_leaves_out_is_as_llama_cpp_has_it(tiny_gguf: Any) -> None:
    """No rotary base is 10000, and that is said; no vocabulary size is the embedding's rows."""
    loaded = load(tiny_gguf(metadata={"llama.rope.freq_base": None, "llama.vocab_size": None}))
    assert loaded.config.rotary.base == 10000.0 and loaded.assumed == {"llama.rope.freq_base": 10000.0}
    assert load(tiny_gguf()).config.vocab_size == loaded.config.vocab_size and load(tiny_gguf()).assumed == {}
