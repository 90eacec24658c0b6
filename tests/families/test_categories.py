"""What a profile counts a family's steps under: the part that made them. No test looks at how long things take."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core.errors import TraceError
from iron_lm import profile
from iron_lm.generation.session import Session
from tests.families.conftest import Family

EVERY = {"embedding", "attention", "norms", "residuals", "head", "sampling"}
#: What families have besides.
BESIDES = {
    "gpt2": {"feed-forward"},
    "qwen2_moe": {"rotary", "experts", "router", "shared expert"},
    "qwen3_moe": {"rotary", "experts", "router"},
    "qwen3_5": {"rotary", "feed-forward", "delta rule", "convolution"},
    "qwen3_5_moe": {"rotary", "experts", "router", "shared expert", "delta rule", "convolution"},
    "qwen3_next": {"rotary", "experts", "router", "shared expert", "delta rule", "convolution"},
}
#: Operators that one part alone calls.
WHOSE = {
    "Route": {"router"},
    "GatedExperts": {"experts"},
    "CombineExperts": {"experts"},
    "MHA": {"attention"},
    "RMSNorm": {"norms"},
    "LayerNorm": {"norms"},
    "CausalConv1d": {"convolution"},
    "GatedDeltaStep": {"delta rule"},
    "Sample": {"sampling"},
}


def test_each_step_is_of_the_part_that_made_it(family: Family) -> None:
    """A decode step of every family has these categories and no step without one."""
    steps = family.model().trace().steps
    assert {step.category for step in steps} == EVERY | BESIDES.get(family.name, {"rotary", "feed-forward"})
    found: dict[str, set[str]] = {}
    for step in steps:
        found.setdefault(type(step.op).__name__, set()).add(step.category)
    assert {name: found[name] for name in WHOSE if name in found} == {name: WHOSE[name] for name in WHOSE if name in found}


def test_a_profile_adds_up_by_category(qwen2_moe: Family) -> None:
    """Steps, seconds and bytes of a pass are those of the rows by kind, in the table too."""
    session = Session(qwen2_moe.model(prefill_chunk=32), backend="host")
    with profile.profiled(session) as found:
        session.generate(qwen2_moe.ids[:40], 4)
    for phase in found.phases():
        assert {"experts", "router", "shared expert"} <= {row.kind for row in phase.categories}
        for number in ("steps", "seconds", "busy", "nbytes", "operations"):
            kinds, categories = (sum(getattr(row, number) for row in rows) for rows in (phase.rows, phase.categories))
            assert categories == pytest.approx(kinds)
    text = profile.lines(found)
    assert text.count("  by part of the model:") == 2 and sum(line.startswith("  shared expert ") for line in text) == 2


def test_a_category_is_of_a_body() -> None:
    """Outside of one it is refused."""
    with pytest.raises(TraceError, match=r"category\('router'\) outside a body. Legal: in the body of a graph"), iron.category("router"):
        raise AssertionError("entered")
