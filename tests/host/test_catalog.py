"""Every operator of the catalog on the host, on its own test cases, against its reference."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core import OperatorImage
from iron_core.declare.cases import cases
from iron_core.declare.formats import PackedArray
from iron_host.backend import HostBackend
from tests.catalog import OPERATORS, named
from tests.host.test_random_elementwise import ELEMENTWISE

#: The run loop evaluates Emit's table, and a gather takes ids as they are: no graph calls these two on the host.
WITHOUT_KERNEL = {"Emit", "GatherWords"}
#: Two of its bounds are one number, which only a graph says; there a kernel takes them.
TIED = {"RoPE"}

CASES = [(cls, case) for cls, case, _ in cases(OPERATORS)]


@pytest.mark.parametrize(("cls", "case"), CASES, ids=named)
def test_an_operator_is_within_its_contract(one_step, cls, case):
    """On every case, by a kernel and not a call-back, the host is as close to the exact result as the contract asks."""
    whole = cls(**case.fields)
    op = case.bounded(whole)
    drawn = cls.test.draw(op, np.random.default_rng(0))
    if case.bounds:
        image = OperatorImage(whole, bounds=tuple(case.bounds), backend=HostBackend(strict=cls.__name__ not in TIED))
        given = [drawn[o.name] for o in op.inputs if o.present(op)]

        def host(_: Any) -> Any:
            made = image(*given, **case.bounds)
            return made if isinstance(made, tuple) else (made,)
    else:
        host = one_step(op, strict=cls.__name__ not in WITHOUT_KERNEL)
    got = host(drawn)
    inputs = tuple(drawn.get(o.name) for o in op.inputs)
    kept = {name: np.zeros(op.shape(name), op.format(name).dtype) for name in op.partial}
    exact = op.reference(*(_copy(a) for a in inputs), **kept)
    deviation = op.check(tuple(got), exact if isinstance(exact, tuple) else (exact,), *inputs)
    assert deviation.compared > 0
    again = host(drawn)
    for first, second in zip(got, again, strict=True):
        assert _bytes(first) == _bytes(second), "the same call twice is equal bit for bit"


@pytest.mark.parametrize("cls", [cls for cls in OPERATORS if cls.__name__ not in WITHOUT_KERNEL], ids=named)
def test_every_operator_has_a_kernel(cls):
    """`supports()` answers with a kernel for the first case of every operator."""
    case = next(case for _, case, _ in cases([cls]))
    assert HostBackend().supports(cls(**case.fields), "host").how.startswith("kernel")


def _bytes(array):
    return (array.data if isinstance(array, PackedArray) else array).tobytes()


def _copy(array):
    return array if array is None or isinstance(array, PackedArray) else array.copy()


def test_every_operator_is_tried_at_random_shapes():
    """Views and bounds too, two hundred of each, in the modules beside this one; whatever has no kernel is named above."""
    modules = [importlib.import_module(f"tests.host.{file.stem}") for file in Path(__file__).parent.glob("test_random_*.py")]
    alone = (vars(module).values() for module in modules if module.__name__ != "tests.host.test_random_graphs")
    tried = {thing for things in alone for thing in things if isinstance(thing, type)}
    tried |= set(ELEMENTWISE)
    assert {cls.__name__ for cls in OPERATORS if cls not in tried} == WITHOUT_KERNEL


@pytest.mark.parametrize("cls", OPERATORS, ids=named)
def test_what_has_no_kernel_says_why(cls):
    """On its own page: no graph calls it, and what there is in its place."""
    assert bool(re.search(r"No graph calls it.* no kernel", cls.__doc__ or "", re.DOTALL)) == (cls.__name__ in WITHOUT_KERNEL)
