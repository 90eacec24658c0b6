"""Lowerings: found by backend, package and operator, for that class exactly, with tunables of their own."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from iron_core import Auto, In, Lowering, No, Operator, Out, Param, Yes
from iron_core.declare.domain import Choices, Width
from iron_core.devices import device
from iron_core.errors import CallError, DeclarationError, PluginError
from iron_core.lowering import lowering_for, lowering_name
from iron_core.plugins.record import Record
from iron_core.plugins.registry import Registry


class Square(Operator):
    size: int = Param()
    x = In(size)
    y = Out(size)

    def reference(self, x):
        return x * x


class Cube(Square):
    """Computes something else than its parent."""


class SquareOnHost(Lowering):
    backend = "host"
    operator = lowering_name("host", Square).removeprefix("host.")
    block = Auto(64)
    unroll = Auto(2)

    def supports(self, op, dev):
        return Yes("kernel square") if op.size % 4 == 0 else No("size is whole fours.", "Nearest: 4.")

    def resolve(self, op, dev):
        return {"unroll": 8} if op.size > 100 else {}


@pytest.fixture
def installed(monkeypatch):
    """`installed(name, what)`: a registry that has these lowerings, of this module, and no other."""
    records = []

    def add(name, what):
        entry = EntryPoint(name, what, "iron.lowerings.v1")
        records.append(Record("lowerings", 1, name, what, "iron-tests", "1", entry))
        known = Registry(records)
        for module in ("iron_core.lowering.registry", "iron_core.lowering.picks"):
            monkeypatch.setattr(f"{module}.registry", lambda: known)

    add(lowering_name("host", Square), f"{__name__}:SquareOnHost")
    return add


def test_the_name_is_backend_package_operator():
    """As entry points of `iron.lowerings.v1` spell it."""
    from iron_ops_aie import GEMV

    assert lowering_name("host", GEMV) == "host.iron_ops_aie.GEMV"


def test_a_lowering_is_found_for_its_operator_and_backend(installed):
    """One instance serves every step."""
    found = lowering_for("host", Square(size=8))
    assert isinstance(found, SquareOnHost)
    assert lowering_for("host", Square(size=9)) is found
    assert lowering_for("npu", Square(size=8)) is None


def test_a_subclass_never_inherits_a_lowering(installed):
    """It may compute something else."""
    assert lowering_for("host", Cube(size=8)) is None


def test_what_is_no_lowering_is_refused(installed):
    """An entry point that names something else is the plugin's mistake, and the message names it."""
    installed(lowering_name("host", Cube), "builtins:dict")
    with pytest.raises(PluginError, match=r"deriving from iron_core.Lowering"):
        lowering_for("host", Cube(size=8))


def test_an_entry_point_of_another_operator_is_refused(installed):
    """A slip of the pen in a pack would compute one operator by another's kernel."""
    installed(lowering_name("host", Cube), f"{__name__}:SquareOnHost")
    with pytest.raises(PluginError, match=r"Cube: its entry point names .*SquareOnHost, whose backend is 'host' and operator .*Square'"):
        lowering_for("host", Cube(size=8))


def test_tunables_are_given_then_resolved_then_default():
    """A profile's entry wins over `resolve()`, which wins over the `Auto` default."""
    lowering = SquareOnHost()
    assert lowering.tunables(Square(size=8), "host") == {"block": 64, "unroll": 2}
    assert lowering.tunables(Square(size=800), "host") == {"block": 64, "unroll": 8}
    assert lowering.tunables(Square(size=800), "host", {"unroll": 4}) == {"block": 64, "unroll": 4}


def test_a_tunable_it_does_not_have_is_refused():
    """With the ones it has: a caller's mistake where it was given, its author's where its own rule gives it."""
    with pytest.raises(CallError, match=r"the profile sets tile.*Its tunables: block, unroll"):
        SquareOnHost().tunables(Square(size=8), "host", {"tile": 3})

    class Slip(SquareOnHost):
        def resolve(self, op, dev):
            return {"tile": 3}

    with pytest.raises(DeclarationError, match=r"resolve\(\) sets tile.*Its tunables: block, unroll"):
        Slip().tunables(Square(size=8), "host")


class Searched(SquareOnHost):
    """Tunables of which a tuner searches some."""

    block = Auto(64, domain=Choices(lambda op: tuple(n for n in (16, 32, 64, 128) if op.size % n == 0)))
    unroll = Auto(2, domain=Choices((1, 2, 4)))
    wide = Auto(False)
    lanes = Auto(4, domain=Choices((4, 8), when="wide"))
    columns = Auto(1, domain=Width())


def test_domains_are_asked_of_the_operator_with_its_tunables():
    """They read the operator's fields and the tunables' values alike, and what is chosen is among them."""
    lowering, op = Searched(), Square(size=96)
    assert lowering.domains(op, "host") == {"block": (64, 16, 32), "unroll": (1, 2, 4), "columns": (1,)}
    assert lowering.domains(op, device("npu2"), {"wide": True, "block": 16}) == {
        "block": (16, 32),
        "unroll": (1, 2, 4),
        "lanes": (4, 8),
        "columns": (8, 4, 2, 1),
    }
    assert lowering.domains(Square(size=512), "host")["unroll"] == (8, 1, 2, 4), "resolve()'s own value first"
    assert SquareOnHost().domains(op, "host") == {}


def test_a_value_that_its_domain_does_not_have_is_refused():
    """With the legal ones; a tunable without a domain takes what it is given."""
    lowering, op = Searched(), Square(size=96)
    assert lowering.tunables(op, "host", {"block": 32, "wide": True})["block"] == 32
    for value in (48, 128, 32.0, True, "32"):
        with pytest.raises(CallError, match=rf"block={value!r}; legal: 64, 16, 32\."):
            lowering.tunables(op, "host", {"block": value})


def test_a_profiles_choice_is_no_tunables_name(installed):
    """An entry's "host.lowering" names a distribution."""

    class Slip(SquareOnHost):
        lowering = Auto(1)

    with pytest.raises(DeclarationError, match=r"Slip: a tunable `lowering` is what a profile chooses a lowering by; rename it\."):
        Slip().tunables(Square(size=8), "host")


def test_the_key_is_the_contract_unless_narrowed():
    """Two instances that compute the same share a build."""
    lowering = SquareOnHost()
    assert lowering.key(Square(size=8)) == lowering.key(Square(size=8)) != lowering.key(Square(size=12))
