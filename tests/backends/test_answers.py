"""What the parts of a backend give is checked where they give it, whoever's it is: also one in a user's own script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.reference import ReferenceBackend
from iron_core.errors import BackendUnavailable, DeclarationError
from iron_ops_aie import ElementwiseAdd, SiLU

F32 = np.float32
X = np.ones(4, F32)


class Net(iron.Graph):
    def body(self, x: Any, *, n: iron.Carried[np.int32]) -> Any:
        return ElementwiseAdd(SiLU(x), x), iron.carry(n=n + 1)


class Step(iron.Graph):
    """Nothing but a number that goes on, so that it may be looped."""

    def __init__(self) -> None:
        self.s = iron.state((4,), F32)

    def body(self, *, n: iron.Carried[np.int32]) -> Any:
        return SiLU(self.s), iron.carry(n=n + 1)


def backend(**parts: Any) -> Any:
    """A reference backend with these methods in place of its own."""
    return type("Mine", (ReferenceBackend,), {"name": "mine", **parts})()


def running(**parts: Any) -> Any:
    """One whose executables are of these methods."""
    return backend(load=lambda self, image, memory: type("Runs", (), parts)())


def call(mine: Any) -> Any:
    return Net().compile(backend=mine, x=((4,), F32), fold=True)(X, n=0)


def loop(mine: Any) -> Any:
    return Step().compile(backend=mine).loop(2, n=0)


LEGAL = {
    "supports": r"Yes\(\) or No\(rule\)",
    "accepts": r"True, False or No\(rule\)",
    "compile": r"an image, which its load\(\) takes",
    "memory": r"a Memory, with grow\(\), read\(\) and write\(\)",
    "load": r"an Executable, with run\(\)",
}


@pytest.mark.parametrize("gives", [None, True, 3], ids=repr)
@pytest.mark.parametrize("part", LEGAL)
def test_a_part_that_gives_nothing_or_something_else_is_named(part, gives):
    """With the class, what it gave and what is legal."""
    if (part, gives) in (("accepts", True), ("compile", 3)):
        return
    mine = backend(**{part: lambda self, *given: gives})
    with pytest.raises(DeclarationError, match=rf"^Mine\.{part}\(\) gave {gives}.*; legal: {LEGAL[part]}\.$"):
        call(mine)


@pytest.mark.parametrize("part", ["probe", "devices"])
def test_one_that_does_not_say_whether_it_can_run_cannot(part):
    """Its probe's answer is the reason."""
    with pytest.raises(BackendUnavailable, match=rf"backend mine cannot run here: its {part}(\(\))? gave True \(bool\); legal: "):
        call(backend(**{part: lambda self: True}))


@pytest.mark.parametrize("gives", [True, 3, {}, {"n": 1, "m": 2}, [("n", 1)]], ids=repr)
def test_a_run_gives_what_is_carried_or_none(gives):
    """By name and complete; None leaves it to core."""
    with pytest.raises(DeclarationError, match=r"^Runs\.run\(\) gave .*; legal: None, or a dict of the next numbers of .*carried \(n\)"):
        call(running(run=lambda self, *given: gives))
    assert call(running(run=lambda self, *given: None))[1].n == 1
    assert call(running(run=lambda self, *given: {"n": 7}))[1].n == 7


@pytest.mark.parametrize("gives", [None, {}], ids=repr)
def test_a_loop_gives_what_is_carried(gives):
    parts = {"run": lambda self, *given: None, "loop": lambda self, *given: gives}
    with pytest.raises(DeclarationError, match=r"^Runs\.loop\(\) gave .*; legal: a dict of the next numbers of .*carried \(n\)"):
        loop(running(**parts))
    assert loop(running(**{**parts, "loop": lambda self, *given: {"n": 2}})) == {"n": 2}


@pytest.mark.parametrize("part", LEGAL)
def test_a_part_that_fails_is_named_with_its_line(part):
    """A slip of the script's, or arguments that the protocol does not have."""
    with pytest.raises(DeclarationError, match=rf"^Mine\.{part}\(\) fails at test_answers\.py:\d+: ZeroDivisionError"):
        call(backend(**{part: lambda self, *given: 1 // 0}))
    with pytest.raises(DeclarationError, match=rf"^Mine\.{part}\(\) fails: TypeError: .*positional argument"):
        call(backend(**{part: lambda self: None}))
