"""Every operator of the catalog on the host, on its own test cases, against its reference."""

from __future__ import annotations

import numpy as np
import pytest

import iron_ops_aie
from iron_core.declare.formats import PackedArray

#: The run loop evaluates Emit's table, so Emit has no kernel.
WITHOUT_KERNEL = {"Emit"}

CASES = [
    pytest.param(getattr(iron_ops_aie, name), case, id=f"{name}-{case.id}")
    for name in iron_ops_aie.__all__
    for case in getattr(iron_ops_aie, name).test.cases(getattr(iron_ops_aie, name))
    if not case.extensive
]


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_an_operator_is_within_its_contract(one_step, cls, case):
    """On every case, by a kernel and not a call-back, the host is as close to the exact result as the contract asks."""
    op = cls(**case.fields)
    drawn = cls.test.draw(op, np.random.default_rng(0))
    host = one_step(op, strict=cls.__name__ not in WITHOUT_KERNEL)
    got = host(drawn)
    inputs = tuple(drawn.get(o.name) for o in op.inputs)
    kept = {name: np.zeros(op.shape(name), op.format(name).dtype) for name in op.partial}
    exact = op.reference(*(_copy(a) for a in inputs), **kept)
    deviation = op.check(tuple(got), exact if isinstance(exact, tuple) else (exact,), *inputs)
    assert deviation.compared > 0
    again = host(drawn)
    for first, second in zip(got, again, strict=True):
        assert first.tobytes() == second.tobytes(), "the same call twice is equal bit for bit"


@pytest.mark.parametrize("name", sorted(set(iron_ops_aie.__all__) - WITHOUT_KERNEL))
def test_every_operator_has_a_kernel(name):
    """`supports()` answers with a kernel for the first case of every operator."""
    from iron_host.backend import HostBackend

    cls = getattr(iron_ops_aie, name)
    case = next(iter(cls.test.cases(cls)))
    assert HostBackend().supports(cls(**case.fields), "host").how.startswith("kernel")


def _copy(array):
    return array if array is None or isinstance(array, PackedArray) else array.copy()
