"""`compiled.traffic`: bytes that backends copy for calls, under one name; what is in place is never copied again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.memory import Memory
from iron_core.backends.reference import ReferenceBackend
from iron_core.backends.traffic import Traffic
from iron_core.declare.formats import Q8_0
from iron_core.errors import UnsupportedError
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, RowwiseAdd, SiLU

F32, BF16 = np.dtype(np.float32), np.dtype(iron.bfloat16)
LAYERS, WIDTH = 6, 64


class Layers(iron.Graph):
    """A product a layer, each with weights of its own, and a state that a row is written to."""

    def __init__(self, dtype: Any, format: Any = None) -> None:
        rng = np.random.default_rng(0)
        drawn = [(rng.standard_normal((WIDTH, WIDTH)) / 8).astype(F32) for _ in range(LAYERS)]
        self.w = [iron.weight(format.quantize(w) if format else w.astype(dtype), name=f"w{i}") for i, w in enumerate(drawn)]
        self.rows = iron.state((8, WIDTH), dtype)
        self.arithmetic = {"activations": "int8_block"} if format else {}

    def body(self, x: Any, *, at: iron.Scratchpad[np.int32]) -> Any:
        for w in self.w:
            x = GEMV(w, x, **self.arithmetic)
        Copy(x, self.rows[at])
        return x


def calls(compiled: Any, dtype: Any, many: int = 5) -> list[Traffic]:
    """What each of some calls copied."""
    found = []
    for at in range(many):
        before = compiled.traffic
        compiled(np.ones(WIDTH, dtype), at=at)
        found.append(compiled.traffic - before)
    return found


def test_two_of_them_tell_what_lay_between():
    """A difference is of the same kind; nothing else is taken off."""
    one, other = Traffic(5, 4, 3, 2, 1), Traffic(1, 1, 1, 1, 1)
    assert one - other == Traffic(4, 3, 2, 1, 0)
    with pytest.raises(TypeError):
        one - 3


@pytest.mark.parametrize("packaging", [{}, {"boundaries": iron.each_step}, {"image": iron.CONTEXTS}], ids=("elf", "chain", "contexts"))
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_weights_are_put_on_a_simulated_device_once(dev, packaging):
    """All of them, and the state, at the first call. From then on a call copies a vector in, one out, and its words."""
    graph = Layers(BF16)
    compiled = graph.compile(backend="sim", dev=dev, x=(WIDTH,), **packaging)
    first, *later = calls(compiled, BF16)
    assert first.residents == LAYERS * WIDTH * WIDTH * 2 + 8 * WIDTH * 2
    assert {(one.inputs, one.outputs, one.words, one.residents) for one in later} == {(WIDTH * 2, WIDTH * 2, 4, 0)}
    assert first.words == 4, "the row it writes to"


@pytest.mark.parametrize("format", [None, Q8_0], ids=("dense", "blocks"))
def test_weights_are_mapped_or_tiled_once_on_the_host(format):
    """Dense ones stay where they are, blocks are put into tiles before the first step. A call copies its number alone."""
    first, *later = calls(Layers(F32, format).compile(backend="host", x=((WIDTH,), F32)), F32)
    blocks = LAYERS * Q8_0.nbytes((WIDTH, WIDTH))
    assert first.residents >= blocks if format else first.residents == 0
    assert later == [Traffic(words=8)] * 4


def test_a_loop_on_the_host_is_given_its_numbers_once():
    """However many steps it takes: the next ones are made where they are used."""

    class Walk(iron.Graph):
        def __init__(self) -> None:
            self.s = iron.state((4,), np.float32)

        def body(self, *, n: iron.Carried[np.int32]) -> Any:
            ElementwiseAdd(self.s, self.s, self.s)
            return iron.carry(n=n + 1)

    walk = Walk().compile(backend="host")
    walk.loop(1, n=0)
    before = walk.traffic
    walk.loop(50, n=0)
    assert walk.traffic - before == Traffic(words=8)


def test_a_loop_on_a_simulated_device_makes_its_words_there():
    """The host writes those of the first step, and the value that it starts from."""

    class Walk(iron.Graph):
        def __init__(self) -> None:
            self.rows = iron.state((32, 64))

        def body(self, *, at: iron.Carried[np.int32]) -> Any:
            return Copy(self.rows[at]), iron.carry(at=at + 1)

    compiled = Walk().compile(backend="sim", dev="npu2")
    compiled.loop(2, at=3)
    words = []
    for steps in (2, 9):
        before = compiled.traffic
        compiled.loop(steps, at=3)
        words.append((compiled.traffic - before).words)
    assert words == [4 + 4] * 2


def test_a_tensor_that_a_bound_cuts_in_the_middle_is_copied_to_its_place():
    """Columns are not where a whole tensor's would be; leading rows are."""

    class Columns(iron.Graph):
        def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
            return Copy(x[:, :n])

    class Rows(iron.Graph):
        def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
            return SiLU(x[:n])

    for graph, cut, copied in ((Columns, (8, 3), 8 * 3 * 4), (Columns, (8, 16), 0), (Rows, (3, 16), 0)):
        compiled = graph().compile(backend="host", x=((8, 16), F32))
        compiled(np.ones(cut, F32), n=cut[graph is Columns])
        assert compiled.traffic.inputs == copied


def test_ids_of_a_gather_are_given_as_control_words():
    """Made by the host of what a call gives: they are words too, however the steps are dispatched."""

    class Lookup(iron.Graph):
        def __init__(self) -> None:
            self.table = iron.state((64, 64))

        def body(self, ids: Any) -> Any:
            return Copy(self.table[ids])

    ids = np.arange(8, dtype=np.int32)
    for packaging in ({}, {"image": iron.CONTEXTS}):
        compiled = Lookup().compile(backend="sim", dev="npu2", ids=((8,), np.int32), **packaging)
        compiled(ids)
        assert compiled.traffic.inputs == ids.nbytes and compiled.traffic.words > ids.nbytes


def test_an_operator_by_itself_counts_too():
    image = iron.OperatorImage(RowwiseAdd(rows=4, cols=64), backend="sim", dev="npu2")
    image(np.ones((4, 64), BF16), np.ones(64, BF16))
    assert image.traffic == Traffic(inputs=(4 + 1) * 64 * 2, outputs=4 * 64 * 2, loads=1)


def test_a_backend_that_does_not_count_says_so():
    """Its memory is its own."""

    class Plain:
        def __init__(self, plan: Any) -> None:
            self.kept = Memory(plan)
            self.grow, self.read, self.write = self.kept.grow, self.kept.read, self.kept.write
            self.places, self.banks = self.kept.places, self.kept.banks

    class Uncounted(ReferenceBackend):
        name = "uncounted"

        def memory(self, plan: Any) -> Any:
            return Plain(plan)

        def load(self, image: Any, memory: Any) -> Any:
            return super().load(image, memory.kept)

    class Twice(iron.Graph):
        def body(self, x: Any) -> Any:
            return ElementwiseAdd(x, x)

    compiled = Twice().compile(backend=Uncounted(), dev="host", x=((4,), F32))
    compiled(np.ones(4, F32))
    with pytest.raises(UnsupportedError, match="backend uncounted does not count what it copies"):
        compiled.traffic  # noqa: B018
