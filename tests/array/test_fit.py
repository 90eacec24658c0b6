"""`fit`: what is known to fit is not asked again."""

from __future__ import annotations

import pickle

import attrs
import pytest

from iron_core.array import fit as fitting
from iron_core.array import limits, router, spec, spec_sequence
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.errors import Unresolvable
from iron_ops_aie import ElementwiseAdd


@pytest.fixture
def asked(monkeypatch):
    """The names of the checks that ran, in order."""
    names = []

    def watch(module, name):
        check = getattr(module, name)

        def noted(*args):
            names.append(f"{module.__name__.rpartition('.')[2]}.{name}")
            return check(*args)

        monkeypatch.setattr(module, name, noted)

    for module, name in ((spec, "check"), (router, "place_and_route"), (spec_sequence, "check_sequence"), (limits, "check")):
        watch(module, name)
    fitting._fitted.cache_clear()
    fitting._array.cache_clear()
    return names


def test_a_design_is_checked_once(asked):
    """An equal one too, such as one read from a file."""
    design = build(ElementwiseAdd(size=4096), "npu2").design
    places = fit(design)
    assert asked == ["spec.check", "router.place_and_route", "spec_sequence.check_sequence", "limits.check"]
    assert fit(pickle.loads(pickle.dumps(design))) == places and len(asked) == 4


def test_an_array_is_checked_and_placed_once_for_every_extent(asked):
    """Of another extent the sequence alone is new."""
    one, other = (build(ElementwiseAdd(size=n, tile_size=256, num_aie_columns=2), "npu2").design for n in (4096, 65536))
    assert fit(one) == fit(other)
    assert asked.count("spec.check") == asked.count("router.place_and_route") == 1 and asked.count("limits.check") == 2


def test_what_does_not_fit_is_refused_each_time():
    design = build(ElementwiseAdd(size=4096), "npu2").design
    core, *others = design.array.cores
    swollen = attrs.evolve(design, array=attrs.evolve(design.array, cores=(attrs.evolve(core, stack=70000), *others)))
    for _ in range(2):
        with pytest.raises(Unresolvable, match="bytes of memory and has 65536"):
            fit(swollen)
