"""`Part`: what it needs, how what it holds is named, and an author's mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import DeclarationError, FormatError, ShapeError
from iron_lm import testing
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.part import Part, Weights, check_held
from iron_ops_aie import GEMM, ElementwiseAdd


class Matrix(Part):
    """x times a square matrix."""

    matrix: Any

    def __init__(self, size: int) -> None:
        self.needs(matrix=(size, size))

    def body(self, x: Any) -> Any:
        return GEMM(x, self.matrix, b_col_maj=True)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        return np.asarray(x @ weights["matrix"].T)


class Tower(Part):
    """A norm that is shared, matrices in a list and a dict, and a residual."""

    def __init__(self, size: int) -> None:
        self.norm = Norm(NormConfig(size))
        self.again = self.norm
        self.steps = [Matrix(size), Matrix(size)]
        self.ways = {"left": Matrix(size), "right": self.steps[1]}

    def body(self, x: Any) -> Any:
        x = self.again(self.steps[1](self.steps[0](self.norm(x))))
        return ElementwiseAdd(self.ways["left"](x), self.ways["right"](x))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        def run(held: str, x: np.ndarray) -> np.ndarray:
            part: Any = {"norm": self.norm, "again": self.again, "steps.0": self.steps[0], "steps.1": self.steps[1]}.get(held)
            part = part or self.ways[held.partition(".")[2]]
            return np.asarray(part.twin(self.inside(weights, held), x))

        for held in ("norm", "steps.0", "steps.1", "again"):
            x = run(held, x)
        return run("ways.left", x) + run("ways.right", x)


SHAPES = {"norm.weight": (4,), "steps.0.matrix": (4, 4), "steps.1.matrix": (4, 4), "ways.left.matrix": (4, 4)}


def test_tensors_are_named_by_the_path_to_the_part_that_needs_them() -> None:
    """In the order the parts were given; one that is held twice is named once, by its first place."""
    tower = Tower(4)
    assert tower.tensors() == SHAPES and list(tower.tensors()) == list(SHAPES)
    assert [path for path, _ in tower.walk()] == ["", "norm", "steps.0", "steps.1", "ways.left"]


def test_the_parts_of_a_graph_are_named_as_the_graph_names_them() -> None:
    """The weights of a trace have the same paths."""
    tower = Tower(4)
    tower.fill(testing.drawn(tower))
    assert {weight.name for weight in tower.trace(x=((2, 4), np.float32)).weights} == set(SHAPES)


def test_what_is_shared_has_the_same_weights_at_every_place(backend: str, run: Any) -> None:
    """On a backend and in the twin, which finds them by the place they are asked for at."""
    report = testing.check_part(Tower(4), run, np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32), backend=backend)
    assert report.passed, report.lines()
    weights = testing.drawn(Tower(4))
    assert Tower(4).inside(weights, "again") == {"weight": weights["norm.weight"]}
    assert Tower(4).inside(weights, "ways.right") == {"matrix": weights["steps.1.matrix"]}


def test_filled_it_holds_the_arrays_themselves() -> None:
    """No copy: the mapped file's own numbers."""
    tower = Tower(4)
    weights = testing.drawn(tower)
    assert tower.fill(weights) is tower and tower.steps[0].matrix.data is weights["steps.0.matrix"]


def test_the_same_part_in_two_graphs_is_filled_by_either() -> None:
    """It is one object."""
    norm = Norm(NormConfig(4))
    norm.fill({"weight": np.full(4, 2, np.float32)})
    tower = Tower(4)
    tower.norm = norm
    assert tower.tensors()["norm.weight"] == (4,) and (norm.weight.data == 2).all()


def changed(**changes: Any) -> dict[str, Any]:
    """Weights of a `Tower`, with these in their place (None: left out)."""
    found = testing.drawn(Tower(4)) | {path.replace("__", "."): array for path, array in changes.items()}
    return {path: array for path, array in found.items() if array is not None}


@pytest.mark.parametrize(("weights", "error", "says"), [
    (changed(steps__1__matrix=None), DeclarationError, r"^Tower: no weight steps\.1\.matrix \[4, 4\] is given\.$"),
    (changed(steps__1__matrix=None, steps__1__matrlx=np.ones((4, 4))), DeclarationError, r"is given; there is steps\.1\.matrlx\.$"),
    (changed(ways__left__matrix=np.ones((4, 3))), ShapeError, r"^Tower: ways\.left\.matrix is \[4, 3\], not \[4, 4\]\.$"),
    (changed(norm__weight=np.array(1, np.float32)), ShapeError, r"^Tower: norm\.weight is \[\], not \[4\]\.$"),
    (changed(norm__weight=[1.0] * 4), DeclarationError, r"^Tower: norm\.weight is given as a list; legal: an array of numpy"),
    (changed(norm__weight=np.ones(4, np.complex64)), FormatError, "complex64"),
    (changed(again__weight=np.ones(4)), DeclarationError, r"^Tower: again\.weight is given, and no part needs it\. Legal: "),
])  # fmt: skip
def test_weights_that_are_not_what_it_needs(weights: dict[str, Any], error: type[Exception], says: str) -> None:
    """One is missing, misspelt, of another shape, or needed by nobody: it is named, and nothing was taken."""
    tower = Tower(4)
    with pytest.raises(error, match=says):
        tower.fill(weights)
    assert tower.norm.weight is None and tower.steps[0].matrix is None


def test_compiled_before_it_is_filled() -> None:
    """The first tensor without numbers is named, and it can be filled and compiled after."""
    tower, x = Tower(4), np.ones((2, 4), np.float32)
    for early in (lambda: tower.compile(backend="reference", x=((2, 4), np.float32)), lambda: tower.reference(x)):
        with pytest.raises(DeclarationError, match=r"^Tower: norm\.weight has no numbers; .* first, part\.fill\(weights\)\.$"):
            early()
    tower.fill(testing.drawn(tower))
    assert tower.compile(backend="reference", x=((2, 4), np.float32))(x).shape == (2, 4)


class Twice(iron.Graph):
    """x + part(x): a graph that is no part."""

    def __init__(self, part: Part) -> None:
        self.part = part

    def body(self, x: Any) -> Any:
        return ElementwiseAdd(x, self.part(x))


def test_called_in_the_body_of_any_graph(backend: str) -> None:
    """It is traced into it, its weights under the graph's own paths."""
    tower, x = Tower(4), np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    weights = testing.drawn(tower)
    tower.fill(weights)
    compiled = Twice(tower).compile(backend=backend, x=(x.shape, np.float32))
    assert np.abs(compiled(x) - x - tower.twin(weights, x)).max() < 1e-4
    assert {weight.name for weight in Twice(tower).trace(x=(x.shape, np.float32)).weights} == {f"part.{path}" for path in SHAPES}


def test_called_in_a_body_before_it_is_filled() -> None:
    """The part whose numbers are missing names the first of them."""
    for part in (Matrix(4), Tower(4)):
        with pytest.raises(DeclarationError, match=r"^(Matrix: matrix|Norm: weight) has no numbers; .* first, part\.fill\(weights\)\.$"):
            Twice(part).trace(x=((2, 4), np.float32))


def test_a_tensor_needed_twice() -> None:
    """By one part under one name; or under the name of something else that it has."""
    with pytest.raises(DeclarationError, match=r"Matrix\.needs\(matrix=\[3, 3\]\): the part needs it already, \[4, 4\]\. Legal: "):
        Matrix(4).needs(matrix=(3, 3))
    with pytest.raises(DeclarationError, match=r"Tower\.needs\(norm=\[4\]\): the part has an attribute of that name"):
        Tower(4).needs(norm=(4,))
    with pytest.raises(DeclarationError, match=r"has an attribute of that name"):
        Matrix(4).needs(body=(4,))


def test_a_twin_says_which_weight_is_missing() -> None:
    """As fill() does, whether it is its own or that of a part within; and which part there is not."""
    x = np.ones((1, 4), np.float32)
    with pytest.raises(DeclarationError, match=r"^Norm: no weight weight \[4\] is given; there is weigth\.$"):
        Norm(NormConfig(4)).twin({"weigth": x[0]}, x)
    with pytest.raises(DeclarationError, match=r"^Tower: no weight steps\.1\.matrix \[4, 4\] is given; there is steps\.0\.matrix"):
        Tower(4).twin(changed(steps__1__matrix=None), x)
    with pytest.raises(DeclarationError, match=r"^Tower holds no part at steps\.7; 7 is not among 0, 1\.$"):
        Tower(4).inside(testing.drawn(Tower(4)), "steps.7")


def test_a_part_without_a_twin_says_so() -> None:
    """By its own name."""

    class Plain(Part):
        def body(self, x: Any) -> Any:
            return ElementwiseAdd(x, x)

    with pytest.raises(DeclarationError, match=r"^Plain defines no twin\(\)\.$"):
        Plain().twin({}, np.ones((1, 4), np.float32))


def test_what_is_no_part_of_its_kind_is_named() -> None:
    """By where it was given; what is one passes."""
    check_held("Tower", Part, first=Matrix(4), second=Norm(NormConfig(4)))
    with pytest.raises(DeclarationError, match=r"^Tower: second is an object of class `Matrix`; legal: a Norm\.$"):
        check_held("Tower", Norm, first=Norm(NormConfig(4)), second=Matrix(4))
    with pytest.raises(DeclarationError, match=r"^Layer: mixer is None; legal: a Part\.$"):
        check_held("Layer", Part, mixer=None)
