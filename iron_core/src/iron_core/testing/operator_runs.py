"""What an operator computes on the backends that are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from iron_core.backends.choose import Choice
from iron_core.backends.protocol import Backend
from iron_core.compiled.operator_image import OperatorImage
from iron_core.declare.formats import PackedArray
from iron_core.declare.testing import Case
from iron_core.devices import device
from iron_core.errors import IronError
from iron_core.graph.graph import Graph
from iron_core.lowering.answer import Yes
from iron_core.testing.operator_subject import OperatorSubject
from iron_core.trials.suite import FAMILIES, places
from iron_core.trials.trial import draw, refusing, several, stored


class OperatorRuns(OperatorSubject):
    """backends: names, or objects of their classes; by default every one that can run here. devices: NPUs that are simulated or run."""

    backends: ClassVar[Sequence[str | Backend] | None] = None
    devices: ClassVar[Sequence[str]] = FAMILIES

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """`place`: a backend with a device."""
        super().pytest_generate_tests(metafunc)
        if "place" in metafunc.fixturenames:
            found = [one for one in places(self.backends) if not device(one.dev).is_npu or one.dev in self.devices]
            metafunc.parametrize("place", found, ids=[f"{one.backend.name}-{one.dev}" for one in found])

    def test_a_backend_keeps_the_contract(self, case: Case, place: Choice) -> None:
        """A backend's answer is within the operator's tolerance, on an array within the array's and equal to its composed tile
        references; the same call twice is equal bit for bit, and leaves what it was given as it was."""
        found = refusing(draw(self.whole(case), case.bounds, self.seed), place, case.id, lower=case.lower)
        assert not found.failed, found.says
        if found.verdict == "refused":
            pytest.skip(found.says)
        assert found.compared > 0 and found.ratio is not None and found.ratio <= 1

    def test_a_backend_says_what_computes_it(self, case: Case, place: Choice) -> None:
        """`supports()` says yes and how, or no and why."""
        answer = place.backend.supports(self.whole(case), place.dev)
        assert (answer.how if isinstance(answer, Yes) else answer.rule).strip()

    def test_an_input_may_be_cut_to_its_bound(self, case: Case, place: Choice) -> None:
        """Under a bound an input is given whole or cut, which makes no difference, and what lies behind it is not looked at."""
        if not case.bounds:
            pytest.skip("the case has no bounds")
        drawn = draw(op := self.whole(case), case.bounds, self.seed)
        try:
            image = OperatorImage(op, bounds=tuple(case.bounds), backend=place.backend, dev=place.dev)
        except IronError as error:
            pytest.skip(str(error))
        cut = several(image(*drawn.given, **case.bounds))
        names = [operand.name for operand in op.inputs if operand.present(op)]
        whole = [_widened(op, name, tensor) for name, tensor in zip(names, drawn.given, strict=True)]
        for one, other in zip(cut, several(image(*whole, **case.bounds)), strict=True):
            assert stored(one).tobytes() == stored(other).tobytes()

    def test_a_graph_computes_the_same(self, case: Case) -> None:
        """Called on handles in a graph's body it gives what it gives alone, in the same shapes and formats."""
        op = self.whole(case)
        if op.partial or op.accept_views or {"src", "dst"} & case.fields.keys() or any(o.read for o in op.outputs) or op.scratchpads:
            pytest.skip("what it writes lies in a larger tensor, or is changed in place")
        inputs = [tensor for tensor in self.drawn(op) if tensor is not None]
        if not inputs:
            pytest.skip("it reads nothing")
        alone = several(OperatorImage(op, backend="reference")(*inputs))
        names = [operand.name for operand in op.inputs if operand.present(op)]
        shapes = {name: (op.shape(name), op.format(name).spec) for name in names}
        compiled = _graph(op, names).compile(backend="reference", **shapes)
        for one, other in zip(several(compiled(*inputs)), alone, strict=True):
            assert one.shape == other.shape and stored(one).tobytes() == stored(other).tobytes()


def _widened(op: Any, name: str, tensor: Any) -> Any:
    """An input at its whole shape, what lies behind the bound no number that an answer could be made of."""
    shape, format = op.shape(name), op.format(name)
    if isinstance(tensor, PackedArray) or tuple(tensor.shape) == shape:
        return tensor if tuple(tensor.shape) == shape else _padded(tensor, shape, format)
    whole = np.full(shape, 1 if format.dtype.kind in "iub" else np.nan, format.dtype)
    whole[tuple(slice(n) for n in tensor.shape)] = tensor
    return whole


def _padded(tensor: Any, shape: tuple[int, ...], format: Any) -> Any:
    whole = format.zeros(shape)
    at = tuple(slice(n) for n in tensor.data.shape)
    whole.data[at] = tensor.data
    return whole


def _graph(op: Any, names: list[str]) -> Graph:
    """A graph whose inputs are an operator's, under their names."""
    made: Mapping[str, Any] = {}
    exec(f"def body(self, {', '.join(names)}):\n    return op({', '.join(names)})", scope := {"op": op}, made)  # type: ignore[arg-type]
    assert scope
    return type("Called", (Graph,), dict(made))()
