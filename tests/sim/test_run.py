"""`simulate`: one operator's array on plain arrays; what it is given is checked before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import BoundsError, CallError
from iron_ops_aie import ReLU
from iron_sim.run import simulate

X = np.ones(1024, iron.bfloat16)


@pytest.mark.parametrize(
    ("tensors", "members", "says"),
    [
        ({"x": X, "z": X}, {}, "ReLU has no operand z; it has x, y"),
        ({"x": X}, {"rows": 3}, "ReLU has no per-call member rows; it has valid"),
        ({"x": X[:1000]}, {}, r"ReLU: x is bfloat16 of shape \(1024,\), 2048 bytes; got bfloat16 of shape \(1000,\)"),
        ({"x": X.astype(np.float32)}, {}, r"2048 bytes; got float32 of shape \(1024,\)"),
        ({"x": [1.0]}, {}, "2048 bytes; got list"),
    ],
)
def test_what_is_no_operand_or_no_such_tensor_is_refused(tensors, members, says):
    """A name that nobody reads, or bytes of another shape or dtype, would give numbers that mean nothing."""
    with pytest.raises(CallError, match=says):
        simulate(ReLU(size=1024), "npu2", tensors, members)


@pytest.mark.parametrize("valid", ["a", 1.5, None])
def test_a_member_is_a_whole_number(valid):
    with pytest.raises(CallError, match=r"valid=.*: a per-call value is a whole number"):
        simulate(ReLU(size=1024), "npu2", {"x": X}, {"valid": valid})


@pytest.mark.parametrize("valid", [-1, 1025])
def test_a_member_stays_in_its_extent(valid):
    """More than there is would have a core wait for data that never comes."""
    with pytest.raises(BoundsError, match=rf"ReLU: valid is {valid} \(valid={valid}\); legal: 0 to 1024"):
        simulate(ReLU(size=1024), "npu2", {"x": X}, {"valid": valid})
