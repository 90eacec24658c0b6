"""Where an operator is checked, and on what values: `Testing`, `Case`, `Sweep`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from iron_core.declare.authored import authored
from iron_core.declare.callables import spelled, takes
from iron_core.declare.field import Field
from iron_core.declare.formats import PackedArray
from iron_core.declare.identity import canonical, shown
from iron_core.declare.keywords import declaration, in_class
from iron_core.declare.rounding import round_to
from iron_core.declare.tolerance import Tolerance
from iron_core.errors import DeclarationError, FormatError

#: Numbers that are drawn of a large operand, a prime; the rest repeats them, so that no two rows of it are equal.
DRAWN = 2**22 - 3


#: Case's own keywords: names that no field may have.
CASE_KEYWORDS = ("bounds", "extensive", "bench", "lower", "id")


@declaration
class Case:
    """One set of fields an operator is checked at.

    bounds: numbers of its extent members, as a call gives them: what lies behind them is not computed. extensive: left out of the
    default suite. bench: timed over the project's life. lower: every family of NPUs has an array for it, so that being refused there
    is a fault.
    """

    def __init__(
        self,
        *,
        bounds: Mapping[str, int] | None = None,
        extensive: bool = False,
        bench: bool = False,
        lower: bool = False,
        id: str | None = None,
        **fields: Any,
    ) -> None:
        if bounds is not None and not isinstance(bounds, Mapping):
            raise DeclarationError(f"{in_class()}Case(bounds={bounds!r}): legal: a dict of extents, as bounds=dict(valid=3).")
        for keyword, flag in dict(extensive=extensive, bench=bench, lower=lower).items():
            if not isinstance(flag, bool):
                raise DeclarationError(f"{in_class()}Case({keyword}={flag!r}): legal: True or False.")
        if id is not None and not isinstance(id, str):
            raise DeclarationError(f"{in_class()}Case(id={id!r}): legal: a string, the case's name in tables.")
        self.fields = fields
        self.bounds = dict(bounds or {})
        self.extensive = extensive
        self.bench = bench
        self.lower = lower
        self._id = id

    @functools.cached_property
    def id(self) -> str:
        """As it was given, else of its fields and bounds."""
        return self._id or "-".join(f"{k}{shown(canonical(v))}" for k, v in (self.fields | self.bounds).items()) or "default"

    def __repr__(self) -> str:
        return f"Case({self.id})"

    def bounded(self, op: Any) -> Any:
        """An operator of these fields at these bounds."""
        return op.bounded(**op.limits(self.bounds)) if self.bounds else op


@declaration
class Sweep:
    """The elementwise sweep: a few lengths (or rows of `cols`), one of them large enough to time; one under a bound, where the operator
    has an extent `valid`; and, beyond the default suite, the longer ones on every count of columns and channels that an NPU's shims
    feed and that divides them.

    Further keywords are given to every case. A sweep of a dtype (T=) has neither bounds nor columns: arrays compute on the default one.
    """

    #: The device with the most columns, and numbers of a line.
    WIDEST, LINE = "npu2", 256

    def __init__(self, *, rows: bool = False, **fields: Any) -> None:
        self.rows = rows
        self.fields = fields

    def _shapes(self) -> list[dict[str, Any]]:
        if self.rows:
            return [dict(rows=rows, cols=cols) for rows, cols in ((1, 64), (7, 576), (48, 256), (512, 2048))]
        return [dict(size=size) for size in (64, 1000, 4096, 48 * self.LINE, 1 << 20)]

    def lengths(self) -> Iterator[Case]:
        """A case for each length, the smallest first; the last is timed."""
        shapes = self._shapes()
        for shape in shapes:
            yield Case(**shape, **self.fields, bench=shape is shapes[-1])

    def cases(self, cls: Any) -> Iterator[Case]:
        """Those, and of operator class `cls` one under a bound, and those of columns and channels."""
        yield from self.lengths()
        if "T" not in self.fields and "valid" in cls.extents:
            middle = self._shapes()[2]
            yield Case(**middle, **self.fields, bounds=dict(valid=next(iter(middle.values())) * 3 // 8 + 1))
        if "T" not in self.fields and {"num_aie_columns", "num_channels"} <= set(cls.fields):
            for shape in self._shapes()[:-1]:
                for columns, channels in self._lanes(cls, shape["rows"] if self.rows else shape["size"] // self.LINE):
                    yield Case(**shape, num_aie_columns=columns, num_channels=channels, **self.fields, extensive=True)

    def _lanes(self, cls: Any, lines: int) -> Iterator[tuple[int, int]]:
        """Counts of columns and of channels that have a channel of a shim for each stream, and whole lines for each core; none of
        a length that is too short to be shared among all."""
        from iron_core.devices import device  # here: whoever declares an operator needs none

        dev = device(self.WIDEST)
        assert dev.shim is not None
        streams = sum(operand.when is None and not operand.replicate for operand in cls.inputs)
        there = dev.columns * dev.shim.channels
        for channels, columns in itertools.product((1, 2), range(1, dev.columns + 1)):
            lanes = columns * channels
            if lines >= there and lines % lanes == 0 and lanes * streams <= there:
                yield columns, channels


def _cases(cls: Any, specs: Iterable[Any]) -> Iterator[Case]:
    for spec in specs:
        for case in spec.cases(cls) if isinstance(spec, Sweep) else (spec if isinstance(spec, Case) else Case(**spec),):
            _check(cls, case)
            yield case


def _check(cls: Any, case: Case) -> None:
    """DeclarationError where a case gives what a class does not have, or a value that its field does not take."""
    where = f"{cls.__name__}.test: {case!r}"
    for name, value in case.fields.items():
        field = cls.fields.get(name)
        if field is None or getattr(field, "derived", False):
            legal = ", ".join(n for n, f in cls.fields.items() if not getattr(f, "derived", False)) or "none"
            what = "which is no field of it" if field is None else "which resolve() always derives"
            raise DeclarationError(f"{where} gives {name}, {what}. Fields: {legal}.")
        if value is None:
            continue
        try:
            legal = field.misfit(field.convert(value))
        except FormatError as error:
            raise DeclarationError(f"{where}: {error}") from None
        if legal or (name in _dimensions(cls) and (not isinstance(value, (int, np.integer)) or value < 1)):
            raise DeclarationError(f"{where} gives {name}={value!r}; legal: {legal or 'a dimension, a whole number of at least 1'}.")
    for name, bound in case.bounds.items():
        if name not in cls.extents:
            legal = ", ".join(cls.extents) or "none"
            raise DeclarationError(f"{where} bounds {name}, which is no extent of it. Extents: {legal}.")
        whole = case.fields.get(cls.extents[name].field)
        if not isinstance(bound, (int, np.integer)) or bound < 0 or (isinstance(whole, int) and bound > whole):
            most = f"0 to {whole}" if isinstance(whole, int) else "a whole number"
            raise DeclarationError(f"{where} bounds {name} by {bound!r}; legal: {most}.")


def _dimensions(cls: Any) -> set[str]:
    """Fields that are a dimension of an operand whatever the others are."""
    return {dim.name for operand in cls.operands.values() if operand.when is None for dim in operand.dims if isinstance(dim, Field)}


@declaration
class Testing:
    """The cases of an operator and how its inputs are drawn.

    draw: `normal=(names)` standard normal, `centered=(names)` uniform over both signs, `name=array` or
    `name=callable(op, rng)` explicit; other floats are uniform in [0, 1), integers small.
    tolerance: overrides the operator's own.
    """

    __test__ = False  # not a pytest class

    def __init__(self, *cases: Any, tolerance: Any = None, draw: Any = None) -> None:
        for case in cases:
            if not (isinstance(case, (Case, Sweep, dict)) or callable(case)):
                raise DeclarationError(
                    f"{in_class()}Testing({case!r}): legal: a Case, a Sweep, a dict of fields, or a callable of the class."
                )
            if callable(case) and not takes(case, 1):
                raise DeclarationError(f"{in_class()}Testing({spelled(case)}): legal: a callable of the class, lambda cls: [Case(...)].")
        if draw is not None and not isinstance(draw, dict) and not (callable(draw) and takes(draw, 1)):
            raise DeclarationError(
                f"{in_class()}Testing(draw={spelled(draw)}); legal: a dict, as draw=dict(normal=('x',)), or a callable of the operator."
            )
        if tolerance is not None and not isinstance(tolerance, Tolerance):
            raise DeclarationError(f"{in_class()}Testing(tolerance={tolerance!r}); legal: a Tolerance, as Tolerance(terms=1).")
        self._cases = cases
        self.tolerance = tolerance
        self._draw = draw or {}

    def cases(self, cls: type) -> Iterator[Case]:
        """Every case of operator class `cls`. DeclarationError for one that gives what is no field of it."""
        for spec in self._cases:
            yield from _cases(cls, self._asked(cls, spec) if callable(spec) else (spec,))

    def _asked(self, cls: Any, spec: Any) -> Iterable[Any]:
        """What a callable of the class gives."""
        with authored(cls, "test's cases"):
            found = spec(cls)
            specs = None if found is None or isinstance(found, (str, Mapping)) else list(found)
        if specs is None or not all(isinstance(one, (Case, Sweep, dict)) for one in specs):
            raise DeclarationError(f"{cls.__name__}.test: {spelled(spec)} gave {found!r}; legal: a list of Cases, Sweeps or dicts.")
        return specs

    def check(self, cls: Any) -> None:
        """DeclarationError where a case that is written down gives what is no field of `cls`, or lacks one that it needs, and where
        `draw=` speaks of what is no input of it."""
        written = (spec.lengths() if isinstance(spec, Sweep) else (spec,) for spec in self._cases if not callable(spec))
        for case in _cases(cls, itertools.chain.from_iterable(written)):
            missing = [name for name, field in cls.fields.items() if field.required and name not in case.fields]
            if missing and "test" in vars(cls):
                raise DeclarationError(f"{cls.__name__}.test: {case!r} gives no {' and no '.join(missing)}, which every operator needs.")
        if isinstance(self._draw, dict):
            self._check_draw(cls, self._draw)

    def _check_draw(self, cls: Any, rules: dict[str, Any]) -> None:
        inputs = ", ".join(o.name for o in cls.inputs) or "none"
        for kind in ("normal", "centered"):
            names = rules.get(kind, ())
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise DeclarationError(f"{cls.__name__}.test: draw= has {kind}={names!r}; legal: a tuple of inputs, of {inputs}.")
        for name in (*rules.get("normal", ()), *rules.get("centered", ()), *(set(rules) - {"normal", "centered"})):
            if name not in {operand.name for operand in cls.inputs}:
                raise DeclarationError(
                    f"{cls.__name__}.test draws {name}, which is none of its inputs. Legal: {inputs}, by normal=, centered= or by name."
                )
        for name in set(rules) - {"normal", "centered"}:
            rule = rules[name]
            if isinstance(rule, str) or (callable(rule) and not takes(rule, 2)):
                shown = "a callable of other arguments" if callable(rule) else repr(rule)
                raise DeclarationError(f"{cls.__name__}.test draws {name} by {shown}; legal: an array, or a callable of (op, rng).")

    def draw(self, op: Any, rng: np.random.Generator) -> dict[str, Any]:
        """Per input the operator has, an array (a PackedArray for a packed format)."""
        if callable(self._draw):
            with authored(op, "test's draw="):
                rules = self._draw(op)
            self._check_draw(type(op), rules)
        else:
            rules = self._draw
        drawn = {}
        for operand in op.inputs:
            if operand.present(op):
                drawn[operand.name] = self._one(op, operand, rules, rng)
        return drawn

    def _one(self, op: Any, operand: Any, rules: dict[str, Any], rng: np.random.Generator) -> Any:
        name, shape, format = operand.name, operand.shape(op), operand.format(op)
        if name in rules:
            with authored(op, f"test's draw of {name}"):
                given = rules[name](op, rng) if callable(rules[name]) else rules[name]
            if isinstance(given, PackedArray):
                return given
            if np.size(given) != math.prod(shape):
                found = list(np.shape(given))
                raise DeclarationError(f"{type(op).__name__}.test draws {name} as {found}; legal: its shape, {list(shape)}.")
            return round_to(given, format.dtype).reshape(shape)
        if format.packed:
            return format.drawn(rng, shape, 1 / math.sqrt(shape[-1]))
        if format.dtype.kind in "iu":
            return rng.integers(0, 8, shape).astype(format.dtype)
        size = math.prod(shape)
        count = min(size, DRAWN)
        if name in rules.get("normal", ()):
            values = rng.standard_normal(count)
        elif name in rules.get("centered", ()):
            values = rng.uniform(-4, 4, count)
        else:
            values = rng.random(count)
        rounded = round_to(values, format.dtype)
        return (rounded if count == size else np.resize(rounded, size)).reshape(shape)
