"""A Llama on simulated arrays: prompts in chunks and decode steps, with steps folded into others and without, on both devices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.devices import device
from iron_llama.model import Llama
from iron_lm.generation.session import Session
from iron_lm.testing import check_chat_turn, check_determinism
from iron_lm.tunables import profile_of
from tests.lm.arrays.small_llama import loaded

DEVICES = ("npu1", "npu2")
#: Query heads over KV heads: groups that fill a block of queries, and that do not.
HEADS = ((4, 1), (3, 1))
#: A chunk and a part of the next.
PROMPT = [int(i) for i in np.random.default_rng(4).integers(0, 512, 70)]


@functools.cache
def session(heads: tuple[int, int], dev: str, fold: bool = False, boundaries: Any = None, context: int = 128) -> Session:
    with profile_of(Llama, device(dev)):
        return Session(loaded(heads, context).model(), backend="sim", dev=dev, fold=fold, boundaries=boundaries)


@functools.cache
def reference(heads: tuple[int, int]) -> Session:
    return Session(loaded(heads).model(), backend="reference")


def steps(found: Session) -> dict[str, tuple[list[str], list[str]]]:
    """Of the prompt's version and the decode step's: the graph's steps, and those of them that run, by their operators."""
    made = {}
    for signature, version in found.compiled.versions.items():
        named = {step.name: type(step.op).__name__ for step in version.plan.steps}
        run = [named[step.name] for step in version.image.steps if step.name in named]
        made["prompt" if signature else "decode"] = list(named.values()), run
    return made


@pytest.fixture(params=DEVICES)
def dev(request):
    return request.param


#: What no device decides is walked on one; the other is in `nox -s slow`.
ONE_FIRST = pytest.mark.parametrize("dev", ["npu2", pytest.param("npu1", marks=pytest.mark.slow)])


@pytest.fixture(params=[HEADS[0], pytest.param(HEADS[1], marks=pytest.mark.slow)], ids="{0[0]}:{0[1]}".format)
def heads(request):
    return request.param


def test_logits_are_those_of_the_references(heads, dev):
    """After two chunks, and after each of three decode steps on what the caches hold: within 3 % of every step's numpy."""
    for ids in (PROMPT, [*PROMPT, 7], [*PROMPT, 7, 500], [*PROMPT, 7, 500, 31]):
        got, want = session(heads, dev).logits(ids), reference(heads).logits(ids)
        assert np.linalg.norm(got - want) <= 0.03 * np.linalg.norm(want)
        assert got.argmax() == want.argmax()


def test_folds_change_no_bit(heads, dev):
    """Prompt and answer; of a decode step no norm, activation, sum or copy into a cache runs by itself, of a prompt fewer."""
    plain, folded = session(heads, dev), session(heads, dev, fold=True)
    assert np.array_equal(plain.logits(PROMPT), folded.logits(PROMPT))
    assert plain.generate(PROMPT, 3) == folded.generate(PROMPT, 3)
    assert np.array_equal(plain.logits([*PROMPT, 3]), folded.logits([*PROMPT, 3]))
    assert all(graph == run for graph, run in steps(plain).values())
    assert {"RMSNorm", "SiLU", "ElementwiseMul", "ElementwiseAdd"}.isdisjoint(steps(folded)["decode"][1])
    graph, run = steps(folded)["decode"]
    assert (graph.count("Copy"), run.count("Copy")) == (6, 2)  # the token's row and the position's angles
    graph, run = steps(folded)["prompt"]
    assert graph.count("SiLU") == 2 and "SiLU" not in run
    assert (graph.count("RMSNorm"), run.count("RMSNorm")) == (5, 4)


def test_a_dispatch_a_step_changes_no_bit(heads):
    """npu1's form, on npu2: every step an entry of its own."""
    fused, each = session(heads, "npu2"), session(heads, "npu2", boundaries=iron.each_step)
    assert np.array_equal(fused.logits(PROMPT), each.logits(PROMPT))
    assert fused.generate(PROMPT, 3) == each.generate(PROMPT, 3)
    images = [s.compiled.versions[()].image for s in (fused, each)]
    assert images[0].elf and not images[1].elf and len(images[0].entries) < len(images[1].entries)


def test_a_decode_step_feeds_the_next(heads, dev):
    """On npu2, where `Emit` computes the next step's words behind the token that was drawn, of a prompt's chunk the first step's."""
    images = {bool(signature): version.image for signature, version in session(heads, dev).compiled.versions.items()}
    for image in images.values():
        assert (image.program is not None) == (dev == "npu2") == (image.steps[-1].operator == "Emit")
        assert image.feeds == (() if dev == "npu2" else None)
    if dev == "npu2":
        assert len(images[True].program) == len(images[False].program) != len(images[True].parameters)


@ONE_FIRST
def test_a_turn_reuses_chunks(heads, dev):
    """What a conversation has computed is not computed again, and every bit is as from its start."""
    assert check_chat_turn(session(heads, dev), PROMPT[:66], 2, PROMPT[66:]).passed


@ONE_FIRST
def test_the_same_again_is_the_same(heads, dev):
    assert check_determinism(session(heads, dev), [PROMPT[:5], PROMPT[:66]], 2).passed


def test_nothing_but_caches_follows_the_context(dev):
    """The arrays and the memory of activations are those of a shorter context; a call moves what its position asks for."""
    short, long = session(HEADS[0], dev), session(HEADS[0], dev, context=192)
    for signature, version in short.compiled.versions.items():
        keys = [[step.array_key for step in v.image.steps] for v in (version, long.compiled.versions[signature])]
        assert keys[0] == keys[1]
    assert short.compiled.plan.banks == long.compiled.plan.banks


def test_a_models_graph_gives_no_tunable(dev):
    """All are the profile's or the operators' own, so a profile may give any of them."""
    graph = loaded(HEADS[0]).model()
    for shapes in ({}, {"ids": ((64,), np.int32)}):
        assert not {(type(step.op).__name__, name) for step in graph.trace(**shapes).steps for name in step.op.pinned}
