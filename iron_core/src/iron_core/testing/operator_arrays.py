"""What an operator's array keeps on every device that it is for, and the kernels that its cores call."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from iron_core.array.build import Built, build, has_array
from iron_core.array.kernel import Kernel
from iron_core.array.limits import check as limits
from iron_core.array.router import place_and_route
from iron_core.array.spec import check as spec
from iron_core.declare.identity import array_key
from iron_core.declare.objects import ObjectType
from iron_core.declare.rounding import round_to
from iron_core.declare.testing import Case
from iron_core.devices import device
from iron_core.errors import DeclarationError, DeviationError, IronError
from iron_core.testing.operator_subject import OperatorSubject
from iron_core.trials.compiled_kernel import compiled, compiler, random_arguments
from iron_core.trials.inline_kernels import noted_calls
from iron_core.trials.suite import FAMILIES
from iron_core.trials.trial import blank, draw, several

#: A call of a kernel: what it reads, in order.
Call = tuple[Any, ...]


class OperatorArrays(OperatorSubject):
    """devices: those that the array is for. An operator without one skips these."""

    devices: ClassVar[Sequence[str]] = FAMILIES

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """`dev`: every device that the array is for."""
        super().pytest_generate_tests(metafunc)
        if "dev" in metafunc.fixturenames:
            metafunc.parametrize("dev", self.devices)

    def built(self, case: Case, dev: str, bound: Sequence[str] = ()) -> Built:
        """The design of a case; a refusal skips the test."""
        if not has_array(self.subject()):
            pytest.skip("it declares no array")
        try:
            return build(self.whole(case), dev, bound)
        except DeclarationError:
            raise
        except IronError as error:
            pytest.skip(str(error))

    def calls(self, case: Case, dev: str) -> Iterator[tuple[Kernel, list[Call]]]:
        """The kernels of a case's array, each with calls: those that `composed()` makes, else random ones where it makes none at all."""
        kernels = self.built(case, dev, tuple(case.bounds)).kernels
        noted = _noted(self.subject(), case, dev, self.seed)
        for symbol, kernel in kernels.items():
            if symbol in noted or not noted:
                calls = noted.get(symbol) or [random_arguments(kernel, self.seed)]
                yield kernel, [tuple(np.copy(one) if isinstance(one, np.ndarray) else one for one in call) for call in calls]

    # -- designs --------------------------------------------------------------------------------------

    def test_some_case_has_an_array(self, dev: str) -> None:
        """Of a device that the array is for, one case at least is not refused."""
        if not has_array(self.subject()):
            pytest.skip("it declares no array")
        refused = []
        for case in self.cases():
            try:
                build(self.whole(case), dev)
            except IronError as error:
                refused.append(f"{case}: {error}")
            else:
                return
        pytest.fail("\n".join(refused))

    def test_a_case_has_an_array_or_is_refused_in_words(self, case: Case, dev: str) -> None:
        """A refusal names the operator; a case that every family takes (`lower=True`) is not refused."""
        if not has_array(self.subject()):
            pytest.skip("it declares no array")
        try:
            build(self.whole(case), dev)
        except DeclarationError:
            raise
        except IronError as error:
            assert not (case.lower and dev == device(dev).family), f"an array is to take it (lower=True), but: {error}"
            assert self.subject().__name__ in str(error), f"a refusal names the operator: {error}"

    def test_a_design_is_well_formed(self, case: Case, dev: str) -> None:
        """It keeps the specification of designs, with and without the bounds and numbers that calls may give."""
        spec(self.built(case, dev).design)
        members = (*self.subject().extents, *self.subject().scratchpads)
        if members:
            spec(self.built(case, dev, members).design)

    def test_a_design_has_room(self, case: Case, dev: str) -> None:
        """It is placed and routed, within the memory, channels, locks and descriptors of the device."""
        design = self.built(case, dev).design
        limits(design, dev, place_and_route(design.array, device(dev))[0])

    def test_a_design_is_data(self, case: Case, dev: str) -> None:
        """It pickles, and comes back equal."""
        design = self.built(case, dev).design
        assert pickle.loads(pickle.dumps(design)) == design

    def test_one_array_serves_every_extent(self, dev: str) -> None:
        """Cases of one array key have one array: no extent is built into it."""
        known: dict[Any, Any] = {}
        for case in self.cases():
            try:
                op = self.whole(case).resolved(dev)
                made = build(op, dev)
            except IronError:
                continue
            array = known.setdefault(array_key(op), made.design.array)
            assert array == made.design.array, case

    def test_resolving_settles_what_was_left_open(self, case: Case, dev: str) -> None:
        """Tunables that are given stay; resolved twice is resolved once; the operator itself stays as it was."""
        self.built(case, dev)
        op = self.whole(case)
        open_before = {name: getattr(op, name) for name in op.autos()}
        once = op.resolved(dev)
        assert {name: getattr(op, name) for name in op.autos()} == open_before
        settled = {name: getattr(once, name) for name in op.autos()}
        assert {name: getattr(once.resolved(dev), name) for name in op.autos()} == settled
        assert {name: settled[name] for name, value in open_before.items() if value is not None} == {
            name: value for name, value in open_before.items() if value is not None
        }

    def test_its_tile_references_composed_are_within_its_gate(self, case: Case, dev: str) -> None:
        """What an array of these kernels makes, composed in numpy, is as near to the reference as an array's answer has to be."""
        self.built(case, dev, tuple(case.bounds))
        drawn = draw(self.whole(case), case.bounds, self.seed)
        judge = drawn.bounded(drawn.op.resolved(dev))
        composed = several(judge.composed(*drawn.inputs, **blank(judge)))
        exact = drawn.exact if len(drawn.exact) > 1 else drawn.exact[0]
        assert judge.array_check(composed if len(composed) > 1 else composed[0], exact, *drawn.inputs).compared

    # -- kernels --------------------------------------------------------------------------------------

    def test_a_tile_reference_gives_every_output(self, case: Case, dev: str) -> None:
        """As many arrays as the kernel writes tiles, each with a tile's numbers."""
        for kernel, calls in self.calls(case, dev):
            tiles = [kind for kind, role in zip(kernel.data.arguments, kernel.data.roles, strict=True) if role in ("out", "inout")]
            made = several(_quietly(kernel, calls[0]))
            assert [np.size(one) for one in made] == [kind.elements for kind in tiles if isinstance(kind, ObjectType)], kernel.data.symbol

    def test_a_tile_reference_leaves_its_tiles_as_they_were(self, case: Case, dev: str) -> None:
        """A tile that is only read may be read again by whoever holds it: its fifo, the next call."""
        for kernel, calls in self.calls(case, dev):
            before = [_bits(one) for one in calls[0]]
            _quietly(kernel, calls[0])
            assert [_bits(one) for one in calls[0]] == before, kernel.data.symbol

    def test_a_tile_reference_is_a_function(self, case: Case, dev: str) -> None:
        """The same tiles twice give the same bits."""
        for kernel, calls in self.calls(case, dev):
            first, again = (list(map(_bits, several(_quietly(kernel, calls[0])))) for _ in range(2))
            assert first == again, kernel.data.symbol

    def test_an_elementwise_kernel_is_one(self, case: Case, dev: str) -> None:
        """Of a kernel that says so (`elementwise=True`) another number in one place changes the answer in that place alone."""
        for kernel, calls in self.calls(case, dev):
            if kernel.contract.elementwise:
                tiles = [i for i, one in enumerate(calls[0]) if isinstance(one, np.ndarray)]
                changed = list(calls[0])
                changed[tiles[0]] = other = np.array(changed[tiles[0]])
                at = other.size // 2
                whole = other.dtype.kind in "iub"
                # A number that few operators make the same of as of the one before.
                other.reshape(-1)[at] = (other.reshape(-1)[at] ^ 3) if whole else np.abs(other.reshape(-1)[at]) * 1.25 + 0.375
                for one, two in zip(several(_quietly(kernel, calls[0])), several(_quietly(kernel, tuple(changed))), strict=True):
                    differ = np.asarray(one).reshape(-1) != np.asarray(two).reshape(-1)
                    assert not np.delete(differ, at).any(), kernel.data.symbol

    def test_a_wrong_tile_is_out_of_a_kernels_tolerance(self, case: Case, dev: str) -> None:
        """A kernel's contract tells a tile whose largest number is off by a twentieth from its reference."""
        for kernel, calls in self.calls(case, dev):
            kinds = [kind for kind, role in zip(kernel.data.arguments, kernel.data.roles, strict=True) if role in ("out", "inout")]
            for kind, exact in zip(kinds, several(_quietly(kernel, calls[0])), strict=True):
                assert isinstance(kind, ObjectType)
                numbers = np.asarray(exact).reshape(-1)
                wrong = numbers.astype(np.float64)
                at = int(np.argmax(np.abs(wrong)))
                if not np.isfinite(wrong[at]) or wrong[at] == 0:
                    continue  # a tile that begins as zeros
                wrong[at] *= 0.95 if kind.dtype.kind not in "iub" else 0
                with pytest.raises(DeviationError):
                    kernel.contract.tolerance.check(round_to(wrong, kind.dtype), numbers, kind.dtype)

    def test_an_inline_kernel_equals_its_tile_reference(self, case: Case, dev: str, tmp_path: Any) -> None:
        """Its C++, compiled with this machine's compiler: it takes the tiles and numbers that are declared, writes its outputs and
        nothing else, and makes what its reference makes, within the contract's tolerance, each time that it is called."""
        inline = [(kernel, calls) for kernel, calls in self.calls(case, dev) if kernel.data.source]
        if not inline:
            pytest.skip("its kernels are mlir-aie's, or other cases call them")
        command = compiler()
        if command is None:
            pytest.skip("there is no C++ compiler here: c++, g++, clang++ or the ziglang wheel")
        for kernel, calls in inline:
            known = (self.subject(), kernel.data.symbol)
            if known not in _judged:
                assert compiled(kernel, command, tmp_path).check(calls).compared, kernel.data.symbol
                _judged.add(known)


#: Inline kernels of operators that were compiled and are right.
_judged: set[tuple[Any, str]] = set()


@cache
def _noted(cls: Any, case: Case, dev: str, seed: int) -> dict[str, list[Call]]:
    """What `composed()` calls kernels with at a case."""
    return noted_calls(draw(cls(**case.fields), case.bounds, seed), dev).calls


def _quietly(kernel: Kernel, call: Call) -> Any:
    with np.errstate(all="ignore"):  # cores raise no flags
        return kernel.contract.reference(*call)


def _bits(one: Any) -> Any:
    return np.asarray(one).tobytes() if isinstance(one, np.ndarray) else one
