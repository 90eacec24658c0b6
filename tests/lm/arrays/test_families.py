"""Every family of models that continue text, of those installed, on simulated arrays: a prompt longer than a chunk, and decode steps."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.devices import device
from iron_core.plugins.registry import registry
from iron_lm import loading
from iron_lm.architecture import Architecture
from iron_lm.generation.session import Session
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.tunables import profile_of
from iron_ops_aie.experts import route as route_contract
from iron_ops_aie.experts import route_array
from iron_ops_aie.experts.routes import route

MODELS = registry().select("models", load=True)
FAMILIES = sorted(model.name for model in MODELS if isinstance(model.object, type) and issubclass(model.object, Architecture))
DECODERS = [name for name in FAMILIES if not registry().load("models", name).full_size().encodes]
EXPERTS = dict(num_experts=64, chosen=4, expert_size=64, shared_size=128)
#: Kinds of a family's models that its full size is none of, and how they differ from that; memories are smaller, for time.
QWEN = EXPERTS | dict(renormalise=True, key_dim=32, value_dim=32)
KINDS = {"qwen3_5 as Qwen3-Next": QWEN, "qwen3_5 as a GGUF of Qwen3.5-MoE": QWEN | dict(tiled=True)}
#: Of a kind's random weights: whatever they are, for the reference goes to the experts that the array chose.
SEEDS = range(5)
PROMPT = [int(i) for i in np.random.default_rng(4).integers(0, 512, 70)]
SMALL = dict(vocab_size=512, hidden_size=128, num_layers=2, num_heads=4, head_dim=64, intermediate_size=256, max_positions=100)


def small(full: Any, **kind: Any) -> Any:
    """A config with the family's own settings but for the `kind`, and two layers: the full model's first and last kind. Of mixtures
    64 experts, for an array makes the logits of a prompt's router in 64s."""
    named = {field.name: getattr(full, field.name) for field in attrs.fields(type(full))}
    turns = {name: attrs.evolve(value, head_dim=64) for name, value in named.items() if isinstance(value, RotaryConfig)}
    layers = {name: (v[0], v[-1]) for name, v in named.items() if isinstance(v, tuple) and len(v) == full.num_layers}
    heads = {name: 64 for name in named if name.endswith("head_dim")}
    heads |= {name: 4 if value == full.num_heads else 2 for name, value in named.items() if name.endswith("kv_heads")}
    experts = {name: value for name, value in EXPERTS.items() if isinstance(full, MixtureConfig) and named[name] is not None}
    return attrs.evolve(full, **{k: v for k, v in (SMALL | turns | layers | heads | experts | kind).items() if k in named})


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_logits_are_those_of_the_references(name):
    """Within 3 % of every step's numpy, and the same token is the likeliest; more rows than the model has places are never read."""
    family = registry().load("models", name.split()[0])
    config = small(family.full_size())
    loaded = loading.random(family, config, 1, dtype="bfloat16", max_seq_len=SMALL["max_positions"])
    reference = Session(loaded.model(), backend="reference")
    for dev in ("npu1", "npu2"):
        with profile_of(family, device(dev)):
            session = Session(loaded.model(), backend="sim", dev=dev)
        for ids in (PROMPT, [*PROMPT, 7]):
            got, want = session.logits(ids), reference.logits(ids)
            assert np.linalg.norm(got - want) <= 0.03 * np.linalg.norm(want)
            assert got.argmax() == want.argmax()


class Routes:
    """What the router's array chose, row by row; and a reference that goes to the same experts, by the shares of its own logits.

    A row is known by its logits, which are nearest to the reference's. apart: of each row that the reference by itself would send to
    others, by how much its least choice is over the array's, and how far the two have one of the row's logits apart at most.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []
        self.rows = 0
        self.apart: list[tuple[float, float]] = []

    def chosen(self, logits: Any, k: int, renormalise: bool, scale: float) -> Any:
        """In the place of `route` on the array."""
        ids, weights = route(logits, k, renormalise, scale)
        self.seen += [(np.asarray(x, np.float64), row) for x, row in zip(logits, ids, strict=True)]
        return ids, weights

    def held(self, logits: Any, k: int, renormalise: bool, scale: float) -> Any:
        """In the place of `route` on the reference."""
        table = np.array([x for x, _ in self.seen])
        ids, weights = route(logits, k, renormalise, scale)
        for at, x in enumerate(np.asarray(logits, np.float64)):
            far = np.abs(table - x).max(1)
            theirs = self.seen[int(np.nanargmin(far))][1]
            shares = np.exp(x - x.max())
            shares = shares[theirs] / (shares[theirs] if renormalise else shares).sum()
            self.rows += 1
            if set(theirs) != set(ids[at]):
                self.apart.append((float(x[ids[at]].min() - x[theirs].min()), float(np.nanmin(far))))
            ids[at], weights[at] = theirs, shares * scale
        return ids, weights


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_a_mixture_whose_route_is_held(name, seed, monkeypatch):
    """Logits within 3 % of every step's numpy that goes to the experts which the array chose, whatever the weights; a row goes to others
    only where the logits of two experts are as near as the array's are to the reference's."""
    family = registry().load("models", name.split()[0])
    loaded = loading.random(family, small(family.full_size(), **KINDS[name]), seed, dtype="bfloat16", max_seq_len=100)
    routes, dev = Routes(), "npu2" if seed else "npu1"
    monkeypatch.setattr(route_array, "route", routes.chosen)
    monkeypatch.setattr(route_contract, "route", routes.held)
    with profile_of(family, device(dev)):
        session = Session(loaded.model(), backend="sim", dev=dev)
    reference = Session(loaded.model(), backend="reference")
    for ids in (PROMPT, [*PROMPT, 7]):
        got = session.logits(ids).copy()
        want = reference.logits(ids)
        assert np.linalg.norm(got - want) <= 0.03 * np.linalg.norm(want)
    assert routes.rows == 2 * (len(PROMPT) + 1) and len(routes.apart) <= 0.2 * routes.rows
    assert all(less <= 2 * far <= 0.3 for less, far in routes.apart), routes.apart
