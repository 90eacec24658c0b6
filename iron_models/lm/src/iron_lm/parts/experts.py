"""`Experts`: a mixture of gated feed-forwards, of which a router chooses some for each row."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import format_of
from iron_core.errors import IronError, ParamError
from iron_lm.fields import counted, flag, optional, positive
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import project
from iron_lm.run import Run
from iron_ops_aie import CombineExperts, Copy, GatedExperts, Route
from iron_ops_aie.logistic import logistic, silu

#: How often bytes of a matrix are moved that is copied before it is read.
COPIED = 3
#: What a profile counts the shared expert under.
SHARED = "shared expert"


@attrs.frozen
class ExpertsConfig:
    """`chosen` of `num_experts` experts of `intermediate_size` for each row.

    renormalise: are the chosen ones' weights made to add up to 1? Else they are what a softmax over all experts gives. scale:
    multiplies them. shared_size: of an expert that every row goes to besides; shared_gate: is what that one makes multiplied by a
    logistic function of the row? ParamError for more chosen than there are, or a gate of no shared expert.
    """

    hidden_size: int = attrs.field(validator=counted)
    intermediate_size: int = attrs.field(validator=counted)
    num_experts: int = attrs.field(validator=counted)
    chosen: int = attrs.field(validator=counted)
    renormalise: bool = attrs.field(default=False, validator=flag)
    scale: float = attrs.field(default=1.0, validator=positive)
    shared_size: int | None = attrs.field(default=None, validator=optional(counted))
    shared_gate: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.chosen > self.num_experts:
            raise ParamError(f"ExpertsConfig: chosen={self.chosen} of num_experts={self.num_experts}; legal: at most {self.num_experts}.")
        if self.shared_gate and self.shared_size is None:
            raise ParamError("ExpertsConfig: shared_gate=True without a shared_size. Legal: shared_gate=False, or a shared expert.")


class Experts(Part):
    """The weighted sum of down(silu(gate x) * up x) of the experts that are chosen for each row, and of the shared one.

    x: (rows, hidden_size), and the same shape comes out. `router` is (experts, hidden_size); `gate` and `up` are (experts,
    intermediate_size, hidden_size), `down` (experts, hidden_size, intermediate_size); the shared expert is a `GatedMLP`, `shared`,
    and its gate `opening` (1, hidden_size).
    """

    category = "experts"
    #: Each chunk reads most experts: the more rows it has, the more each of them meets.
    prompt_chunk = 256

    router: Any
    gate: Any
    up: Any
    down: Any
    opening: Any

    def __init__(self, config: ExpertsConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        wide = (c.num_experts, c.intermediate_size, c.hidden_size)
        self.needs(router=(c.num_experts, c.hidden_size), gate=wide, up=wide, down=(wide[0], wide[2], wide[1]))
        self.shared = None if c.shared_size is None else GatedMLP(GatedMLPConfig(c.hidden_size, c.shared_size), run)
        if self.shared is not None:
            self.shared.category = SHARED
        if c.shared_gate:
            self.needs(opening=(1, c.hidden_size))

    def multiplied(self) -> tuple[str, ...]:
        """The experts': not the router, nor the shared expert's gate, a number of whose rows decides all."""
        return ("gate", "up", "down")

    def body(self, x: Any) -> Any:
        c, activations = self.config, self.run.activations
        with iron.category("router"):
            logits = project(x, self.router, activations, out=np.float32)
            ids, weights = Route(logits, k=c.chosen, renormalise=c.renormalise, scale=c.scale)
        gate, up, down, ids = self._asked(x, ids)
        made = GatedExperts(x, gate, up, ids, **_arithmetic(gate, activations))
        added: dict[str, Any] = {}
        if self.shared is not None:
            added["shared"] = self.shared(x)
        if c.shared_gate:
            with iron.category(SHARED):
                added["shared_gate"] = project(x, self.opening, activations, out=np.float32)
        return CombineExperts(made, down, ids, weights, **added, **_arithmetic(down, activations))

    def _asked(self, x: Any, ids: Any) -> tuple[Any, Any, Any, Any]:
        """The stacks and ids that experts are computed by. Their arrays read all of a stack; so where one row chooses few of many,
        copies of these are stacked: they are read twice and written once."""
        c, stacks = self.config, (self.gate, self.up, self.down)
        if x.shape[0] > 1 or x.bounds or COPIED * c.chosen >= c.num_experts or not all(map(gathered, stacks, [c.chosen] * 3)):
            return (*stacks, ids)
        chosen = ids.reshape(c.chosen)
        places = iron.weight(np.arange(c.chosen, dtype=np.int32).reshape(1, c.chosen))
        gate, up, down = (Copy(stack[chosen]) for stack in stacks)
        return gate, up, down, places

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        c = self.config
        ids, shares = routed(x @ widen(weights["router"]).T, c)
        out = np.zeros((len(x), c.hidden_size), x.dtype)
        for e in np.unique(ids):
            rows, slots = np.nonzero(ids == e)
            gate, up, down = (widen(weights[name][int(e)]) for name in ("gate", "up", "down"))
            wide = silu(x[rows] @ gate.T) * (x[rows] @ up.T)
            out[rows] += shares[rows, slots, None] * (wide @ down.T)
        if self.shared is None:
            return out
        shared = self.shared.twin(self.inside(weights, "shared"), x)
        if c.shared_gate:
            shared = logistic(x @ widen(weights["opening"]).T) * shared
        return np.asarray(out + shared)


def routed(logits: np.ndarray, config: ExpertsConfig) -> tuple[np.ndarray, np.ndarray]:
    """The twin's ids (rows, chosen), by falling weight and the lower first among equal logits, and weights."""
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, : config.chosen]
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    shares = np.take_along_axis(shares, ids, -1)
    if config.renormalise:
        shares = shares / shares.sum(-1, keepdims=True)
    return ids, (shares * np.float32(config.scale)).astype(logits.dtype)


def gathered(stack: Any, count: int) -> bool:
    """Does an array of the current device copy so many of a stack's matrices by ids?"""
    dev = iron.current_device()
    if dev is None or not dev.is_npu or stack.dtype != iron.bfloat16:
        return False
    try:
        many, *each = stack.shape
        size = int(np.prod(each))
        Copy(input_size=many * size, output_size=count * size, gather=True, table_rows=many, rows=count, X=stack.dtype).resolved(dev)
    except IronError:
        return False
    return True


def _arithmetic(matrices: Any, activations: str) -> dict[str, Any]:
    """The keyword of operators that multiply by them, where they are in blocks."""
    return {"activations": activations} if format_of(matrices).packed else {}
