"""The device's own loop: behind a full ELF's other steps `Emit` computes the words and carried values of its next call."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.protocol import Looping
from iron_core.declare.affine import Affine
from iron_core.declare.row import Row
from iron_core.errors import CallError
from iron_core.image.array_image import freeze, thaw
from iron_npu.mlir.fused import print_version
from iron_ops_aie import Copy, Sample, SiLU
from iron_ops_aie.tokens.draw import ROW_WORDS, draw_words
from iron_sim.loop import SimLoop
from tests.npu.structural import require

F32 = np.float32
STEPS = 12


class Walk(iron.Graph):
    """A model of one table: the logits after a token are the token's row."""

    def __init__(self, vocab=8):
        self.table = iron.weight(np.random.default_rng(vocab).standard_normal((vocab, vocab)).astype(F32))
        self.logits, self.record = iron.state((vocab,), F32), iron.state((STEPS,), np.int32)
        self.draws = iron.state((STEPS, ROW_WORDS), np.int32)

    def body(self, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]):
        Copy(self.table[token], self.logits)
        _, drawn = Sample(self.logits, self.draws, self.record, row=position * ROW_WORDS, at=position)
        return iron.carry(token=drawn, position=position + 1)


def walk(dev="npu2", backend="sim"):
    run = Walk().compile(backend=backend, dev=dev)
    rng = np.random.default_rng(5)
    run.write("draws", np.stack([draw_words(0.9, 8, int(rng.integers(1 << 53))) for _ in range(STEPS)]))
    return run


def executable(run):
    (version,) = run.versions.values()
    return version.load()


@pytest.fixture(scope="module")
def drawn():
    """What the host's CPU draws."""
    run = walk("host", "host")
    run.loop(STEPS, token=0, position=0)
    return run.read("record").tolist()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_loop_draws_the_tokens_that_the_cpu_draws(dev, drawn):
    """npu2 in one dispatch a step that feeds the next; npu1 step by step, started by the host."""
    run = walk(dev)
    assert run.loop(STEPS, token=0, position=0) == dict(token=drawn[-1], position=STEPS)
    assert run.read("record").tolist() == drawn
    assert isinstance(executable(run), Looping) == (dev == "npu2")


def test_the_host_evaluates_the_words_of_the_first_step_alone(monkeypatch, drawn):
    """After it what it hands over is what the device left."""
    run, asked = walk(), []
    of = {id(parameter.form) for parameter in executable(run).image.parameters}
    at = Affine.at
    monkeypatch.setattr(Affine, "at", lambda self, values: (id(self) in of and asked.append(self)) or at(self, values))
    run.loop(STEPS, token=0, position=0)
    assert run.read("record").tolist() == drawn and len(asked) == len(of) == 3


def test_the_words_of_the_next_step_are_those_of_the_table(drawn):
    """With another row for the place that is noted, the second token is noted there."""
    run = walk()
    executable(run)
    (version,) = run.versions.values()
    at = next(n for n, word in enumerate(version.image.parameters) if (word.kind, word.form.scale) == ("offset", 1))
    program = list(version.image.program)
    program[at] = tuple(Row.constant(7))
    image = attrs.evolve(version.image, program=tuple(program))
    changed = SimLoop(image, version.load().memory)
    changed.loop(2, [], dict(token=0, position=0))
    assert run.read("record").tolist() == [drawn[0], *[0] * 6, drawn[1], *[0] * 4]


def test_an_image_from_the_cache_loops(drawn):
    """Its rows are data."""
    run = walk()
    (version,) = run.versions.values()
    again = SimLoop(thaw(freeze(version.image)), version.load().memory)
    again.loop(STEPS, [], dict(token=0, position=0))
    assert run.read("record").tolist() == drawn


def test_values_that_the_table_cannot_see_are_left_in_the_planes():
    """Plane 1 is where a step's own numbers lie; plane 0, afterwards, what the next call starts from."""
    run = walk()
    (version,) = run.plan.versions
    planes = version.planes
    assert planes.shape == (2, 2) and version.carry[0].source.offset == planes.offset + 2 * 4
    (carried,) = run(token=3, position=2)
    left = executable(run).memory.at(planes).view(np.int32).tolist()
    assert left[:2] == [carried.token, 3] and left[2] == carried.token


def test_calls_between_two_steps_change_nothing(drawn):
    """The loop goes on with its own words and values."""
    run = walk()

    def between(index, now):
        kept = run.read("record")
        run(token=1, position=STEPS - 1)
        run.write("record", kept)
        return False

    assert run.loop(STEPS, between, token=0, position=0)["position"] == STEPS
    assert run.read("record").tolist() == drawn


def test_a_value_that_leaves_its_dtype_ends_the_loop():
    """Before the step that would start from it; the device's own numbers would wrap."""

    class Count(iron.Graph):
        def __init__(self):
            self.rows = iron.weight(np.zeros((4, 4), F32))

        def body(self, *, n: iron.Carried[np.int32]):
            Copy(self.rows[n // (1 << 30)])
            return iron.carry(n=n * 2)

    run = Count().compile(backend="sim", dev="npu2")
    assert isinstance(executable(run), SimLoop)
    with pytest.raises(CallError, match="n=2147483648 does not fit int32") as error:
        run.loop(9, n=1 << 29)
    assert error.value.__notes__ == ["The loop was ended after 2 of 9 steps."]


# -- which versions loop by themselves -----------------------------------------------------------------


class Bounded(iron.Graph):
    def body(self, x, *, n: iron.Carried[np.int32]):
        return SiLU(x[:n]), iron.carry(n=n + 1)


class Half(iron.Graph):
    """Follows a value that it does not carry."""

    def __init__(self):
        self.rows = iron.state((8, 4), F32)

    def body(self, *, n: iron.Carried[np.int32], at: iron.Scratchpad[np.int32]):
        Copy(self.rows[at], self.rows[n])
        return iron.carry(n=n + 1)


class Returned(iron.Graph):
    """What it carries is its caller's too."""

    def __init__(self):
        self.rows = iron.weight(np.arange(8, dtype=np.int32).reshape(8, 1))

    def body(self, *, n: iron.Carried[np.int32]):
        row = Copy(self.rows[n]).reshape(1)
        return row, iron.carry(n=row)


class Thirds(iron.Graph):
    """Its next word is no row of a table: a quotient times 3, divided by 4 once more."""

    def __init__(self):
        self.rows = iron.state((64, 4), F32)

    def body(self, *, n: iron.Carried[np.int32]):
        Copy(self.rows[n // 4], self.rows[63])
        return iron.carry(n=n // 4 * 3)


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [(Bounded(), dict(x=(4096,))), (Half(), {}), (Returned(), {}), (Thirds(), {})],
    ids=["takes a tensor", "not all carried", "returned", "no row"],
)
def test_others_are_started_by_the_host_at_every_step(graph, shapes):
    """Nothing is lost but the device's loop."""
    run = graph.compile(backend="sim", dev="npu2", **shapes)
    (version,) = run.versions.values()
    assert version.image.program is None and "Emit" not in [step.operator for step in version.image.steps]
    assert not isinstance(version.load(), Looping)


def test_explain_says_that_the_device_loops():
    """By the step that was put in."""
    assert "  inserted   emit: Emit" in walk().explain().split("\n") and "inserted" not in walk("npu1").explain()


def test_the_printer_has_the_step_its_rows_and_the_feedback():
    """The words of the next call leave through an argument of their own."""
    plan = Walk().compile(backend="null", dev="npu2").plan
    made = print_version(plan, plan.versions[0].signature)
    require(made.text)
    assert "aiex.configure @Emit_" in made.text
    assert [a.name for a in made.addresses.arguments[:2]] == ["program", "feedback"]
    assert made.feedback is not None and len(made.feedback) == len(made.words) + 2
    for row, word in zip(made.feedback, made.words, strict=False):
        after = dict(token=5, position=4)  # of a call at position 3 that draws token 5
        assert Row(*row).at([[2, 3], [5, 0]]) == word.form.at(after) << word.shift
