"""Options belong to the backend's object; what a backend does not take is refused; equal options are one backend to a graph."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends import choose
from iron_core.backends.null import NullBackend
from iron_core.backends.protocol import Backend
from iron_core.backends.reference import ReferenceBackend
from iron_core.errors import CallError, UnsupportedError
from iron_core.plugins.record import Record
from iron_core.plugins.registry import Registry
from iron_host.backend import HostBackend
from iron_ops_aie import SiLU
from iron_sim.backend import SimBackend

F32 = np.float32


@attrs.frozen
class Limited(ReferenceBackend):
    """A backend with an option of its own."""

    rows: int = attrs.field(default=8, kw_only=True)
    name = "limited"

    def __attrs_post_init__(self) -> None:
        if self.rows < 1:
            raise CallError(f"rows={self.rows}; legal: 1 or more.")


class Plain(ReferenceBackend):
    """A backend that is no attrs class."""

    name = "plain"

    def __init__(self, rows: int = 8) -> None:
        self.rows = rows


class Sharing(ReferenceBackend):
    """A backend whose versions may compute one another's words, and that shares arrays."""

    def __init__(self) -> None:
        self.told: Any = ()

    def compile(self, plan: Any, signature: Any, *, feeds: Any = None, coresident: Any = None) -> Any:
        self.told = feeds, coresident
        return super().compile(plan, signature)


class Smooth(iron.Graph):
    def body(self, x: Any) -> Any:
        return SiLU(x)


class Entry:
    def __init__(self, named: Any) -> None:
        self.named, self.loads = named, 0

    def load(self) -> Any:
        self.loads += 1
        return self.named


@pytest.fixture
def installed(monkeypatch):
    """The backends `limited` (an entry point that names a class) and `ready` (one that names an object)."""

    class Ready(Plain):
        name = "ready"

    entries = {"limited": Entry(Limited), "ready": Entry(Ready(3))}
    found = Registry([Record("backends", 1, name, f"acme.backend:{name}", "iron-acme", "1", entry) for name, entry in entries.items()])
    monkeypatch.setattr("iron_core.backends.choose.registry", lambda: found)
    return entries


@pytest.mark.parametrize("cls", [Limited, Plain])
def test_backends_compare_by_value(cls):
    """Of one class and with equal options they are equal, and found in a table as one another."""
    assert cls(rows=2) == cls(rows=2) != cls(rows=3)
    assert {cls(rows=2): "it"}[cls(rows=2)] == "it"
    assert cls() != ReferenceBackend() == ReferenceBackend()


@pytest.mark.parametrize("cls", [Limited, Plain])
def test_equal_options_are_one_compiled_graph(cls):
    """Another version of it, with its weights and states; other options have states of their own."""
    graph = Smooth()
    one = graph.compile(backend=cls(rows=2), x=((4,), F32))
    assert graph.compile(backend=cls(rows=2), x=((5,), F32)) is one and len(one.versions) == 2
    assert graph.compile(backend=cls(rows=3), x=((4,), F32)) is not one


def test_a_name_is_one_object_with_its_defaults(installed):
    """Made when it is first asked for; a class is instantiated, an object taken as it is."""
    assert installed["limited"].loads == 0
    assert choose.get("limited") is choose.get("limited") == Limited()
    assert choose.get("ready") is installed["ready"].named
    assert choose.get("limited").rows == 8 and choose.get("ready").rows == 3
    assert isinstance(choose.get("limited"), Backend)


def test_a_name_with_options_is_such_a_backend(installed, monkeypatch):
    """By its name, by `IRON_BACKEND` or as the first available: a command line passes its options on."""
    assert choose.get("limited", rows=2) == Limited(rows=2)
    assert choose.choose("limited", rows=2).backend == Limited(rows=2)
    monkeypatch.setenv("IRON_BACKEND", "limited")
    assert choose.choose(rows=5).backend == Limited(rows=5)
    assert choose.choose().backend is choose.get("limited")


def test_the_first_available_takes_options_too(installed, monkeypatch):
    """It is chosen as without them."""
    monkeypatch.delenv("IRON_BACKEND", raising=False)
    monkeypatch.setattr(Limited, "preference", 10)
    choice = choose.choose(rows=5)
    assert choice.backend == Limited(rows=5) and "limited is the first available" in choice.reasons[0]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: choose.get("limited", threads=2), r"backend limited has no option threads. Its options: rows\."),
        (lambda: choose.get("limited", rows=0), r"rows=0; legal: 1 or more"),
        (lambda: choose.get("ready", rows=2), r"backend ready has no option rows. Its options: none\."),
        (lambda: choose.get("reference", threads=2), r"backend reference has no option threads. Its options: none\."),
        (lambda: choose.choose(Limited(), rows=2), r"rows: options are given where a Limited is made"),
        (lambda: Smooth().compile(backend="reference", threads=99, x=(4,)), r"has no input threads. Inputs: x; a backend's options"),
        (lambda: Smooth().compile(backend=3, x=(4,)), r"backend=3; legal: a backend's name, or an object of its class\."),
        (lambda: Smooth().compile(backend=Limited, x=(4,)), r"legal: a backend's name, or an object of its class, as Limited\(\)"),
        (lambda: Smooth().compile(backend="null", dev="npu2", strict=True, x=(4,)), r"has no input strict"),
    ],
)
def test_options_a_backend_does_not_have_are_refused(installed, ask, says):
    """CallError names the option and those there are; `compile()` has none but its own keywords."""
    with pytest.raises(CallError, match=says):
        ask()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HostBackend(nonsense=1), r"backend host has no option nonsense\. Its options: threads, tiles, strict, tuned\."),
        (lambda: HostBackend(2), r"backend host has no option 2\. Its options: threads, tiles, strict, tuned\."),
        (lambda: SimBackend(nonsense=1), r"backend sim has no option nonsense\. Its options: trace\."),
        (lambda: ReferenceBackend(nonsense=1), r"backend reference has no option nonsense\. Its options: none\."),
        (lambda: NullBackend(3), r"backend null has no option 3\. Its options: none\."),
        (lambda: Limited(row=1), r"backend limited has no option row\. Its options: rows\."),
        (lambda: Plain(1, 2), r"backend plain has no option 2\. Its options: rows\."),
    ],
)
def test_so_are_they_where_it_is_made(make, says):
    """In the words of a backend that is named; what it has is taken, in the order its class has it."""
    with pytest.raises(CallError, match=says):
        make()
    assert Plain(3) == Plain(rows=3) == copy.copy(Plain(3)) == pickle.loads(pickle.dumps(Plain(3)))


@pytest.mark.parametrize("keyword", ["feeds", "coresident"])
@pytest.mark.parametrize("backend", ["reference", "null"])
def test_a_keyword_a_backend_does_not_take_is_refused(backend, keyword):
    """Before anything is planned, whatever it says."""
    graph = Smooth()
    with pytest.raises(UnsupportedError, match=rf"{keyword}= was given, and backend {backend} takes none"):
        graph.compile(backend=backend, x=(4,), **{keyword: "nonsense"})
    assert not graph.__dict__.get("_compiled")


def test_a_keyword_a_backend_takes_reaches_it():
    """As it was given; where it was not, the backend's default stands."""
    sharing = Sharing()
    first = Smooth().compile(backend=sharing, feeds=("x",), coresident=[1], x=(4,))
    assert sharing.told == (("x",), [1])
    Smooth().compile(backend=sharing, x=(4,))
    assert sharing.told == (None, None)
    first.add(x=(6,))
    assert sharing.told == (("x",), [1]), "a version added later is compiled as the last one was"
