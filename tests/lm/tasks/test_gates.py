"""The checks a model passes catch what they are for, and pass nothing they did not look at."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError, UsageError
from iron_lm.generation.session import Session
from iron_lm.run import Run
from iron_lm.tasks.gates import Gate, Report, check_accuracy, check_chat_turn, check_determinism, check_vectors, llama_cpp_figures


@pytest.fixture(scope="module")
def session(tiny: Any) -> Session:
    return Session(tiny.model(), backend="host")


@pytest.fixture(scope="module")
def twin(tiny: Any) -> Any:
    return tiny.loaded().twin


class Off:
    """A session whose logits are another's plus something that depends on how often it was asked."""

    def __init__(self, session: Session, error: float, each_time: float = 0.0) -> None:
        self.session, self.error, self.each_time = session, error, each_time
        self.model = session.model
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def logits(self, ids: Any) -> np.ndarray:
        self.asked += 1
        changed = self.session.logits(ids).copy()
        changed[3] += self.error + self.asked * self.each_time
        return changed


def test_a_report_of_nothing_fails() -> None:
    """However good its gates, a check that compared nothing is not passed, and says so."""
    report = Report("a check", (Gate("difference", 0.0, 1.0),), 0)
    assert not report.passed and not report.as_dict()["passed"]
    assert report.lines()[-1] == "compared nothing: FAILED"


def test_a_figure_that_is_no_number_fails() -> None:
    """NaN is neither below nor above a limit."""
    assert not Gate("difference", float("nan"), 1.0).passed
    assert not Gate("agreement", float("nan"), 1.0, at_most=False).passed


def test_the_right_logits_pass(tiny: Any, session: Session, twin: Any) -> None:
    """float32 with exact arithmetic is judged on its largest difference; every figure can be printed and dumped."""
    report = check_accuracy(session, twin, tiny.ids[:40])
    assert report.passed and report.compared == 40
    assert any("largest logit difference" in line and "ok" in line for line in report.lines())
    assert json.loads(json.dumps(report.as_dict()))["passed"] is True


@pytest.mark.parametrize("error", (0.01, float("nan"), float("inf")))
def test_one_wrong_logit_fails(tiny: Any, session: Session, twin: Any, error: float) -> None:
    """A single logit off by a hundredth, or no number, fails the float32 gate."""
    assert not check_accuracy(Off(session, error), twin, tiny.ids[:10]).passed  # type: ignore[arg-type]


def test_other_arithmetic_is_judged_by_divergence(tiny: Any, session: Session, twin: Any) -> None:
    """Without a peer's figures KL is the gate: it lets rounding through and not another model."""
    other = Off(session, 0.01)
    other.model = tiny.model(cache_dtype="bfloat16")
    assert check_accuracy(other, twin, tiny.ids[:20]).passed  # type: ignore[arg-type]
    other.error = 8.0
    assert not check_accuracy(other, twin, tiny.ids[:20]).passed  # type: ignore[arg-type]


def test_a_peers_figures_are_the_gates(tiny: Any, session: Session, twin: Any) -> None:
    """With llama.cpp's figures for the file and positions: 1.1 times its rms, and its top-1 less 3."""
    packed = Off(session, 0.5)
    packed.model = tiny.model(cache_dtype="float16", activations="int8_block")
    rms = 0.5 / 256**0.5
    peer = dict(positions=20, logit_rms=rms, top1_agreement=20, program="a peer")
    report = check_accuracy(packed, twin, tiny.ids[:20], peer)  # type: ignore[arg-type]
    gates = {g.name: g for g in report.gates}
    assert gates["logit rms"].limit == pytest.approx(1.1 * rms) and gates["top-1 agreement"].limit == 17
    assert gates["logit rms"].passed and "a peer" in report.lines()[-1]
    assert not check_accuracy(packed, twin, tiny.ids[:20], peer | dict(logit_rms=0.8 * rms)).passed  # type: ignore[arg-type]


def test_no_tokens_compare_nothing(session: Session, twin: Any) -> None:
    """An accuracy check of an empty text fails."""
    assert not check_accuracy(session, twin, []).passed


def test_runs_that_differ_are_counted(tiny: Any, session: Session) -> None:
    """Logits that change from call to call fail the determinism gate; one round is refused, and no prompts compare nothing."""
    report = check_determinism(Off(session, 0.0, each_time=1.0), [tiny.ids[:5], tiny.ids[:9]], 3)  # type: ignore[arg-type]
    assert not report.passed and report.gates[0].figure == 4 and report.compared == 4
    assert not check_determinism(session, [], 2).passed
    with pytest.raises(UsageError, match="legal: 2 rounds or more"):
        check_determinism(session, [tiny.ids[:5]], 1)


def test_a_turn_that_reuses_nothing_compares_nothing(tiny: Any, session: Session) -> None:
    """A chat turn within the first chunk runs from scratch both times; the check says it proved nothing."""
    assert check_chat_turn(session, tiny.ids[:33], 5, tiny.ids[40:44]).passed
    assert not check_chat_turn(session, tiny.ids[:5], 5, tiny.ids[40:44]).passed


def test_a_turn_over_stale_caches_fails(tiny: Any, session: Session) -> None:
    """Caches that do not hold what they are said to hold make the check fail."""

    class Stale(Off):
        def logits(self, ids: Any) -> np.ndarray:
            if len(ids) > 45 and self.asked == 0:
                self.asked = 1
                held = self.session.held
                self.session.held = []
                self.session.logits(ids[: len(held)][::-1])
                self.session.held = list(held)
            return self.session.logits(ids)

    assert not check_chat_turn(Stale(session, 0.0), tiny.ids[:40], 5, tiny.ids[40:60]).passed  # type: ignore[arg-type]


def test_logits_that_are_no_numbers_are_an_error(tiny: Any) -> None:
    """Weights with a NaN stop the run with one sentence instead of token 0 for ever."""
    model = tiny.model()
    model.layers[1].ffn.up.data = np.full_like(model.layers[1].ffn.up.data, np.nan)
    with pytest.raises(CheckpointError, match="not finite: the weights hold NaN"):
        Session(model, backend="host").logits(tiny.ids[:5])


def test_figures_belong_to_one_file(tiny: Any) -> None:
    """llama.cpp's figures are found by a file's content, so another file or a folder has none."""
    assert llama_cpp_figures(tiny.checkpoint.path) is None
    assert llama_cpp_figures(tiny.checkpoint.path / "config.json") is None


@pytest.mark.parametrize(
    ("dtype", "error", "passes"), [("float32", 5e-5, True), ("float32", 5e-4, False), ("bfloat16", 5e-2, True), ("bfloat16", 0.2, False)]
)
def test_vectors_are_judged_by_distance_or_by_cosine(dtype: str, error: float, passes: bool) -> None:
    """In float32 by the largest distance as a part of the length, elsewhere by the mean cosine; of no texts none pass."""
    rng, off = np.random.default_rng(0), np.array([0.0, 3.0])
    run = Run(8, 8, dtype=dtype)
    report = check_vectors(run, lambda ids: np.array([3.0, 0.0]) + error * off, lambda ids: np.array([3.0, 0.0]), [[1], [2, 3]])
    assert report.passed is passes and report.compared == 2
    assert not check_vectors(run, rng.random, rng.random, []).passed
