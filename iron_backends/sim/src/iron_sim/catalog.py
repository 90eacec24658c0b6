"""Operators' own test cases on simulated arrays: equal to their tile references, and within their gates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.cases import cases
from iron_core.declare.formats import PackedArray
from iron_core.devices import device
from iron_core.errors import DeclarationError, DeviationError, IronError
from iron_sim.errors import SimulationError
from iron_sim.regions import whole
from iron_sim.run import simulate


@attrs.frozen
class Outcome:
    """One case on one device. bits: output numbers that differ from the composed tile references. error: the largest
    difference to the reference, relative to its gate `ratio`. refused: the rule, where no array takes the case."""

    operator: str
    case: str
    dev: str
    columns: int = 0
    cores: int = 0
    tiles: str = ""
    bits: int = 0
    compared: int = 0
    error: float = 0.0
    ratio: float = 0.0
    seconds: float = 0.0
    refused: str = ""
    failure: str = ""


def outcomes(classes: list[Any], devices: list[str], seed: int = 0, extensive: bool = False) -> Iterator[Outcome]:
    """Every case of the default suite, or of all that there are, operator by operator, device by device."""
    for cls, case, dev in cases(classes, devices, extensive=extensive):
        yield outcome(cls, case, dev, seed)


def outcome(cls: Any, case: Any, dev: str, seed: int = 0) -> Outcome:
    """Simulate one case, and compare."""
    start = Outcome(cls.__name__, case.id, dev)
    try:
        op = cls(**case.fields).resolved(device(dev))
        design = build(op, dev, case.bounds).design
        places = fit(design)
    except DeclarationError as error:  # no case may make a design that is not well-formed
        return attrs.evolve(start, failure=str(error))
    except IronError as error:
        if case.lower and dev == device(dev).family:  # fewer columns may have no room
            return attrs.evolve(start, failure=f"an array is to take it (lower=True), but: {error}")
        return attrs.evolve(start, refused=str(error))
    rng = np.random.default_rng(seed)
    short = case.bounded(op)
    drawn = cls.test.draw(short, rng)
    inputs = tuple(drawn.get(o.name) for o in op.inputs)
    given = {name: whole(op, name, tensor) for name, tensor in drawn.items()}

    def kept() -> dict[str, Any]:
        """What outputs that are written in part hold before: fresh each time, for they are written in place."""
        return {name: op.format(name).zeros(op.shape(name)) for name in op.partial}

    began = time.process_time()
    try:
        outputs, masks, _ = simulate(op, dev, {**kept(), **given}, case.bounds)
    except SimulationError as error:
        return attrs.evolve(start, failure=str(error))
    seconds = time.process_time() - began
    written = [o.name for o in op.outputs if o.present(op)]
    if case.bounds:
        outputs, masks = ({name: made[name][_within(short, name)] for name in written} for made in (outputs, masks))
    got = [outputs[name] for name in written]
    composed = short.composed(*inputs, **kept())
    want = composed if isinstance(composed, tuple) else (composed,)
    bits = sum(_different(g, w) for g, w in zip(got, map(_flat, want), strict=True))
    found = attrs.evolve(
        start,
        columns=getattr(op, "num_aie_columns", 0) or len({col for col, _ in places.values()}),
        cores=len(design.array.cores),
        tiles=_tiles(op),
        bits=bits,
        compared=sum(g.size for g in got),
        seconds=seconds,
    )
    if not found.compared:
        return attrs.evolve(found, failure="nothing was compared")
    if any(mask.any() for mask in masks.values()):
        return attrs.evolve(found, failure="some of the output was never written")
    judged = tuple(_judged(short, name, outputs[name]) for name in written)
    exact = short.reference(*inputs, **kept())
    try:
        deviation = short.array_check(judged if len(judged) > 1 else judged[0], exact, *inputs)
    except DeviationError as error:
        return attrs.evolve(found, failure=str(error))
    return attrs.evolve(
        found,
        error=deviation.error,
        ratio=deviation.ratio,
        failure=f"{bits} of {found.compared} numbers differ from the composed tile references" if bits else "",
    )


def _within(op: Any, name: str) -> tuple[slice, ...]:
    """The part of an operand that an operator at a call's bounds has."""
    return tuple(slice(n) for n in op.shape(name))


def _judged(op: Any, name: str, got: np.ndarray) -> Any:
    """A simulated output as `reference()` gives it: of a packed format its tensor."""
    format = op.format(name)
    return format.tensor(got, op.shape(name)) if format.packed else got


def _flat(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.data if isinstance(tensor, PackedArray) else tensor)


def _different(got: np.ndarray, want: np.ndarray) -> int:
    return int((got.reshape(-1).view(np.uint8) != want.reshape(-1).view(np.uint8)).reshape(got.size, -1).any(-1).sum())


def _tiles(op: Any) -> str:
    """The tunables that show, but for the columns."""
    names = [n for n in op.autos() if n.startswith(("tile", "B_", "num_")) and n != "num_aie_columns"]
    return " ".join(f"{n.removeprefix('tile_')}={getattr(op, n)}" for n in names)
