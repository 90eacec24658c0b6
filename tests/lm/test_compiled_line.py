"""`Family.compiled`: the graph that a command line would run."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.auto import Auto
from tests.lm.conftest import TINY

LINE = ["--checkpoint", str(TINY), "--max-seq-len", "64", "--prefill-chunk", "32"]


@pytest.mark.parametrize("model", [Llama, Auto])
def test_a_line_has_the_graph_that_it_would_run(model):
    """One version for a token, then one for a chunk of the prompt; compiled for a device that is not here, and not loaded."""
    graph = model.compiled([*LINE, "--backend", "null", "--dev", "npu2"])
    assert [[port.shape for port in version.plan.inputs] for version in graph.versions.values()] == [[], [(32,)]]
    assert graph.dev == "npu2" and all(version.executable is None for version in graph.versions.values())


def test_options_of_a_compile_go_beside_the_lines_own():
    """Folds are taken where they are asked for, and what the line gives, as a dispatch for each step, holds."""
    plain, folded = (Llama.compiled([*LINE, "--backend", "null", "--dev", "npu2", "--each-step"], fold=fold) for fold in (False, True))
    assert folded.packaging.dispatch == "separate"
    assert [len(next(iter(graph.versions.values())).plan.folds) > 0 for graph in (plain, folded)] == [False, True]


def test_the_graph_runs():
    """It is an ordinary compiled graph."""
    graph = Llama.compiled([*LINE, "--backend", "reference"])
    values = {value.name: 0 for value in next(iter(graph.versions.values())).plan.values}
    logits, _ = graph(**values)
    assert np.isfinite(logits).all()


def test_what_a_line_lacks_is_said():
    """As `iron-run` says it."""
    with pytest.raises(UsageError, match="a checkpoint is needed: a file or folder"):
        Llama.compiled([])


def test_a_cost_table_that_is_not_there_is_said():
    """By the option, before anything is compiled; what is no table the tuner says, with the file."""
    with pytest.raises(UsageError, match=r"--cost-table nowhere\.json: No such file"):
        Llama.compiled([*LINE, "--backend", "null", "--dev", "npu2", "--cost-table", "nowhere.json"])
    with pytest.raises(ValueError, match=r"config\.json is no cost table"):
        Llama.compiled([*LINE, "--backend", "null", "--dev", "npu2", "--cost-table", str(TINY / "config.json")])


def test_random_weights_may_be_unread():
    """A tuner asks for shapes alone: a full-size model takes no time to make."""
    graph = Llama.compiled(["--random-weights", "0", "--max-seq-len", "64", "--prefill-chunk", "32", "--backend", "null", "--dev", "npu2"],
        unread=True)  # fmt: skip
    assert sum(resident.nbytes for resident in graph.plan.residents) > 1e9


def test_weights_that_become_integers_are_drawn(monkeypatch):
    """Shapes do not say what blocks and integers are: those are made, as a run makes them."""
    asked = []
    monkeypatch.setattr(loading, "random", lambda *given, **options: asked.append(options["quantize"]) or (_ for _ in ()).throw(KeyError()))
    with pytest.raises(KeyError):
        Llama.compiled(["--random-weights", "0", "--quantize", "int8", "--backend", "null", "--dev", "npu2"], unread=True)
    assert asked == ["int8"]
