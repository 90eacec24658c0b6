"""The states of a model that mixes by the gated delta rule, 2 MiB a layer, stay where they are: bytes counted."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_host.backend import HostBackend
from iron_host.profile import cost
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import RotaryConfig
from iron_qwen3_5.model import Qwen35

STATE = 2 << 20
#: 32 heads of 128 x 128 in float32; three layers of four.
SIZES = dict(
    vocab_size=128, hidden_size=64, num_layers=4, num_heads=2, num_kv_heads=1, head_dim=32, intermediate_size=64, max_positions=256,
    rotary=RotaryConfig(32), attends=(False, False, False, True), key_heads=16, value_heads=32, key_dim=128, value_dim=128,
)  # fmt: skip
MIXTURE = dict(expert_size=32, num_experts=8, chosen=2, shared_size=32)


@pytest.fixture(scope="module", params=[{}, MIXTURE], ids=["dense", "mixture"])
def session(request: pytest.FixtureRequest) -> Session:
    config = attrs.evolve(Qwen35.full_size(), **SIZES, **request.param)
    assert 4 * config.value_heads * config.key_dim * config.value_dim == STATE
    loaded = loading.random(Qwen35, config, 0, dtype="float32", max_seq_len=128, prefill_chunk=64)
    return Session(loaded.model(), backend=HostBackend(threads=2))


def memory(session: Session) -> Any:
    """That of both its versions."""
    one, other = (version.load().memory for version in session.compiled.versions.values())
    assert one is other
    return one


def states(session: Session) -> list[int]:
    """Numbers of the residents that are the rule's memories."""
    return [n for n, resident in enumerate(memory(session).residents) if resident.nbytes == STATE and resident.data is None]


def test_one_step_a_layer_touches_a_state(session: Session) -> None:
    """Of a token's run list and of a chunk's: the rule's, which is given all of it to read and to write."""
    assert len(session.compiled.versions) == 2
    for version in session.compiled.versions.values():
        found = states(session)
        assert len(found) == 3
        for number in found:
            touching = [
                (step, [name for name, ref in step.operands.items() if ref.space == "resident" and ref.index == number])
                for step in version.plan.steps
                if any(ref.space == "resident" and ref.index == number for ref in step.operands.values())
            ]
            ((step, names),) = touching
            assert type(step.op).__name__ == "GatedDeltaStep" and names == ["state"]
            assert step.op.operands["state"].written and step.operands["state"].nbytes == STATE


def test_a_pass_moves_a_state_twice(session: Session) -> None:
    """It is read and written once; the rest of what all steps move is weights, caches and a token's numbers, in less than a state's
    bytes where weights are taken off."""
    numbers = dict(chunk=0, rows=64, position=0, length=0)
    for inputs, version in session.compiled.versions.items():
        plan = version.plan
        moved = {id(step): cost(step, numbers).nbytes for step in plan.steps}
        rules = [step for step in plan.steps if type(step.op).__name__ == "GatedDeltaStep"]
        for step in rules:
            others = sum(ref.nbytes for name, ref in step.operands.items() if name != "state")
            assert 2 * STATE <= moved[id(step)] <= 2 * STATE + others, inputs
        if not inputs:  # of one token
            held = sum(resident.nbytes for resident in memory(session).residents if resident.nbytes != STATE or resident.data is not None)
            assert sum(moved.values()) - 2 * STATE * len(rules) - held < STATE  # a copy of one would be two more


def test_a_state_is_where_it_was(session: Session) -> None:
    """The same memory before a prompt's two chunks, after them and after tokens; what it holds changes there, and what calls
    copy are ids."""
    kept, number = memory(session), states(session)[0]

    def place() -> int:
        return int(kept.fetch(kept.view("resident", number), 0, STATE).ctypes.data)

    def content() -> bytes:
        return bytes(kept.fetch(kept.view("resident", number), 0, STATE))

    at, before, ids = place(), content(), [int(i) for i in np.random.default_rng(0).integers(0, 128, 100)]
    traffic = session.compiled.traffic
    for n in (100, 101, 102):
        session.logits([*ids, 5, 6][:n])
        now = content()
        assert place() == at and now != before
        before = now
    assert (session.compiled.traffic - traffic).residents < STATE // 100  # ids of prompts
