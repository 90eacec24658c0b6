"""One operator on one backend: drawn inputs, and the answer judged by the operator's gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.backends.choose import Choice
from iron_core.compiled.operator_image import OperatorImage
from iron_core.declare.formats import PackedArray
from iron_core.declare.tolerance import Deviation
from iron_core.devices import device
from iron_core.errors import DeviationError, IronError, UnsupportedError
from iron_core.plugins.registry import labelled

#: What a trial may end in. "refused": no array, or no kernel, takes it. "not run": the backend plans only. "skipped": what it needs is
#: not here.
VERDICTS = ("exact", "ok", "refused", "not run", "skipped", "FAILED")


@attrs.frozen
class Trial:
    """How an operator did on a backend: its largest error, of that element which has least room the bound and the error's part of it.

    says: why it failed or was refused. how: what computed it. columns: of the array, if it has one.
    """

    operator: str
    case: str
    backend: str
    device: str
    verdict: str = attrs.field(default="not run", validator=attrs.validators.in_(VERDICTS))
    error: float | None = None
    bound: float | None = None
    ratio: float | None = None
    compared: int = 0
    columns: int | None = None
    how: str = ""
    says: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict == "FAILED"

    @property
    def gate(self) -> str:
        """The verdict, with how near it was."""
        return f"ok, {self.ratio:.2f} of its bound" if self.verdict == "ok" else self.verdict


@attrs.frozen(eq=False)
class DrawnCase:
    """An operator with the bounds of a call, its inputs in the order of `reference()`, cut to them, and the exact answer."""

    op: Any
    bounds: Mapping[str, int]
    inputs: tuple[Any, ...]
    exact: tuple[Any, ...]

    @property
    def given(self) -> list[Any]:
        """The inputs that there are."""
        return [one for one in self.inputs if one is not None]

    def bounded(self, op: Any) -> Any:
        """`op`, this operator or it resolved, at the bounds."""
        return op.bounded(**op.limits(self.bounds)) if self.bounds else op


def blank(op: Any) -> dict[str, Any]:
    """What an output that a call writes in part holds before it: fresh each time, for it may be written in place."""
    return {name: op.format(name).zeros(op.shape(name)) for name in op.partial}


def several(outputs: Any) -> tuple[Any, ...]:
    """One or more outputs, as a tuple."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def draw(op: Any, bounds: Mapping[str, int] | None = None, seed: int = 0) -> DrawnCase:
    """Inputs as the operator's test cases draw them, and what its reference makes of them."""
    bounds = dict(bounds or {})
    short = op.bounded(**op.limits(bounds)) if bounds else op
    with labelled(type(op), "to make an operator of these fields and its inputs"):
        drawn = type(op).test.draw(short, np.random.default_rng(seed))
    inputs = tuple(drawn.get(operand.name) for operand in op.inputs)
    with labelled(op, "in its reference"):
        exact = short.reference(*(None if one is None else one[...] for one in inputs), **blank(short))
    return DrawnCase(op, bounds, inputs, several(exact))


def tried(drawn: DrawnCase, chosen: Choice, case: str = "", *, again: bool = False) -> tuple[Trial, Any]:
    """Run it, judge the answer, and give the trial with the `OperatorImage` that ran. again: a second call must give the same bits.

    What the backend refuses is raised: `refusing` makes a trial of that too.
    """
    op, backend, dev = drawn.op, chosen.backend, device(chosen.dev)
    image = OperatorImage(op, bounds=tuple(drawn.bounds), backend=backend, dev=chosen.dev)
    answer = backend.supports(op, chosen.dev)
    trial = Trial(type(op).__name__, case, backend.name, chosen.dev, columns=getattr(image.image, "columns", None))
    trial = attrs.evolve(trial, how=getattr(answer, "how", ""))
    before = [stored(one).tobytes() for one in drawn.given]
    try:
        got = several(image(*drawn.given, **drawn.bounds))
    except UnsupportedError:
        if backend.name != "null":
            raise
        return trial, image
    error = max((_error(g, w) for g, w in zip(got, drawn.exact, strict=True)), default=0.0)
    trial = attrs.evolve(trial, error=error)
    on_array = backend.name != "reference" and dev.is_npu
    judge = drawn.bounded(op.resolved(dev) if on_array else op)
    try:
        worst = _judged(judge, on_array, got, drawn)
        if [stored(one).tobytes() for one in drawn.given] != before:
            raise DeviationError("the call changed an array that it was given to read.")
        if getattr(backend, "follows_tiles", False) and on_array:
            _equal_tiles(judge, got, drawn)
        if again:
            _equal_again(got, several(image(*drawn.given, **drawn.bounds)))
    except DeviationError as wrong:
        return attrs.evolve(trial, verdict="FAILED", says=str(wrong)), image
    tolerance = op.test.tolerance or op.tolerance()
    verdict = "exact" if tolerance.exact else "ok"
    return attrs.evolve(trial, verdict=verdict, bound=worst.bound, ratio=worst.ratio, compared=worst.compared), image


def refusing(drawn: DrawnCase, chosen: Choice, case: str, *, lower: bool = False, again: bool = True) -> Trial:
    """`tried`, where a refusal is a verdict: of an array that is to take the case (`lower`) a failure."""
    dev = device(chosen.dev)
    start = Trial(type(drawn.op).__name__, case, chosen.backend.name, chosen.dev)
    try:
        return tried(drawn, chosen, case, again=again)[0]
    except UnsupportedError as error:
        if lower and dev.is_npu and dev.name == dev.family:
            return attrs.evolve(start, verdict="FAILED", says=f"an array is to take it (lower=True), but: {error}")
        return attrs.evolve(start, verdict="refused", says=str(error))
    except Exception as error:
        return attrs.evolve(start, verdict="FAILED", says=told(error))


def told(error: Exception) -> str:
    """What an error says; of one that is not Iron's its kind too."""
    return str(error) if isinstance(error, IronError) else f"{type(error).__name__}: {error}."


def _judged(judge: Any, on_array: bool, got: tuple[Any, ...], drawn: DrawnCase) -> Deviation:
    check = judge.array_check if on_array else judge.check
    one = len(got) == 1
    worst = check(got[0] if one else got, drawn.exact[0] if one else drawn.exact, *drawn.inputs)
    if not worst.compared:
        raise DeviationError("nothing was compared.")
    return worst


def _equal_tiles(judge: Any, got: tuple[Any, ...], drawn: DrawnCase) -> None:
    """An array that computes by its kernels' tile references makes what they make, composed, in every bit."""
    composed = several(judge.composed(*drawn.inputs, **blank(judge)))
    for g, w in zip(map(stored, got), map(stored, composed), strict=True):
        same = (g.reshape(-1).view(np.uint8) == w.reshape(-1).view(np.uint8)).reshape(g.size, -1).all(-1)
        if not same.all():
            raise DeviationError(f"{int((~same).sum())} of {g.size} numbers differ from the composed tile references.")


def _equal_again(got: tuple[Any, ...], later: tuple[Any, ...]) -> None:
    if any(stored(one).tobytes() != stored(other).tobytes() for one, other in zip(got, later, strict=True)):
        raise DeviationError("the same call twice is not equal bit for bit.")


def stored(tensor: Any) -> np.ndarray:
    """An array; of a packed tensor its bytes."""
    return np.ascontiguousarray(tensor.data if isinstance(tensor, PackedArray) else tensor)


def _error(got: Any, want: Any) -> float:
    """The largest absolute difference, in float64 (of packed bytes, for a block format)."""
    a, b = (np.asarray(stored(one) if isinstance(one, PackedArray) else one).astype(np.float64) for one in (got, want))
    with np.errstate(all="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(error.max()) if error.size else 0.0
