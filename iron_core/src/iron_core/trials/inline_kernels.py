"""The inline kernels of operators' arrays, each judged once, on what the operators' cases call it with."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from iron_core.array.build import build, has_array
from iron_core.array.kernel import Kernel, NotedCalls, noting
from iron_core.declare.tolerance import Deviation
from iron_core.devices import Device
from iron_core.errors import DeclarationError, DeviationError, IronError
from iron_core.trials.compiled_kernel import CompiledKernel, compile_all, compiler, random_arguments
from iron_core.trials.trial import DrawnCase, Trial, blank

#: What stands for a backend in a trial of kernels.
KERNELS = "kernels"
#: Random calls of a kernel whose calls nobody notes: its array is simulated nowhere and composed by no code that calls it.
RANDOM = 4


def inline_kernels(op: Any, dev: Device | str, bounds: Any = ()) -> dict[str, Kernel]:
    """The kernels of its array that carry their own C++, by symbol; none where it has no array there."""
    if not has_array(op):
        return {}
    try:
        kernels = build(op, dev, bounds).kernels
    except IronError:
        return {}
    return {symbol: kernel for symbol, kernel in kernels.items() if kernel.data.source}


def noted_calls(drawn: DrawnCase, dev: Device | str) -> NotedCalls:
    """What `composed()` calls tile references with on a case's inputs; nothing where it cannot be composed."""
    with noting() as noted, suppress(IronError):
        judge = drawn.bounded(drawn.op.resolved(dev))
        judge.composed(*drawn.inputs, **blank(judge))
    return noted


class InlineKernels:
    """Judges kernels, each symbol once; a context, for what is compiled stands in a folder of its own."""

    def __init__(self) -> None:
        self.command = compiler()
        self._judged: set[str] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="iron-kernels-")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def trial(self, drawn: DrawnCase, dev: str, case: str, noted: NotedCalls | None = None) -> Trial | None:
        """How the kernels of a case's array did that were not judged before; None where there are none.

        noted: calls that the case makes, simulated; those that are missing are what `composed()` makes.
        """
        start = Trial(type(drawn.op).__name__, case, KERNELS, dev)
        kernels = {s: k for s, k in inline_kernels(drawn.op, dev, drawn.bounds).items() if s not in self._judged}
        if not kernels:
            return None
        if self.command is None:
            return attrs.evolve(start, verdict="skipped", says="there is no C++ compiler here.")
        calls = dict(noted.calls) if noted is not None else {}
        if not kernels.keys() <= calls.keys():
            calls = noted_calls(drawn, dev).calls | calls
        if not calls:
            calls = {symbol: [random_arguments(kernel, seed) for seed in range(RANDOM)] for symbol, kernel in kernels.items()}
        called = {symbol: kernel for symbol, kernel in kernels.items() if symbol in calls}
        self._judged |= called.keys()
        worst = Deviation()
        for symbol, made in compile_all(called, self.command, self._folder).items():
            try:
                worst = worst.worse(judged(made, calls[symbol]))
            except (DeclarationError, DeviationError) as error:
                return attrs.evolve(start, verdict="FAILED", says=str(error))
        if not called:
            return None
        count = sum(len(calls[symbol]) for symbol in called)
        how = f"{len(called)} of C++, {count} calls"
        verdict = "exact" if not worst.error else "ok"
        return attrs.evolve(
            start, verdict=verdict, error=worst.error, bound=worst.bound, ratio=worst.ratio, compared=worst.compared, how=how
        )


def judged(made: CompiledKernel | DeclarationError, calls: Any) -> Deviation:
    """How a kernel did that `compile_all` made; raises what is wrong with it."""
    if isinstance(made, DeclarationError):
        raise made
    worst = made.check(calls)
    if not worst.compared:
        raise DeviationError(f"kernel {made.kernel.data.symbol}: nothing was compared.")
    return worst
