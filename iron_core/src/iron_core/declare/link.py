"""Chains: elementwise steps that an operator's cores apply to its output's tiles (finish) or its input's (prepare).

`op.finish` and `op.prepare` are tuples of `Link`s. They are no fields: they change where a number is computed, never how
it is rounded. A step's further inputs become operands of the folded operator, named `<chain><step>_<operand>`; they have
no stream of their own and ride another's.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import attrs
import numpy as np

from iron_core.declare.identity import class_name, field_pairs
from iron_core.declare.operand import BoundOperand, In, Operand
from iron_core.declare.operator import Operator, OperatorMeta
from iron_core.declare.rounding import round_to, widen
from iron_core.declare.tolerance import Deviation, Tolerance
from iron_core.errors import DeclarationError, Unresolvable

CHAINS = ("finish", "prepare")


@attrs.frozen(eq=False)
class Link:
    """One step of a chain. op: what it computes; at: which of its inputs, by number or name, is the tile."""

    op: Any
    at: Any = 0

    @property
    def position(self) -> int:
        names = [operand.name for operand in self.op.inputs]
        return names.index(self.at) if self.at in names else int(self.at)

    @property
    def others(self) -> tuple[Operand, ...]:
        """Its further inputs."""
        return tuple(o for i, o in enumerate(self.op.inputs) if i != self.position and o.present(self.op))

    def arguments(self, tile: Any, others: Any) -> list[Any]:
        """The tile and the further inputs, in the order of its inputs."""
        given = list(others)
        given.insert(self.position, tile)
        return given

    def key(self, tier: str) -> tuple[Any, ...]:
        """What it adds to its operator's array key ("array": no extent) or to the others ("design")."""
        return (class_name(self.op), field_pairs(self.op, array=tier == "array"), self.position)

    def at_line(self, line: int) -> Any:
        """Its operator over one line of one core. Unresolvable where it cannot run there."""
        op = self.op
        sizes = dict(size=line, tile_size=line, num_aie_columns=1, num_channels=1)
        if not (op.elementwise and set(sizes) <= set(op.fields) and set(op.values) <= {"count"}):
            raise Unresolvable(f"{type(op).__name__} cannot be folded. Legal: elementwise operators on the shared array.")
        twin = op.evolve(**sizes)
        twin.compatible()
        return twin


def riding(op: Any, chain: str, step: int) -> tuple[str, ...]:
    """Names that a step's further inputs have as operands of the folded operator."""
    return tuple(f"{chain}{step}_{other.name}" for other in getattr(op, chain)[step].others)


def fold(op: Any, **chains: tuple[Link, ...]) -> Any:
    """A copy of `op` with these chains; its tunables are open again unless they were given."""
    twin = op.evolve(**{name: None for name in op.autos() if name not in op.pinned})
    return attach(twin, **{chain: chains.get(chain, getattr(op, chain)) for chain in CHAINS})


def attach(op: Any, finish: tuple[Link, ...], prepare: tuple[Link, ...]) -> Any:
    """Give `op` these chains, in place, and the operands that come with them."""
    cls = type(op)
    plain: Any = cls.plain if issubclass(cls, Folded) else cls
    op.finish, op.prepare = tuple(finish), tuple(prepare)
    for name in [n for n in vars(op) if n.startswith(CHAINS) and n not in CHAINS]:
        del op.__dict__[name]
    added = {}
    for chain in CHAINS:
        links = getattr(op, chain)
        if links and chain not in plain.folds:
            raise Unresolvable(f"{plain.__name__}: its array applies no {chain}. Legal: the step by itself.")
        if not links:
            continue
        operand = target(plain, chain)
        for step, link in enumerate(links):
            _check(op, operand, chain, link)
            for name, other in zip(riding(op, chain, step), link.others, strict=True):
                extra = In(*operand.shape(op), dtype=other.format(link.op))
                extra.name = name
                added[name] = extra
    op.__class__ = _folded(plain)
    op.inputs = (*plain.inputs, *added.values())
    op.operands = {o.name: o for o in (*op.inputs, *plain.outputs)}
    for name, extra in added.items():
        setattr(op, name, BoundOperand(extra, op, extra.shape(op), extra.format(op)))
    return op


def target(cls: Any, chain: str) -> Operand:
    """The one operand a chain of this class applies to: the output with `finish=`, the input with `prepare=`."""
    found = [o for o in (cls.outputs if chain == "finish" else cls.inputs) if getattr(o, chain)]
    if len(found) != 1:
        raise Unresolvable(f"{cls.__name__} has {len(found)} operands declared {chain}=; a chain is for exactly one.")
    return found[0]


def _check(op: Any, operand: Operand, chain: str, link: Link) -> None:
    where = f"{type(op).__name__}.{chain}: {type(link.op).__name__}"
    outputs = [o for o in link.op.outputs if o.present(link.op)]
    size = math.prod(operand.shape(op))
    if len(outputs) != 1 or not link.op.elementwise:
        raise Unresolvable(f"{where} is not elementwise with one output, which is legal.")
    if not 0 <= link.position < len(link.op.inputs):
        raise Unresolvable(f"{where} has no input {link.at}; it has {len(link.op.inputs)}.")
    for one in (*link.op.inputs, *outputs):
        bound = getattr(link.op, one.name)
        if bound.format != operand.format(op) or bound.size != size:
            raise Unresolvable(
                f"{where}.{one.name} is {bound.size} of {bound.format}; {operand.name} is {size} of {operand.format(op)}. "
                "Legal: the same."
            )


class Folded(Operator, view=True):
    """What a folded operator is more than the plain one: mixed in before its class, `plain`."""

    plain: Any = Operator

    def _named(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The plain operator's inputs in order (None where absent), and everything else by name."""
        given = dict(zip((o.name for o in self.inputs), inputs, strict=False)) | named
        return [given.pop(o.name, None) for o in self.plain.inputs], given

    def _dtype(self, chain: str) -> Any:
        return target(self.plain, chain).format(self).dtype  # type: ignore[union-attr]

    def _extras(self, chain: str, step: int, given: dict[str, Any], shape: tuple[int, ...]) -> list[Any]:
        return [np.asarray(given[name]).reshape(shape) for name in riding(self, chain, step)]

    def _chained(self, chain: str, values: Any, given: dict[str, Any]) -> Any:
        """Through every step of a chain: each step's reference, rounded once before the next."""
        for step, link in enumerate(getattr(self, chain)):
            values = round_to(values, self._dtype(chain))
            values = link.op.reference(*link.arguments(values, self._extras(chain, step, given, values.shape)))
        return values

    def reference(self, *inputs: Any, **named: Any) -> Any:
        plain, given = self._named(inputs, named)
        plain = self._prepared(plain, given, self._chained)
        scratchpads = {k: v for k, v in given.items() if k in self.plain.scratchpads}
        return self._chained("finish", super().reference(*plain, **scratchpads), given)

    def _prepared(self, plain: list[Any], given: dict[str, Any], through: Any) -> list[Any]:
        if not self.prepare:
            return plain
        at = self.plain.inputs.index(target(self.plain, "prepare"))
        values = round_to(through("prepare", plain[at], given), self._dtype("prepare"))
        return [*plain[:at], values, *plain[at + 1 :]]

    def composed(self, *inputs: Any, **named: Any) -> Any:
        """The plain one's, with each chain's tile references: those are elementwise, so how a line is cut is all the same."""
        plain, given = self._named(inputs, named)

        def through(chain: str, values: Any, given: dict[str, Any]) -> Any:
            dtype = self._dtype(chain)
            for step, link in enumerate(getattr(self, chain)):
                kernel = link.at_line(self.chain_line(chain)).kernel()
                tiles = [np.reshape(a, -1) for a in link.arguments(values, self._extras(chain, step, given, values.shape))]
                values = round_to(kernel.reference(*tiles), dtype).reshape(values.shape)
            return values

        return through("finish", super().composed(*self._prepared(plain, given, through)), given)

    # -- the gate ----------------------------------------------------------------------------------

    def check(self, outputs: Any, exact: Any, *inputs: Any) -> Deviation:
        """Judge by intervals: every step maps what its input may be through its reference and adds its own gate."""
        plain, given = self._named(inputs, {})
        result = target(self.plain, "finish")
        pushed: Any = 0.0
        if self.prepare:
            at = self.plain.inputs.index(target(self.plain, "prepare"))
            centre, radius = self._through("prepare", widen(plain[at]), 0.0, given)
            plain = self._prepared(plain, given, self._chained)
            # Linear in it: a radius goes through with the absolute values of what it is multiplied by.
            pushed = super().magnitude(*plain[:at], radius, *plain[at + 1 :])
            if pushed is None:
                raise DeclarationError(f"{self.plain.__name__} folds a prologue, so it declares magnitude(); it does not.")
        dtype = self._dtype("finish")
        centre = np.asarray(super().reference(*plain), np.float64)
        own = (self.plain.test.tolerance or super().tolerance()).bound(centre, dtype, super().magnitude(*plain))
        centre, radius = self._through("finish", centre, own + pushed, given)
        exact = np.asarray(exact, np.float64)
        limit = radius + np.abs(centre - exact)
        return Tolerance(terms=-8, ulps=0, absolute=limit).check(outputs, exact, dtype, None, f"{self.plain.__name__}.{result.name}")

    def _through(self, chain: str, centre: Any, radius: Any, given: dict[str, Any]) -> tuple[Any, Any]:
        """What a chain makes of numbers within `radius` of `centre`: the new centre and radius."""
        dtype = self._dtype(chain)
        for step, link in enumerate(getattr(self, chain)):
            centre = widen(round_to(centre, dtype))
            extras = self._extras(chain, step, given, centre.shape)
            each = [link.arguments(v, extras) for v in (centre, centre - radius, centre + radius)]
            values = [np.asarray(link.op.reference(*a), np.float64) for a in each]
            tolerance = link.op.test.tolerance or link.op.tolerance()
            own = [tolerance.bound(v, dtype, link.op.magnitude(*a)) for v, a in zip(values, each, strict=True)]
            centre = values[0]
            radius = np.maximum(np.abs(values[1] - centre), np.abs(values[2] - centre)) + np.max(own, axis=0)
        return centre, radius


@cache
def _folded(cls: Any) -> type:
    made = type.__new__(OperatorMeta, cls.__name__, (Folded, cls), {"plain": cls}, view=True)
    made.__qualname__, made.__module__ = cls.__qualname__, cls.__module__
    return made
