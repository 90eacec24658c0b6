"""`compile(feeds=)`: a version that takes tensors leaves the words and carried values of another version's next call."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.protocol import Looping
from iron_core.errors import CallError, UnsupportedError
from iron_core.image.array_image import array_image
from iron_npu.image.making import image_of
from iron_npu.mlir.graph import groups, shared_words
from iron_ops_aie import Copy, Sample
from iron_ops_aie.tokens.draw import ROW_WORDS, draw_words
from tests.npu.structural import require

F32 = np.float32
STEPS, VOCAB = 12, 8


class Told(iron.Graph):
    """The logits after a token are the token's row; the first ones may be given."""

    def __init__(self):
        self.table = iron.weight(np.random.default_rng(VOCAB).standard_normal((VOCAB, VOCAB)).astype(F32))
        self.logits, self.record = iron.state((VOCAB,), F32), iron.state((STEPS,), np.int32)
        self.draws = iron.state((STEPS, ROW_WORDS), np.int32)

    def body(self, x=None, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]):
        if x is None:
            Copy(self.table[token], self.logits)
        else:
            Copy(x, self.logits)
        _, drawn = Sample(self.logits, self.draws, self.record, row=position * ROW_WORDS, at=position)
        return iron.carry(token=drawn, position=position + 1)


SHAPE = dict(x=((VOCAB,), F32))


def told(feeds=True, dev="npu2", backend="sim"):
    graph = Told()
    run = graph.compile(backend=backend, dev=dev)
    graph.compile(backend=backend, dev=dev, **(dict(feeds=run) if feeds else {}), **SHAPE)
    rng = np.random.default_rng(5)
    run.write("draws", np.stack([draw_words(0.9, VOCAB, int(rng.integers(1 << 53))) for _ in range(STEPS)]))
    return run


@pytest.fixture(scope="module")
def run():
    return told()


def by_inputs(run):
    """The version without tensors and the one with."""
    return sorted(run.versions.values(), key=lambda version: len(version.plan.inputs))


def test_what_a_prompt_leaves_is_what_the_next_call_takes(run):
    """The words of the version that loops, as its table makes them of what was carried, and those values in the planes of both."""
    loops, feeds = by_inputs(run)
    x = np.linspace(-1, 1, VOCAB, dtype=F32)
    (carried,) = run(x, token=0, position=3)
    now = {"token": carried.token, "position": carried.position}
    assert now["position"] == 4 and loops.plan.planes == feeds.plan.planes
    left, words = feeds.load(), loops.load().image.parameters
    kept = [word.form.at(now) << word.shift for word in words]
    assert left._own["feedback"][0].raw.view(np.int32).tolist() == kept and len(set(kept)) > 1
    assert left.memory.at(loops.plan.planes).view(np.int32).tolist()[:2] == [now["token"], now["position"]]
    before = run.read("record")
    loops.load()._run_with([], [], now, [word >> one.shift for word, one in zip(kept, words, strict=True)])
    after = run.read("record")
    assert (before != after).sum() <= 1 and after[4] in range(VOCAB)


def test_a_fed_loop_draws_what_the_host_starts():
    """Token for token, and those of the CPU; a version that feeds another is no loop."""
    drawn = []
    for run in (told(), told(feeds=False), told(feeds=False, dev="host", backend="host")):
        (carried,) = run(np.linspace(-1, 1, VOCAB, dtype=F32), token=0, position=0)
        run.loop(STEPS - 1, token=carried.token, position=carried.position)
        drawn.append(run.read("record").tolist())
    assert drawn[0] == drawn[1] == drawn[2]


def test_emit_stands_behind_the_version_that_feeds(run):
    """Its words are as many as the other's, not its own."""
    loops, feeds = by_inputs(run)
    (emit,) = [step for step in feeds.image.steps if step.operator == "Emit"]
    own, theirs = len(feeds.image.parameters), len(loops.image.parameters)
    assert own != theirs and emit.operands["words"].shape == (theirs,) and feeds.image.own["feedback"] == (4 * theirs,)
    assert feeds.image.feeds == loops.image.feeds == () and isinstance(loops.load(), Looping)


def test_words_of_a_version_that_is_fed_are_the_front_of_a_module():
    """Whatever was compiled first: what is drained into a scratchpad is its beginning."""
    graph = Told()
    run = graph.compile(backend="null", dev="npu2", x=((2 * VOCAB // 2,), F32))
    run.add()
    plan = run.plan
    prompt, loop = (version.signature for version in plan.versions)
    images = {prompt: array_image(plan, prompt, feeds=loop), loop: array_image(plan, loop)}
    image = image_of(plan, images)
    (module,) = image.modules
    require(module.text)
    assert groups(plan, list(images.values())) == [[1, 0]]
    words, _ = shared_words([images[loop]])
    assert [word.symbol for word in image.versions[0].words[: len(words)]] == [word.symbol for word in words]
    fed, loops = image.version(prompt), image.version(loop)
    assert fed.feeds == loops.feeds == loop and image.record()["versions"][0]["feeds"] == "main"
    assert dict(fed.regions)["feedback"] == dict(loops.regions)["feedback"] == 64
    assert fed.program != loops.program or len(fed.program) == len(words) + 2


class Wanting(iron.Graph):
    """Its version without tensors follows a value that nobody carries."""

    def __init__(self):
        self.rows = iron.state((8, 4), F32)

    def body(self, x=None, *, n: iron.Carried[np.int32], at: iron.Scratchpad[np.int32]):
        Copy(self.rows[at] if x is None else x, self.rows[n])
        return iron.carry(n=n + 1)


class Shown(iron.Graph):
    """The version with tensors returns what it carries."""

    def __init__(self):
        self.rows = iron.weight(np.arange(8, dtype=np.int32).reshape(8, 1))

    def body(self, x=None, *, n: iron.Carried[np.int32]):
        row = Copy(self.rows[n]).reshape(1)
        return iron.carry(n=row) if x is None else (row, iron.carry(n=row))


def test_what_cannot_be_fed_is_refused(run):
    """By what is in the way, and what would be legal."""
    legal = "legal: of a version that takes no tensor, each of whose words follows from what this one carries"
    wanting = Wanting().compile(backend="sim", dev="npu2")
    with pytest.raises(UnsupportedError, match=rf"Wanting: feeds= of \(no tensors\); {legal}"):
        wanting.graph.compile(backend="sim", dev="npu2", feeds=wanting, x=((4,), F32))
    shown = Shown().compile(backend="sim", dev="npu2")
    with pytest.raises(UnsupportedError, match=f"feeds= from a version whose carried n is returned too, or no 32-bit number; {legal}"):
        shown.graph.compile(backend="sim", dev="npu2", feeds=shown, x=((4,), F32))
    with pytest.raises(UnsupportedError, match=r"Told: feeds= of x=\(8,\) float32; legal: of a version that takes no tensor"):
        array_image(run.plan, (), feeds=(("x", (VOCAB,), "float32"),))
    with pytest.raises(CallError, match=r"feeds=\(\('x'.*: no version of it\. Legal: .* compiled \(\(no tensors\)"):
        run.graph.compile(backend="sim", dev="npu2", feeds=(("x", (9,), "float32"),), x=((1, VOCAB), F32))
    with pytest.raises(CallError, match="is another compiled graph, with states of its own"):
        Told().compile(backend="sim", dev="npu2", feeds=run, **SHAPE)
    graph = Told()
    alone = graph.compile(backend="sim", dev="npu2", **SHAPE)
    with pytest.raises(CallError, match="has no version without tensors"):
        graph.compile(backend="sim", dev="npu2", feeds=alone, x=((1, VOCAB), F32))


def test_who_adds_it_before_the_loop_is_fed_where_that_goes(run):
    """As with `feeds=`, on a full ELF; a chain, a backend that takes none and a loop that cannot be fed have the host in between, and all
    give the same."""
    drawn = []
    for dev, backend, boundaries in (("npu2", "sim", None), ("npu2", "sim", iron.each_step), ("npu1", "sim", None), (None, "host", None)):
        graph = Told()
        made = graph.compile(backend=backend, dev=dev, boundaries=boundaries)
        made.write("draws", run.read("draws"))
        added = made.add_before_loop(**SHAPE)
        assert getattr(added.image, "feeds", None) == (() if dev == "npu2" and boundaries is None else None)
        assert made.add_before_loop(**SHAPE) is added
        (carried,) = made(np.linspace(-1, 1, VOCAB, dtype=F32), token=0, position=0)
        made.loop(STEPS - 1, token=carried.token, position=carried.position)
        drawn.append(made.read("record").tolist())
    assert all(one == drawn[0] for one in drawn)
    wanting = Wanting().compile(backend="sim", dev="npu2")
    assert wanting.add_before_loop(x=((4,), F32)).image.feeds is None
    alone = Told().compile(backend="sim", dev="npu2", **SHAPE)
    assert alone.add_before_loop(x=((1, VOCAB), F32)).image.feeds is None


def test_a_chain_feeds_nothing():
    graph = Told()
    run = graph.compile(backend="sim", dev="npu1")
    with pytest.raises(UnsupportedError, match=r"feeds= on npu1: the host makes the words of every dispatch\. Legal: a full ELF"):
        graph.compile(backend="sim", dev="npu1", feeds=run, **SHAPE)
