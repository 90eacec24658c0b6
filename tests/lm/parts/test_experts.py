"""`Experts` alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import Q4_0
from iron_core.errors import ParamError
from iron_lm.parts.experts import Experts, ExpertsConfig, _arithmetic, routed
from iron_lm.run import Run
from iron_lm.testing import check_part, drawn
from iron_ops_aie import GatedExperts


@st.composite
def configs(draw):
    """Sizes, one expert to seven, one chosen to all, with a shared expert or without, whose gate there may be."""
    count = draw(st.integers(1, 7))
    shared = draw(st.none() | st.integers(1, 30))
    return ExpertsConfig(
        draw(st.integers(1, 40)),
        draw(st.integers(1, 30)),
        count,
        draw(st.integers(1, count)),
        renormalise=draw(st.booleans()),
        scale=draw(st.sampled_from((1.0, 2.5))),
        shared_size=shared,
        shared_gate=shared is not None and draw(st.booleans()),
    )


@settings(max_examples=12, deadline=None)
@given(config=configs(), rows=st.integers(1, 9), seed=st.integers(0, 99))
def test_it_is_its_twin(config: ExpertsConfig, rows: int, seed: int, backend: str, run: Run) -> None:
    """Any mixture; rows together and one by one."""
    x = np.random.default_rng(seed).standard_normal((rows, config.hidden_size)).astype(np.float32)
    report = check_part(Experts(config, run), run, x, rows // 2, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_what_is_chosen_and_how_it_is_weighted(run: Run) -> None:
    """By hand: the largest logits, the lower id first; raw shares of the softmax, or shares that add up to 1."""
    logits = np.log(np.array([[1, 4, 1, 2, 2]], np.float32))
    ids, shares = routed(logits, ExpertsConfig(1, 1, 5, 3))
    assert ids.tolist() == [[1, 3, 4]] and np.allclose(shares, [[0.4, 0.2, 0.2]])
    _, shares = routed(logits, ExpertsConfig(1, 1, 5, 3, renormalise=True, scale=2.0))
    assert np.allclose(shares, [[1.0, 0.5, 0.5]])


def test_large_logits_have_shares_too() -> None:
    """The largest is taken off before exponentials, which would be infinite."""
    ids, shares = routed(np.array([[200, 202, -300]], np.float32), ExpertsConfig(1, 1, 3, 2))
    assert ids.tolist() == [[1, 0]] and np.allclose(shares, np.array([[1, np.exp(-2)]]) / (1 + np.exp(-2)))


def test_how_blocks_are_multiplied_is_said_of_blocks_alone() -> None:
    """Dense matrices have one arithmetic."""
    dense = np.ones((2, 4, 32), np.float32)
    assert _arithmetic(dense, "exact") == {} and _arithmetic(Q4_0.quantize(dense), "int8_block") == {"activations": "int8_block"}


def test_a_profile_tells_the_shared_expert_from_the_others(run: Run) -> None:
    """By what each part is counted under."""
    part = Experts(ExpertsConfig(6, 6, 6, 2, shared_size=6), run)
    assert (part.category, part.shared and part.shared.category) == ("experts", "shared expert")


def test_every_matrix_counts(run: Run) -> None:
    """Two that are exchanged give other numbers, the router's rows too: a router read the other way round is seen."""
    config = ExpertsConfig(6, 6, 6, 2, shared_size=6, shared_gate=True)
    part, x = Experts(config, run), np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    weights = drawn(part)
    first = part.twin(weights, x)
    exchanged = [
        weights | {"gate": weights["up"], "up": weights["gate"]},
        weights | {"router": weights["router"].T},
        weights | {"router": weights["router"][::-1]},
        weights | {"down": weights["down"][::-1]},
        weights | {"down": weights["down"].transpose(0, 2, 1)},
        weights | {"opening": weights["opening"][:, ::-1]},
        weights | {"shared.gate": weights["shared.up"], "shared.up": weights["shared.gate"]},
    ]
    assert all(np.abs(part.twin(given, x) - first).max() > 1e-3 for given in exchanged)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_an_array_copies_the_few_of_many_that_one_row_chooses(dev: str) -> None:
    """Of 16 experts a row asks 2: three steps copy these by the ids that Route made, and no step reads a whole stack; on npu2 the device
    makes the addresses. Of 6, all go by; so they do for more rows, and the CPU reads where they lie."""
    for count, backend, copies in ((16, "sim", 3), (6, "sim", 0), (16, "host", 0)):
        part = Experts(ExpertsConfig(64, 32, count, 2, renormalise=True, shared_size=32, shared_gate=True), Run(24, 8))
        weights = {name: iron.round_to(array, iron.bfloat16) for name, array in drawn(part).items()}
        one, several = (dict(x=((rows, 64), iron.bfloat16)) for rows in (1, 2))
        compiled = part.fill(weights).compile(backend=backend, **one, **({"dev": dev} if backend == "sim" else {}))
        steps = next(iter(compiled.versions.values())).plan.steps
        assert [type(step.op).__name__ for step in steps].count("Copy") == copies
        assert next(step.op.experts for step in steps if isinstance(step.op, GatedExperts)) == (2 if copies else count)
        assert compiled.explain().count("GatherWords") == (3 if copies and dev == "npu2" else 0)
        with iron.using_device(dev):
            assert "Copy" not in [type(step.op).__name__ for step in part.trace(**several).steps]
        x = np.random.default_rng(count).standard_normal((1, 64)).astype(iron.bfloat16)
        want = part.twin({name: array.astype(np.float32) for name, array in weights.items()}, x.astype(np.float32))
        assert np.abs(compiled(x).astype(np.float32) - want).max() < 0.03 * np.abs(want).max()


def test_a_config_that_cannot_be_is_refused() -> None:
    """By field and value."""
    with pytest.raises(ParamError, match="chosen=5 of num_experts=4; legal: at most 4"):
        ExpertsConfig(8, 8, 4, 5)
    with pytest.raises(ParamError, match="shared_gate=True without a shared_size"):
        ExpertsConfig(8, 8, 4, 2, shared_gate=True)
