"""Every test case of the operators that have an array, on a device: within the gate of its reference, and the same again.

Those that are marked `bench` are timed. Cases that no array of a family takes are left out; tests/sim has what they are told.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from iron_core import OperatorImage
from iron_core.backends.choose import get
from iron_core.backends.measuring import Measuring, Run, RunList, Timing
from iron_core.declare.formats import PackedArray
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_sim.regions import whole
from tests.catalog import named
from tests.device.params import params


def bits(tensor: Any) -> bytes:
    return np.ascontiguousarray(tensor.data if isinstance(tensor, PackedArray) else tensor).tobytes()


@pytest.mark.supported_devices("npu1", "npu2")
@pytest.mark.parametrize(("cls", "case", "npu"), params(), ids=named, indirect=["npu"])
def test_a_case_is_within_its_gate(npu, cls, case):
    """What lies behind a bound is no number, and reaches none of its outputs; a call without the bound in between leaves nothing behind."""
    op = cls(**case.fields).resolved(device(npu.dev))
    try:
        image = OperatorImage(op, bounds=tuple(case.bounds), **npu.options)
    except UnsupportedError as error:
        assert not case.lower, f"an array is to take it (lower=True), but: {error}"
        npu.refuse(str(error))
    short = case.bounded(op)
    drawn = cls.test.draw(short, np.random.default_rng(0))
    inputs = tuple(drawn.get(operand.name) for operand in short.inputs)
    given = [whole(op, name, tensor) for name, tensor in drawn.items()]
    npu.take(image)

    def call() -> tuple[Any, ...]:
        made = image(*given, **case.bounds)
        return made if isinstance(made, tuple) else (made,)

    got = call()
    kept = {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    deviation = short.array_check(got if len(got) > 1 else got[0], short.reference(*inputs, **kept), *inputs)
    assert deviation.compared > 0
    if case.bounds:
        image(*cls.test.draw(op, np.random.default_rng(1)).values())
    assert list(map(bits, call())) == list(map(bits, got)), "the same call gave other bits"
    npu.figure(cls.__name__, case.id, "part of the gate", deviation.ratio)
    if case.bench and isinstance(get(npu.backend), Measuring):
        dispatch = "fused" if device(npu.dev).full_elf else "separate"  # npu1 has none
        runs = RunList(case.id, (Run(op, case.bounds),), dispatch=dispatch, compared=False)
        (measured,) = get(npu.backend).measure([runs], device(npu.dev), Timing(rounds=5, calls=10))
        if measured.disturbed:
            warnings.warn(f"{cls.__name__} {case.id} was not timed: {measured.disturbed}", stacklevel=1)
        else:
            npu.figure(cls.__name__, case.id, "us", measured.us)
