"""`Chained`: an operator with steps folded into it.

The steps change where a value is computed, never how it is rounded. Their further inputs become operands, named
`<chain><step>_<operand>`; they have no stream of their own and ride another's.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from iron_core.declare.domain import searchable
from iron_core.declare.formats import Format
from iron_core.declare.link import CHAINS, Link, riding, streamed, target
from iron_core.declare.operand import BoundOperand, In, Operand
from iron_core.declare.rounding import round_to, widen
from iron_core.declare.rules import require_operator
from iron_core.declare.tilewise import rounded_tile
from iron_core.declare.tolerance import Deviation, Tolerance
from iron_core.errors import DeclarationError, Unresolvable


def fold(op: Any, consumer: Any, at: Any = 0) -> Any:
    """`op` with `consumer` as its last finish step, or in its own fields where it takes it up (`Operator.absorbed`). at: which of
    its inputs, by number or name, is the tile.

    Tunables that were not given are open again. Unresolvable where the array applies no such step.
    """
    require_operator(op, "fold()")
    require_operator(consumer, "fold()")
    taken = None if op is not op.base else op.absorbed(consumer)
    return taken if taken is not None else Chained(op.base, (*op.finish, Link(consumer, at)), op.prepare, op.placed)


def prefold(op: Any, producer: Any, at: Any = 0) -> Chained:
    """`op` with `producer` as the first step in front of its `prepare=` input; otherwise as `fold`."""
    require_operator(op, "prefold()")
    require_operator(producer, "prefold()")
    return Chained(op.base, op.finish, (Link(producer, at), *op.prepare), op.placed)


def place(op: Any, elements: int) -> Chained:
    """`op` with its result in a tensor of `elements`, from the element on that calls give as `<operand>_offset`; the tensor's others
    stay as they are. Otherwise as `fold`. Unresolvable where `op` has several results, or one that is larger."""
    require_operator(op, "place()")
    written = [operand.name for operand in op.outputs if operand.present(op)]
    name = type(op.base).__name__
    if len(written) != 1:
        raise Unresolvable(f"{name} has {len(written)} results; one is placed.")
    size = math.prod(op.shape(written[0]))
    if elements < size:
        raise Unresolvable(f"{name}: {written[0]} of {size} elements in a tensor of {elements}. Legal: {size} or more.")
    return Chained(op.base, op.finish, op.prepare, ((written[0], elements),))


class Chained:
    """A plain operator, `base`, whose cores apply the steps of `finish` to what it makes and those of `prepare` to what it
    reads, and whose result calls place where `placed` says. What is not here is the plain operator's: fields, extents, values,
    scratchpads, traits.

    Made by `fold`, `prefold` and `place`. Unresolvable where the array applies no such chain, or a step does not fit.
    """

    def __init__(
        self,
        base: Any,
        finish: tuple[Link, ...] = (),
        prepare: tuple[Link, ...] = (),
        placed: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.base = base.evolve(**{name: None for name in base.autos() if name not in base.pinned})
        # Its array asks for them: how many lines a core holds, what rides where.
        self.base.finish, self.base.prepare, self.base.placed = tuple(finish), tuple(prepare), tuple(placed)
        #: The operands that the steps bring.
        self._riding: dict[str, Operand] = {}
        for chain in CHAINS:
            links = getattr(self, chain)
            if links and chain not in base.folds:
                raise Unresolvable(f"{type(base).__name__}: its array applies no {chain}. Legal: the step by itself.")
            for step, link in enumerate(links):
                operand = target(self, chain)
                link.check(f"{type(base).__name__}.{chain}", operand.name, getattr(base, operand.name), rows=chain == "prepare")
                for name, other in zip(riding(self, chain, step), link.others, strict=True):
                    shape = other.shape(link.op) if other.replicate else operand.shape(base)
                    self._riding[name] = extra = In(*shape, dtype=other.format(link.op))
                    extra.name = name
            self._riding.update(streamed(self.base, chain))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("base", "_riding"):  # asked for while one is copied or unpickled
            raise AttributeError(name)
        if name in self._riding:
            extra = self._riding[name]
            return BoundOperand(extra, self, extra.shape(self), extra.format(self))
        return getattr(self.base, name)

    # -- operands ----------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return (*self.base.inputs, *self._riding.values())

    @property
    def operands(self) -> dict[str, Operand]:
        return {operand.name: operand for operand in (*self.inputs, *self.base.outputs)}

    @property
    def present(self) -> tuple[str, ...]:
        return tuple(name for name, operand in self.operands.items() if operand.present(self.base))

    def shape(self, operand: str) -> tuple[int, ...]:
        return self.operands[operand].shape(self.base)

    def format(self, operand: str) -> Format:
        return self.operands[operand].format(self.base)

    # -- copies ------------------------------------------------------------------------------------

    def _over(self, base: Any) -> Chained:
        """These chains over another copy of the plain operator."""
        twin = copy.copy(self)
        twin.base = base
        return twin

    def evolve(self, **changes: Any) -> Chained:
        return self._over(self.base.evolve(**changes))

    def bounded(self, **extents: int) -> Chained:
        return self._over(self.base.bounded(**extents))

    def with_tunables(self, **tunables: Any) -> Chained:
        return self._over(self.base.with_tunables(**tunables))

    def resolved(self, dev: Any = None) -> Chained:
        """As the plain operator's. What a profile gave suits that one by itself: where the chain takes none of it, it is open."""
        base = self.base
        try:
            return self._over(base.resolved(dev))
        except Unresolvable:
            given = base.profiled & searchable(base).keys()
            if not given:
                raise
            return self._over(base.with_tunables(**dict.fromkeys(given)).resolved(dev))

    # -- what it computes --------------------------------------------------------------------------

    def _named(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The plain operator's inputs in order (None where absent), and everything else by name."""
        given = dict(zip((o.name for o in self.inputs), inputs, strict=False)) | named
        return [given.pop(o.name, None) for o in self.base.inputs], given

    def _dtype(self, chain: str) -> Any:
        return target(self, chain).format(self.base).dtype

    def _extras(self, chain: str, step: int, given: dict[str, Any]) -> list[Any]:
        return [np.asarray(given[name]) for name in riding(self, chain, step)]

    def _applied(self, chain: str, values: Any, given: dict[str, Any]) -> Any:
        """Through every step of a chain: each step's reference, rounded once before the next."""
        for step, link in enumerate(getattr(self, chain)):
            values = round_to(values, self._dtype(chain))
            values = link.reference(values, self._extras(chain, step, given))
        return values

    def _prepared(self, plain: list[Any], given: dict[str, Any], through: Any) -> list[Any]:
        if not self.prepare:
            return plain
        at = self.base.inputs.index(target(self, "prepare"))
        values = round_to(through("prepare", plain[at], given), self._dtype("prepare"))
        return [*plain[:at], values, *plain[at + 1 :]]

    def reference(self, *inputs: Any, **named: Any) -> Any:
        plain, given = self._named(inputs, named)
        plain = self._prepared(plain, given, self._applied)
        scratchpads = {k: v for k, v in given.items() if k in self.base.scratchpads}
        return self._applied("finish", self.base.reference(*plain, **scratchpads), given)

    def composed(self, *inputs: Any, **named: Any) -> Any:
        """The plain one's, with each chain's tile references, a line at a time."""
        plain, given = self._named(inputs, named)

        def through(chain: str, values: Any, given: dict[str, Any]) -> Any:
            dtype = self._dtype(chain)
            for step, link in enumerate(getattr(self, chain)):
                calls = link.calls(self.chain_line(chain))
                # How an elementwise step's line is cut is all the same.
                lines = np.reshape(values, (-1, link.op.cols) if link.op.rowwise else (1, -1))
                others = dict(zip((o.name for o in link.others), self._extras(chain, step, given), strict=True))
                made = []
                for line in lines:
                    for call in calls:
                        tiles = call.arguments(line, [others[name].reshape(-1) for name in call.reads])
                        line = rounded_tile(call.kernel, dtype, line.size, *tiles).reshape(-1)
                    made.append(line)
                values = np.reshape(made, values.shape)
            return values

        return through("finish", self.base.composed(*self._prepared(plain, given, through)), given)

    # -- the gate ----------------------------------------------------------------------------------

    def check(self, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Judge by intervals: every step maps what its input may be through its reference and adds its own gate."""
        return self._check(outputs, exact, inputs, None)

    def array_check(self, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        return self._check(outputs, exact, inputs, self.base.array_error)

    def _check(self, outputs: Any, exact: Any, inputs: tuple[Any, ...], array_error: Any) -> Deviation:
        base = self.base
        plain, given = self._named(inputs, {})
        pushed: Any = 0.0
        if self.prepare:
            at = base.inputs.index(target(self, "prepare"))
            _, radius = self._through("prepare", widen(plain[at]), 0.0, given)
            plain = self._prepared(plain, given, self._applied)
            # Linear in it: a radius goes through with the absolute values of what it is multiplied by.
            pushed = base.magnitude(*plain[:at], radius, *plain[at + 1 :])
            if pushed is None:
                raise DeclarationError(f"{type(base).__name__} folds a prologue, so it declares magnitude(); it does not.")
        result = target(self, "finish") if self.finish else next(o for o in base.outputs if o.present(base))
        dtype = result.format(base).dtype
        centre = np.asarray(base.reference(*plain), np.float64)
        own = None if array_error is None else array_error(*plain)
        if own is None:
            own = (base.test.tolerance or base.tolerance()).bound(centre, dtype, base.magnitude(*plain))
        centre, radius = self._through("finish", centre, own + pushed, given)
        exact = np.asarray(exact, np.float64)
        what = f"{type(base).__name__}.{result.name}"
        return Tolerance.within(radius + np.abs(centre - exact)).check(outputs, exact, dtype, None, what)

    def _through(self, chain: str, centre: Any, radius: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        """What a chain makes of values within `radius` of `centre`: the new centre and radius."""
        for step, link in enumerate(getattr(self, chain)):
            dtype = self._dtype(chain)
            centre = widen(round_to(centre, dtype))
            extras = self._extras(chain, step, given)
            each = (centre, centre - radius, centre + radius)
            values = [np.asarray(link.reference(v, extras), np.float64) for v in each]
            tolerance = link.op.test.tolerance or link.op.tolerance()
            own = [tolerance.bound(v, dtype, link.magnitude(a, extras)) for v, a in zip(values, each, strict=True)]
            centre = values[0]
            radius = np.maximum(np.abs(values[1] - centre), np.abs(values[2] - centre)) + np.max(own, axis=0)
        return centre, radius

    def __repr__(self) -> str:
        chains = ((chain, ", ".join(type(link.op).__name__ for link in getattr(self, chain))) for chain in CHAINS)
        parts = [f"{chain} {steps}" for chain, steps in chains if steps]
        parts += [f"{operand} placed in {elements} elements" for operand, elements in self.placed]
        return f"{self.base!r} with {' and '.join(parts)}"
