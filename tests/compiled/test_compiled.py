"""Compiled graphs: versions, calls, refusals, weights and states, and loops."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import iron_core as iron
from iron_core.compiled.compile import compile_graph
from iron_core.errors import BoundsError, CallError, DeclarationError, ShapeError, UnknownName, UnsupportedError
from iron_core.graph.reference import compiled_shapes
from iron_ops_aie import Copy, ElementwiseAdd, SiLU
from tests.compiled.graphs import F32, Project, Walk


class Maybe(iron.Graph):
    """x, plus y where it is given."""

    def body(self, x, y=None):
        return SiLU(x) if y is None else ElementwiseAdd(x, y)


# -- versions -------------------------------------------------------------------------------------


def test_the_same_four_give_the_same_object(w):
    """Compiling again on the same backend, device, boundaries and image adds a version."""
    graph = Project(w)
    first = graph.compile(x=((16, 8), F32), backend="reference")
    assert graph.compile(x=((4, 8), F32), backend="reference") is first
    assert len(first.versions) == 2
    assert graph.compile(x=((4, 8), F32), backend="reference", dev="npu2") is not first
    assert graph.compile(x=((4, 8), F32), backend="reference", boundaries=iron.each_step) is not first


def test_a_call_compiles_a_version_that_is_missing_and_says_so(project, x, capsys):
    """Another dtype is another version; the line on stderr names its inputs."""
    project(x.astype(iron.bfloat16), n=3)
    assert "compiling a version for x=(16, 8) bfloat16" in capsys.readouterr().err
    project(x.astype(iron.bfloat16), n=4)
    assert capsys.readouterr().err == ""
    assert len(project.versions) == 2


def test_an_optional_input_left_out_is_a_version(capsys):
    """None, or nothing, selects the version without it."""
    maybe = Maybe().compile(x=((4,), F32), backend="reference")
    x = np.ones(4, F32)
    assert np.array_equal(maybe(x), maybe(x, None))
    assert maybe(x, x).tolist() == [2, 2, 2, 2]
    assert maybe(x, y=x).tolist() == [2, 2, 2, 2]
    assert len(maybe.versions) == 2


def test_calling_the_graph_runs_what_was_compiled(w, x):
    """`graph(...)` uses the object compiled last."""
    graph = Project(w)
    compiled = graph.compile(x=((16, 8), F32), backend="reference")
    assert np.array_equal(graph(x, n=2), compiled(x, n=2))


@pytest.mark.parametrize("name", [n for n, one in inspect.signature(compile_graph).parameters.items() if one.kind is one.KEYWORD_ONLY])
def test_an_input_named_like_a_keyword_of_compile_is_refused(name):
    """Its shape could not be given."""

    class Clash(iron.Graph):
        body = eval(f"lambda self, {name}: SiLU({name})")

    with pytest.raises(DeclarationError, match=f"input {name} has the name of a keyword of compile"):
        Clash().compile(backend="reference")


# -- calls ----------------------------------------------------------------------------------------


def test_a_bounded_input_is_given_whole_or_cut(project, x, w):
    """Both give the same rows, and as many as the bound says."""
    whole, cut = project(x, n=5), project(x[:5], n=5)
    assert whole.shape == (5, 6)
    assert np.array_equal(whole, cut)
    assert np.array_equal(whole, project.reference(x[:5], n=5))


@pytest.mark.parametrize("n", [-1, 17])
def test_an_index_outside_its_view_is_refused_before_the_call(project, x, n):
    """The message has the value and what is legal."""
    with pytest.raises(BoundsError, match=rf"n={n}.*legal: 0 to 16"):
        project(x, n=n)


@pytest.mark.parametrize("values, says", [({}, "needs n="), ({"n": 1, "m": 2}, "takes no m=")])
def test_missing_and_unknown_values_are_refused(project, x, values, says):
    """Every per-call value, and nothing else, is given at every call."""
    with pytest.raises(CallError, match=f"{says}.*Its per-call values: n"):
        project(x, **values)


def test_wrong_tensors_are_refused(project, x):
    """A missing tensor, one too many, and a dtype Iron does not carry each say so."""
    with pytest.raises(CallError, match="takes 1 tensors"):
        project(n=1)
    with pytest.raises(CallError, match="takes 1 tensors"):
        project(x, x, n=1)
    with pytest.raises(CallError, match="input x is float64"):
        project(x.astype(np.float64), n=1)


def test_gathered_ids_are_checked(w):
    """An id that is no row of its table is refused, but only among those the call reads."""

    class Rows(iron.Graph):
        def __init__(self):
            self.table = iron.weight(w)

        def body(self, ids, *, n: iron.Scratchpad[np.int32]):
            return Copy(self.table[ids[:n]])

    rows = Rows().compile(ids=((3,), np.int32), backend="reference")
    ids = np.array([5, 0, 6], np.int32)
    assert np.array_equal(rows(ids, n=2), w[[5, 0]])
    with pytest.raises(BoundsError, match="ids holds id 6; legal: -6 to 5"):
        rows(ids, n=3)


# -- weights and states ---------------------------------------------------------------------------


def test_states_are_shared_by_versions_and_read_by_name_or_object():
    """What one version writes is where the next reads it; it starts as zeros."""

    class Sum(iron.Graph):
        def __init__(self):
            self.total = iron.state((4,), F32)

        def body(self, x, y=None):
            s = ElementwiseAdd(self.total, x)
            Copy(s if y is None else ElementwiseAdd(s, y), self.total)

    graph = Sum()
    compiled = graph.compile(x=((4,), F32), backend="reference")
    compiled(np.ones(4, F32))
    compiled(np.ones(4, F32), np.full(4, 2, F32))
    assert compiled.read("total").tolist() == compiled.read(graph.total).tolist() == [4, 4, 4, 4]
    compiled.write(graph.total, np.zeros(4))
    compiled(np.ones(4, F32))
    assert compiled.read("total").tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("backend", ["reference", "host", "sim"])
def test_first_rows_are_read_and_written_by_themselves(backend):
    """The others keep what they hold; a number of rows that there is not, and packed rows, are refused by name."""

    class Held(iron.Graph):
        def __init__(self):
            self.rows, self.w = iron.state((6, 32), F32), iron.weight(np.ones((4, 64), F32))

        def body(self, x):
            Copy(x, self.rows[0])
            return Copy(self.w)

    dev = "npu2" if backend == "sim" else None
    compiled = Held().compile(x=((32,), F32), backend=backend, dev=dev)
    whole = np.arange(192, dtype=F32).reshape(6, 32)
    compiled.write("rows", whole)
    compiled.write("rows", -whole[:2], rows=2)
    assert np.array_equal(compiled.read("rows"), np.concatenate([-whole[:2], whole[2:]]))
    assert np.array_equal(compiled.read("rows", 3), compiled.read("rows")[:3]) and compiled.read("rows", rows=0).shape == (0, 32)
    compiled.write("w", np.zeros((1, 64)), rows=1)
    assert compiled.read("w").sum() == 192
    for rows in (-1, 7, 2.0):
        with pytest.raises(CallError, match=re.escape(f"rows={rows} of rows; legal: 0 to 6.")):
            compiled.read("rows", rows)
    with pytest.raises(ShapeError, match=r"rows is \[2, 32\]; got \[3, 32\]"):
        compiled.write("rows", whole[:3], rows=2)


def test_another_four_have_states_of_their_own():
    """Two compiled graphs of one graph do not see each other's states."""
    graph = Walk([1, 0])
    one, other = graph.compile(backend="reference"), graph.compile(backend="reference", dev="npu1")
    one(node=0, steps=0)
    assert one.read("way")[0, 0] == 1
    assert other.read("way")[0, 0] == 0


def test_writing_a_weight_reaches_every_version_and_not_the_callers_array(w, x):
    """The array that the weight was made of stays as it was."""
    graph = Project(w)
    compiled = graph.compile(x=((16, 8), F32), backend="reference")
    before = w.copy()
    compiled.write("w", np.zeros((6, 8), F32))
    assert not compiled(x, n=4).any()
    assert np.array_equal(w, before)


def test_wrong_names_and_shapes_of_residents_are_refused(project):
    """Reading what is not there lists what is; writing another shape says both."""
    with pytest.raises(UnknownName, match=r"no weight or state `v`. It has: w"):
        project.read("v")
    with pytest.raises(UnknownName):
        project.read(np.zeros(3))
    with pytest.raises(ShapeError, match=r"\[6, 8\]; got \[3\]"):
        project.write("w", np.zeros(3, F32))


# -- loops ----------------------------------------------------------------------------------------


def test_a_loop_runs_on_what_the_last_step_carried():
    """Each step starts from the numbers of the one before; the last ones are returned."""
    walk = Walk([3, 0, 1, 2]).compile(backend="reference")
    seen = []
    last = walk.loop(5, lambda i, carried: seen.append((i, carried["node"])), node=0, steps=0)
    assert seen == [(0, 3), (1, 2), (2, 1), (3, 0), (4, 3)]
    assert last == {"node": 3, "steps": 5}
    assert walk.read("way")[:5, 0].tolist() == [3, 2, 1, 0, 3]


def test_a_loop_stops_when_told():
    """The call-back's True ends it, and the steps past it did not run."""
    walk = Walk([1, 2, 3, 0]).compile(backend="reference")
    assert walk.loop(6, lambda i, carried: carried["node"] == 2, node=0, steps=0) == {"node": 2, "steps": 2}
    assert walk.read("way")[2, 0] == 0


@pytest.mark.parametrize("count", [-1, 1 << 63, 10**30, 2.5, "3", None, [2]])
def test_a_loop_makes_a_whole_number_of_steps(count):
    """What is no count, or more than a loop can count, is refused before a step is made."""
    walk = Walk([1, 0]).compile(backend="reference")
    with pytest.raises(CallError, match=rf"steps={re.escape(repr(count))}[:;].*(whole number|legal: 0 to)"):
        walk.loop(count, node=0, steps=0)
    assert walk.loop(0, node=1, steps=5) == {"node": 1, "steps": 5} == walk.loop(np.int64(2), node=1, steps=3)


def test_a_loop_checks_every_step_before_it_runs():
    """The index that would leave its view is refused at its step, not written past the end."""
    walk = Walk([1, 0]).compile(backend="reference")
    with pytest.raises(BoundsError, match="steps=8"):
        walk.loop(20, node=0, steps=0)
    assert walk.read("way")[:, 0].tolist() == [1, 0] * 4


def test_a_loop_holds_fixed_only_values_that_no_step_follows():
    """A value of another version may be any number; one this version follows must be carried."""

    class Two(Walk):
        def body(self, x=None, *, node: iron.Carried[np.int32], steps: iron.Carried[np.int32], row: iron.Scratchpad[np.int32]):
            here = Copy(self.successor[node])
            Copy(here, self.way[steps if x is None else row])
            return iron.carry(node=here, steps=steps + 1)

    class Fixed(Walk):
        def body(self, *, node: iron.Carried[np.int32], steps: iron.Carried[np.int32], row: iron.Scratchpad[np.int32]):
            here = Copy(self.successor[node])
            Copy(here, self.way[row])
            return iron.carry(node=here, steps=steps + 1)

    last = Two([1, 0]).compile(backend="reference").loop(3, node=0, steps=0, row=0)
    assert last == {"node": 1, "steps": 3}
    with pytest.raises(CallError, match="row would stay the same"):
        Fixed([1, 0]).compile(backend="reference").loop(3, node=0, steps=0, row=0)


def test_a_call_returns_carried_values_last():
    """As a namespace of the next call's numbers."""
    walk = Walk([1, 0]).compile(backend="reference")
    (carried,) = walk(node=0, steps=0)
    assert (carried.node, carried.steps) == (1, 1)


# -- explain, record, folds of options ------------------------------------------------------------


def test_explain_says_what_and_why(project):
    """Backend, packaging, weights, each step and each word are in it, with reasons."""
    text = project.explain()
    for part in ("reference was asked for", "host", "n: patched", "1, 192 B", "gemm0", "word       n: gemm0.valid"):
        assert part in text


def test_verbose_prints_the_explanation_on_stderr(w, capsys):
    """stdout stays the program's own."""
    Project(w).compile(x=((16, 8), F32), backend="null", dev="npu2", verbose=True)
    out, err = capsys.readouterr()
    assert out == "" and "patched through the parameter scratchpad" in err


def test_the_record_is_data_and_can_go_to_disk(w, tmp_path, monkeypatch):
    """Steps, operators and places; `record="disk"` writes the same as JSON into the cache."""
    import json

    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    compiled = Project(w).compile(x=((16, 8), F32), backend="null", record="disk")
    (version,) = compiled.versions.values()
    (file,) = tmp_path.rglob("record.json")
    assert json.loads(file.read_text()) == version.artifacts
    assert version.artifacts["steps"][0]["operands"]["B"] == ["resident", "w", 0, 192]
    assert version.artifacts["residents"] == {}, "the host has no banks for them"
    on_npu = Project(w).compile(x=((16, 8), F32), backend="null", dev="npu2")
    (version,) = on_npu.versions.values()
    assert version.artifacts["residents"] == {"w": [0, 0, 192]} and version.artifacts["resident_banks"] == [192]
    assert "residents  1 bank, 192 B" in on_npu.explain()
    with pytest.raises(CallError, match="'memory' and 'disk'"):
        Project(w).compile(x=((16, 8), F32), backend="null", record="tape")
    with pytest.raises(CallError, match="'memory' and 'disk'"):
        Project(w).compile(x=((16, 8), F32), backend="null", record=np.ones(2))


@pytest.mark.parametrize("keyword", ["boundaries", "image"])
@pytest.mark.parametrize("given", ["no", ["elf"], np.ones(2)], ids=("a word", "a list", "an array"))
def test_a_packaging_is_one_that_there_is(w, keyword, given):
    """Else it is told so, also what has no hash and what no word compares with."""
    with pytest.raises(CallError, match=rf"{keyword}=.*: legal are None"):
        Project(w).compile(x=((16, 8), F32), backend="null", **{keyword: given})


@pytest.mark.parametrize("flag", ["fold", "verbose"])
def test_a_flag_is_true_or_false(w, flag):
    """Not a word that would count as true."""
    with pytest.raises(CallError, match=f"{flag}='no'; legal: True or False"):
        Project(w).compile(x=((16, 8), F32), backend="null", **{flag: "no"})


def test_packaging_follows_the_body_and_the_options(w):
    """A DispatchTime value, npu1 or each_step give a chain; an ELF against them is refused."""
    graph = Project(w)
    assert graph.compile(x=(16, 8), backend="null", dev="npu2").packaging.image == "elf"
    assert graph.compile(x=(16, 8), backend="null", dev="npu1").packaging.image == "xclbin"
    with pytest.raises(UnsupportedError, match="each_step"):
        graph.compile(x=(16, 8), backend="null", dev="npu2", image=iron.ELF, boundaries=iron.each_step)


def test_pictures_need_nothing_from_outside(project, tmp_path):
    """One page, an SVG and Graphviz text, of compiled and traced graphs alike."""
    page = project.html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page
    assert "gemm0" in page and "src=" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "12.5 us" in project.picture(table={"gemm0": 12.5})
    traced = project.trace(x=((16, 8), F32))
    assert traced.dot().startswith('digraph "Project"') and "shape=cylinder" in traced.dot()


def test_a_reference_is_of_the_version_that_the_tensors_are_whole_for(w):
    """Rows that are all of one version's are that version's, though they might be another's cut to its bound."""
    graph = Project(w)
    for rows in (16, 8):
        graph.compile(x=((rows, 8), F32), backend="reference")
    shapes = {rows: compiled_shapes(graph, {"x": np.zeros((rows, 8), F32)})["x"][0] for rows in (16, 8, 3)}
    assert shapes == {16: (16, 8), 8: (8, 8), 3: (16, 8)}
