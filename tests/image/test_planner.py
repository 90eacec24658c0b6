"""Plans: residents stored once for all versions, arenas that hold, and later versions that keep what is placed."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import FormatError, TraceError, UnsupportedError
from iron_core.graph.fold import choose_folds, find_folds
from iron_core.image.arena import ALIGNMENT, BANK_BYTES
from iron_core.image.packaging import decide
from iron_core.image.plan import BufferRef, Plan, Resident, VersionPlan
from iron_core.image.planner import Draft, adopt, draft, plan_graphs
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, RMSNorm, SiLU

F32 = np.float32


class Layers(iron.Graph):
    """`depth` projections with a residual add each, and a state that keeps the last row."""

    def __init__(self, depth=3, width=8):
        rng = np.random.default_rng(0)
        self.layers = [{"w": rng.standard_normal((width, width)).astype(F32)} for _ in range(depth)]
        self.last = iron.state((width,), F32)

    def body(self, x):
        for layer in self.layers:
            x = ElementwiseAdd(x, SiLU(GEMM(x, layer["w"], b_col_maj=True)))
        Copy(x[0], self.last)
        return x


def refs(version):
    return [ref for step in version.steps for ref in step.operands.values()]



def test_residents_are_stored_once_for_all_versions():
    """Two versions refer to the same weights and the same state by the same numbers."""
    graph = Layers()
    plan = plan_graphs([graph.trace(x=((4, 8), F32)), graph.trace(x=((16, 8), F32))])
    assert [(r.kind, r.name) for r in plan.residents] == [
        ("weight", "layers.0.w"),
        ("weight", "layers.1.w"),
        ("weight", "layers.2.w"),
        ("state", "last"),
    ]
    used = [[ref.index for ref in refs(version) if ref.space == "resident"] for version in plan.versions]
    assert used == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert plan.residents[0].data is graph.layers[0]["w"]


def test_a_weight_used_twice_is_one_resident():
    """One array under two attributes, or read by two steps, is one buffer under its first name."""

    class Tied(iron.Graph):
        def __init__(self):
            self.first = np.ones((8, 8), F32)
            self.second = self.first

        def body(self, x):
            return GEMM(GEMM(x, self.first), self.second)

    plan = plan_graphs([Tied().trace(x=((2, 8), F32))])
    assert [r.name for r in plan.residents] == ["first"]


def test_a_later_version_keeps_what_is_placed():
    """Adding a version leaves earlier versions, residents and their numbers as they are; banks only grow."""
    graph = Layers()
    compiled = graph.compile(x=((16, 8), F32), backend="null")
    before = compiled.plan
    compiled.add(x=((4, 8), F32))
    after = compiled.plan
    assert after.versions[0] is before.versions[0]
    assert after.residents == before.residents
    assert after.banks == before.banks
    compiled.add(x=((64, 8), F32))
    assert compiled.plan.versions[:2] == after.versions
    assert all(new >= old for new, old in zip(compiled.plan.banks, after.banks, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_residents_never_move(data):
    """Whatever versions follow, of whatever arena and with whatever residents more: each has its bank and offset for good,
    none shares a byte with another, and no bank is larger than an NPU maps."""
    sizes = st.one_of(st.integers(1, 300), st.integers(1, BANK_BYTES))
    plan = Plan("p", "null", "npu2", decide("npu2"), (), (), ())
    settled = {}
    for number in range(data.draw(st.integers(1, 6))):
        keys = data.draw(st.lists(st.integers(0, 8), unique=True))
        new = {key: data.draw(sizes) for key in keys if key not in settled}
        kept = {resident.key: resident for resident in plan.residents}
        residents = [kept.get(key) or Resident(f"r{key}", "state", (new[key],), iron.Dense(np.int8), key=key) for key in keys]
        version = VersionPlan((number,), (), (), (), ())
        plan = adopt(plan, Draft("p", version, tuple(residents), (data.draw(st.integers(0, BANK_BYTES)),)))
        for resident in plan.residents:
            assert settled.setdefault(resident.key, resident.spot) == resident.spot
    ends = [0] * len(plan.resident_banks)
    for resident in sorted(plan.residents, key=lambda r: (r.spot.bank, r.spot.offset)):
        spot = resident.spot
        assert spot.offset % ALIGNMENT == 0 and spot.offset >= ends[spot.bank]
        ends[spot.bank] = spot.offset + resident.nbytes
    assert all(end <= bank <= BANK_BYTES for end, bank in zip(ends, plan.resident_banks, strict=True))


class Large(iron.Graph):
    """Its state of `rows` rows of a MiB each is read at a row."""

    def __init__(self, rows):
        self.table = iron.state((rows, 1 << 19))

    def body(self, *, at: iron.Scratchpad[np.int32]):
        return Copy(self.table[at])


def test_a_resident_larger_than_a_bank_is_refused_where_there_are_banks():
    """3.5 GiB is the most; the message has the name, the bytes and what would be legal."""
    assert Large(3584).compile(dev="npu2", backend="null").plan.resident_banks == (BANK_BYTES,)
    for dev in ("npu1", "npu2"):
        with pytest.raises(UnsupportedError, match=rf"Large: state `table` has {3585 << 20} bytes, and a bank of {dev}'s memory holds "):
            Large(3585).compile(dev=dev, backend="null")
    (kept,) = Large(3585).compile(dev="host", backend="null").plan.residents
    assert kept.spot is None


def test_names_that_two_traces_invent_do_not_alias():
    """An array no attribute holds gets a name per storage, not per trace."""

    class Constant(iron.Graph):
        def body(self, x):
            return ElementwiseAdd(x, np.full(x.shape, x.shape[0], F32))

    compiled = Constant().compile(x=((2,), F32), backend="reference")
    compiled.add(x=((3,), F32))
    assert len({r.name for r in compiled.plan.residents}) == 2
    assert compiled(np.zeros(2, F32)).tolist() == [2, 2]
    assert compiled(np.zeros(3, F32)).tolist() == [3, 3, 3]


def test_a_name_that_is_made_free_is_taken_from_then_on():
    """By another tensor of the same version, whose own name it is."""

    class Sum(iron.Graph):
        def body(self, x):
            return ElementwiseAdd(ElementwiseAdd(x, np.ones(2, F32)), np.zeros(2, F32))

    plan, later = plan_graphs([Sum().trace(x=((2,), F32))]), draft(Sum().trace(x=((2,), F32)))
    assert [r.name for r in plan.residents] == ["w0", "w1"]
    both = tuple(attrs.evolve(r, name=name) for r, name in zip(later.residents, ("w0", "w0_1"), strict=True))
    assert [r.name for r in adopt(plan, attrs.evolve(later, residents=both)).residents] == ["w0", "w1", "w0_1", "w0_1_1"]


def test_a_tensor_returned_twice_is_refused():
    """Two outputs are two buffers; the message says to copy."""

    class Twice(iron.Graph):
        def body(self, x):
            y = SiLU(x)
            return y, y

    with pytest.raises(TraceError, match="Return it once"):
        Twice().compile(x=(8,), backend="null")


@st.composite
def networks(draw):
    """Random graphs: each step takes one or two earlier tensors; some tensors are returned."""
    count = draw(st.integers(1, 12))
    steps = []
    for i in range(count):
        steps.append((draw(st.integers(0, i)), draw(st.one_of(st.none(), st.integers(0, i)))))
    returned = draw(st.sets(st.integers(1, count), min_size=1, max_size=3))
    return steps, sorted(returned), draw(st.integers(1, 70))


class Network(iron.Graph):
    def __init__(self, steps, returned):
        self.steps, self.returned = steps, returned

    def body(self, x):
        tensors = [x]
        for first, second in self.steps:
            tensors.append(SiLU(tensors[first]) if second is None else ElementwiseAdd(tensors[first], tensors[second]))
        return tuple(tensors[i] for i in self.returned)


@settings(max_examples=200, deadline=None)
@given(networks())
def test_random_graphs_run_right_in_their_arena(network):
    """Operands of one step never overlap an output of it, and the run over the arena equals the run without one."""
    steps, returned, size = network
    graph = Network(steps, returned)
    compiled = graph.compile(x=((size,), F32), backend="reference")
    (version,) = compiled.plan.versions
    for step in version.steps:
        y = step.operands["y"]
        assert not any(y.overlaps(ref) for name, ref in step.operands.items() if name != "y")
    for ref in refs(version):
        if ref.space == "arena":
            assert ref.offset % ALIGNMENT == 0
            assert ref.offset + ref.nbytes <= compiled.plan.banks[ref.index]
    x = np.linspace(-1, 1, size, dtype=F32)
    for got, want in zip(compiled(x), compiled.reference(x), strict=True):
        assert np.array_equal(got, want)


def test_references_know_when_they_overlap():
    """Bytes are shared within one buffer of one space only."""
    a = BufferRef("arena", 0, 0, (16,), iron.Dense(F32))
    assert a.overlaps(BufferRef("arena", 0, 60, (16,), iron.Dense(F32)))
    assert not a.overlaps(BufferRef("arena", 0, 64, (16,), iron.Dense(F32)))
    assert not a.overlaps(BufferRef("arena", 1, 0, (16,), iron.Dense(F32)))
    assert not a.overlaps(BufferRef("input", 0, 0, (16,), iron.Dense(F32)))


def test_an_input_may_be_cut_where_every_reader_bounds_it_alike():
    """A port has the bound of its readers; one that any reader takes whole has none."""

    class Bounded(iron.Graph):
        def __init__(self, whole):
            self.whole = whole

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            y = SiLU(x[:n])
            return (y, SiLU(x)) if self.whole else y

    (cut,) = plan_graphs([Bounded(False).trace(x=(8, 4))]).versions
    assert [axis for axis, _ in cut.inputs[0].bounds] == [0]
    (whole,) = plan_graphs([Bounded(True).trace(x=(8, 4))]).versions
    assert whole.inputs[0].bounds == ()


def test_block_weights_are_referenced_by_bytes():
    """A row slice of a block-quantised weight starts at whole blocks."""

    class Rows(iron.Graph):
        def __init__(self):
            self.w = iron.weight(iron.Q4_0.quantize(np.ones((4, 64), F32)))

        def body(self, x):
            return GEMM(x, self.w[2:], b_col_maj=True)

    (version,) = plan_graphs([Rows().trace(x=((2, 64), F32))]).versions
    ref = version.steps[0].operands["B"]
    assert (ref.offset, ref.shape, ref.nbytes) == (2 * 36, (2, 64), 2 * 36)
    assert iron.Q4_0.offset(96, (4, 64)) == 3 * 18
    with pytest.raises(FormatError, match="element 40 is not the first of a block of 32"):
        iron.Q4_0.offset(40, (4, 64))


def test_a_version_that_is_not_planned_is_not_found():
    """A plan answers for the signatures that it has."""
    plan = plan_graphs([Layers().trace(x=((4, 8), F32))])
    assert plan.version((("x", (4, 8), "float32"),)) is plan.versions[0]
    with pytest.raises(KeyError):
        plan.version((("x", (5, 8), "float32"),))


def test_what_a_prologue_reads_stays_for_its_last_consumer():
    """Folded into two products, a normalisation is computed again at the second: nothing made meanwhile lies on its input."""

    class Twice(iron.Graph):
        def __init__(self):
            self.g, self.w, self.v = np.ones(8, F32), np.ones((8, 8), F32), np.ones((8, 8), F32)

        def body(self, x, z):
            y = SiLU(x)
            h = RMSNorm(y.reshape(1, 8), weight=self.g).reshape(8)
            one, meanwhile = GEMV(self.w, h), SiLU(z)
            return ElementwiseAdd(ElementwiseAdd(one, GEMV(self.v, h)), meanwhile)

    traced = Twice().trace(x=((8,), F32), z=((8,), F32))
    (fold,) = [fold for fold in find_folds(traced) if fold.kind == "prologue" and fold.producer == "rmsnorm0"]
    for folds, reused in (([], True), ([fold], False)):
        first, _, one, meanwhile, other, *_ = draft(traced, folds).version.steps
        later = [one.operands["C"], meanwhile.operands["y"], other.operands["C"]]
        assert any(first.operands["y"].overlaps(made) for made in later) is reused


def test_what_a_prologue_reads_stays_until_its_consumers_chain_runs():
    """A product with a sum behind it runs where the sum may; what the step in front of it reads is there then, too."""

    class Late(iron.Graph):
        def __init__(self):
            self.w = np.ones((8, 8), F32)

        def body(self, x, z):
            y = SiLU(x)
            one = GEMV(self.w, SiLU(y))
            return ElementwiseAdd(one, GEMV(self.w, SiLU(SiLU(z))))

    traced = Late().trace(x=((8,), F32), z=((8,), F32))
    wanted = [("finish", "gemv0"), ("prologue", "silu1")]
    folds = choose_folds(traced, lambda fold: (fold.kind, fold.producer) in wanted)
    assert [(fold.kind, fold.producer) for fold in folds] == wanted
    assert folds[0].runs_at == "elementwiseadd0"
    for chosen, reused in (([], True), (folds[:1], True), (folds, False)):
        first, _, *later = draft(traced, chosen).version.steps
        made = [step.operands[name] for step in later[:-1] for name in ("y", "C") if name in step.operands]
        assert any(first.operands["y"].overlaps(ref) for ref in made) is reused


def test_a_folded_step_keeps_what_it_needs_where_it_runs():
    """With folds the interpreter's result is the same, and no step reads bytes that another has at that place."""
    graph = Layers()
    plain = graph.compile(x=((4, 8), F32), backend="reference")
    x = np.linspace(-1, 1, 32, dtype=F32).reshape(4, 8)
    want = plain(x)
    folded = Layers().compile(x=((4, 8), F32), backend="reference", fold=True)
    (version,) = folded.plan.versions
    assert version.folds
    assert np.array_equal(folded(x), want)
    by_name = {step.name: step for step in version.steps}
    order = [step.name for step in version.steps]
    for fold in version.folds:
        if fold.kind == "prologue":
            continue
        inside = {fold.producer, *fold.consumers}
        inputs = [
            ref
            for name in inside
            for operand, ref in by_name[name].operands.items()
            if by_name[name].op.operands[operand].read and ref.space == "arena"
        ]
        for name in order[order.index(fold.producer) + 1 : order.index(fold.runs_at)]:
            made = by_name[name].operands.get("y")
            assert name in inside or made is None or not any(made.overlaps(ref) for ref in inputs)


class Carrying(iron.Graph):
    """Carries what steps made, one of them twice, and an expression; `given` says whether a caller's tensor is read."""

    def __init__(self, returned=False):
        self.next = iron.weight(np.arange(8, dtype=np.int32))
        self.wide = iron.weight(np.arange(64, dtype=F32).reshape(8, 8))
        self.returned = returned

    def body(self, x=None, *, a: iron.Carried[np.int32], b: iron.Carried[np.int32], at: iron.Carried[np.int32]):
        one = Copy(self.next[at])
        sums = ElementwiseAdd(self.wide[0] if x is None else x, self.wide[1])
        return (one if self.returned else sums), iron.carry(a=one, b=one, at=at + 1)


def test_what_a_version_computes_for_its_next_call_lies_in_planes():
    """Plane 1 holds the elements by the order of what is carried, one that is carried twice once; nothing else is ever there."""
    (version,) = plan_graphs([Carrying().trace()]).versions
    planes = version.planes
    assert planes.shape == (2, 3) and planes.format.dtype == np.int32
    a, b, at = (term.source for term in version.carry)
    assert a == b and not isinstance(at, BufferRef)
    assert (a.space, a.index, a.offset) == ("arena", planes.index, planes.offset + 3 * 4)
    assert [ref for ref in refs(version) if ref.overlaps(planes)] == [version.steps[0].operands["y"]]


@pytest.mark.parametrize("guard", ["0", "256"])
def test_planes_are_at_the_same_bytes_in_every_version(guard, monkeypatch):
    """One that takes a tensor leaves what it carries where the one without begins; nothing else is there in either."""
    monkeypatch.setenv("IRON_GUARD", guard)
    graph = Carrying()
    versions = plan_graphs([graph.trace(), graph.trace(x=((8,), F32))]).versions
    assert versions[0].planes == versions[1].planes and versions[0].planes.offset == int(guard)
    for version in versions:
        assert [ref for ref in refs(version) if ref.overlaps(version.planes)] == [version.steps[0].operands["y"]]
        assert (version.planes.index, version.planes.offset, version.planes.nbytes) in version.spots


@pytest.mark.parametrize(("graph", "shapes"), [(Carrying(returned=True), {}), (Layers(), dict(x=((4, 8), F32)))])
def test_others_have_no_planes(graph, shapes):
    """They also return what they carry, or carry nothing."""
    (version,) = plan_graphs([graph.trace(**shapes)]).versions
    assert version.planes is None
