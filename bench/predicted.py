"""`python -m bench.predicted`: what the simulator's clock makes of whole models, beside published figures of them.

Llama 3.2 1B decodes as its published profile has it: its step's image is planned on weights that nobody reads and priced by estimates
(see `iron_sim.timing.price`), and what a host program in Python adds to every dispatch is part of a token. What is tuned is what
`iron_tuner`'s `JointNarrowing` decides by a table of estimates. Every row is a change, from a figure to another, and its gain is held
against the published gain. `--untuned` leaves out what has to be searched for, a minute or two a row.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from bench.estimated import Estimated
from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.cli.table import print_json, print_table
from iron_core.devices import device
from iron_core.image.array_image import ArrayImage, array_image
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.embedder import TOKENS
from iron_embedding_gemma2.model import EmbeddingGemma2
from iron_llama.model import Llama
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.run import Run
from iron_lm.tunables import profile_of
from iron_lm.unread import unread
from iron_ops_aie import GEMV, MHA, Copy, ElementwiseAdd
from iron_sim.timing.estimate import estimate
from iron_sim.timing.price import Price, price

#: Rows of the published caches, and where a token stands behind the published prompts.
CACHE, BEHIND, BEHIND_SHORT = 32768, 1024, 16
#: The folds that the tuned figures had. npu1 saved 23.7 ms in all: folds would leave out 129 of its 293 runs, of 250 us each and switches.
FOLDED: frozenset[str] = frozenset()
#: Operators as they were when the figures were published, by device and name: attention in blocks of 64, with a power that is one
#: instruction where there is one; a product by one channel of a column.
Then = Mapping[str, Mapping[str, Any]]
THEN: dict[str, Then] = {
    "npu2": {"MHA": {"exp2": "fast", "B_q": 64}},
    "npu1": {"MHA": {"B_q": 64}, "GEMV": {"num_channels": 1}},
}


@attrs.frozen
class Change:
    """A published change. measured: before and after, a range each; predicted: likewise, without an end where nothing here makes it."""

    name: str
    unit: str
    measured: tuple[tuple[float, float], tuple[float, float]]
    predicted: tuple[float, float | None]

    @property
    def gains(self) -> tuple[float, float | None]:
        """Measured and predicted: before over after."""
        (a, b), (c, d) = self.measured
        before, after = self.predicted
        return (a + b) / (c + d), None if after is None else before / after


def decode_image(dev: str, then: Then, **options: Any) -> ArrayImage:
    """A decode step of Llama 3.2 1B with the profile that is its family's. then: see `THEN`. options: of `compile()`."""
    with profile_of(Llama, device(dev)):
        compiled = unread(Llama, Llama.full_size(), max_seq_len=CACHE).model().compile(backend="null", dev=dev, **options)
        (version,) = compiled.plan.versions
        changed = attrs.evolve(version, steps=_with(version.steps, then))
        return array_image(attrs.evolve(compiled.plan, versions=(changed,)), changed.signature)


def tuned_image(dev: str, then: Then, position: int, **options: Any) -> ArrayImage:
    """The same with settings, folds and packs that estimates at a position say are the fastest."""
    values = dict(token=0, position=position, chunk=0, rows=0)
    decides = Estimated(values, lambda traced: attrs.evolve(traced, steps=_with(traced.steps, then)), folds=FOLDED)
    with profile_of(Llama, device(dev)):
        model = unread(Llama, Llama.full_size(), max_seq_len=CACHE).model()
        (version,) = model.compile(backend="sim", dev=dev, fold=True, coresident=decides, **options).versions.values()
    found: ArrayImage = version.image
    return found


def _with(steps: tuple[Any, ...], then: Then) -> tuple[Any, ...]:
    """Steps with these fields, of which a block of queries stays as it is: another gives other bits."""
    made = []
    for step in steps:
        fields = dict(then.get(type(step.op.base).__name__, {}))
        pins = {name: fields.pop(name) for name in ("B_q",) if name in fields}
        op = step.op.evolve(**fields)
        made.append(attrs.evolve(step, op=op.with_tunables(**pins) if pins else op) if fields or pins else step)
    return tuple(made)


def token(image: ArrayImage, position: int) -> float:
    """Milliseconds of a token: a call, and the host's part of its dispatches."""
    found: Price = price(image, dict(token=0, position=position, chunk=0, rows=0))
    return (found.total_us + found.host_us) / 1e3


def _alone(op: Any, dev: str, **members: int) -> float:
    """Microseconds of an operator's step."""
    op = op.resolved(device(dev))
    design, kernels = build(op, dev, members)
    return estimate(design, kernels, fit(design), {word.name: number(op, word, members) for word in design.sequence.words}).us


class Residual(iron.Graph):
    """A product, and a residual added to it."""

    def __init__(self) -> None:
        self.matrix = iron.weight(np.broadcast_to(np.zeros((), bfloat16), (2048, 2048)))

    def body(self, x: Any, residual: Any) -> Any:
        return ElementwiseAdd(GEMV(self.matrix, x), residual)


class Gather(iron.Graph):
    """Rows of a table by ids that a caller gives."""

    def __init__(self, feeds: int) -> None:
        self.table, self.feeds = iron.weight(np.broadcast_to(np.zeros((), bfloat16), (262144, 512))), feeds

    def body(self, ids: Any) -> Any:
        return Copy(self.table[ids], num_channels=self.feeds)


def _graph(graph: iron.Graph, fold: bool = False, **shapes: Any) -> float:
    """Microseconds of a call of a graph on npu2 as one ELF."""
    with profile_of(Llama, device("npu2")):
        compiled = graph.compile(backend="null", dev="npu2", fold=fold, **shapes)
        (version,) = compiled.plan.versions
        found = price(array_image(compiled.plan, version.signature))
        return found.total_us - found.reset_us  # as `iron_sim.timing.rows` has full ELFs


@functools.cache
def _clip_image(tokens: int) -> ArrayImage:
    """EmbeddingGemma 2's audio tower with room for so many tokens on npu2, from a clip's samples on, of weights that nobody reads."""
    config, sound, zero = EmbeddingGemma2.full_size(), LogMelConfig(frames=4 * tokens), np.zeros((), bfloat16)
    assert config.audio is not None
    part = Hearing(config.audio, sound, config.hidden_size, Run(512, 512))
    bound = {"min": np.array(-1, np.float32), "max": np.array(1, np.float32)}
    part.fill({path: np.broadcast_to(zero, shape) if shape else bound[path[-3:]] for path, shape in part.tensors().items()})
    compiled = part.compile(backend="null", dev="npu2", samples=((sound.samples,), np.float32))
    (version,) = compiled.plan.versions
    return array_image(compiled.plan, version.signature)


def _clip(seconds: float) -> float:
    """Milliseconds of that tower for a clip, in the graph that takes it."""
    frames = LogMelConfig(frames=1).frames_of(round(16000 * seconds))
    tokens = -(-frames // 4)
    return price(_clip_image(next(n for n in TOKENS if n >= tokens)), dict(count=frames, tokens=tokens)).total_us / 1e3


def _tokens(*rates: float) -> tuple[float, float]:
    """Milliseconds of tokens a second."""
    return 1e3 / max(rates), 1e3 / min(rates)


def _decode(dev: str, position: int, tune: bool, **options: Any) -> tuple[float, float | None]:
    before = token(decode_image(dev, THEN[dev], **options), position)
    return before, token(tuned_image(dev, THEN[dev], position, **options), position) if tune else None


def _exp2(tune: bool) -> tuple[float, float]:
    before, after = (token(decode_image("npu2", {"MHA": {**THEN["npu2"]["MHA"], "exp2": name}}), BEHIND) for name in ("fast", "accurate"))
    return before, after


def _state(keys: int) -> tuple[float, float]:
    """A chunk of 2048 rows that sees so many keys, its own among them."""
    fields = dict(num_heads=32, num_KV_heads=8, seq_len=2048, kv_len=CACHE, heads_interleaved=True, kv_interleaved=True)
    ops = (MHA(**fields, state=state, num_pipelines=8, exp2="fast") for state in ("bfloat16", "float32"))
    before, after = (_alone(op, "npu2", valid=2048, kv_valid=keys) / 1e3 for op in ops)
    return before, after


def _one(before: float, after: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (before, before), (after, after)


#: Name, unit, the published change, and what predicts it, told whether to tune.
CHANGES: tuple[tuple[str, str, tuple[tuple[float, float], tuple[float, float]], Callable[[bool], tuple[float, float | None]]], ...] = (
    ("decode as one ELF, npu2, tuned", "ms", (_tokens(14.80), _tokens(16.50)), lambda tune: _decode("npu2", BEHIND, tune)),
    (
        "decode as a chain, npu2, tuned", "ms", (_tokens(3.58, 3.61), _tokens(4.76, 4.83)),
        lambda tune: _decode("npu2", BEHIND, tune, boundaries=iron.each_step),
    ),
    ("decode, npu1, tuned", "ms", _one(361.5, 337.8), lambda tune: _decode("npu1", BEHIND_SHORT, tune)),
    ("decode, npu2, accurate exp2", "ms", (_tokens(14.97), _tokens(13.99)), _exp2),
    ("MHA of 2048 rows and keys, state in float32", "ms", ((1, 1), (1.049, 1.091)), lambda _: _state(2048)),
    ("MHA of 2048 rows, 32768 keys, state in float32", "ms", ((1, 1), (1.049, 1.091)), lambda _: _state(32768)),
    (
        "GEMV 2048x2048 and a residual, folded", "us", _one(430.6, 367.3),
        lambda _: (_graph(Residual(), x=2048, residual=2048), _graph(Residual(), fold=True, x=2048, residual=2048)),
    ),
    ("audio tower, a clip of 2 s, then 7.3 s", "ms", _one(129.3, 195.7), lambda _: (_clip(2), _clip(7.3))),
    ("audio tower, a clip of 7.3 s, then 30 s", "ms", _one(195.7, 397.9), lambda _: (_clip(7.3), _clip(30))),
    (
        "gather of 5120 rows, 4 feeds", "us", _one(2002, 903),
        lambda _: (_graph(Gather(1), ids=((5120,), np.int32)), _graph(Gather(4), ids=((5120,), np.int32))),
    ),
)  # fmt: skip


def changes(tune: bool) -> list[Change]:
    """Every published change with its prediction."""
    return [Change(name, unit, measured, predict(tune)) for name, unit, measured, predict in CHANGES]


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.predicted", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--untuned", action="store_true", help="leave out what has to be searched for")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(argv)
    found = changes(not options.untuned)
    if options.json:
        print_json(plain(found))
    else:
        show(found)
    return 0


def plain(found: list[Change]) -> list[dict[str, Any]]:
    """Rows as plain data."""
    return [{**attrs.asdict(one), "gains": one.gains} for one in found]


def show(found: list[Change]) -> None:
    """Print rows."""
    print_table(("", "unit", "measured", "predicted", "ratio", "measured gain", "predicted gain"), [_row(one) for one in found])


def _row(one: Change) -> tuple[str, ...]:
    (low, high), _ = one.measured
    shown = " -> ".join(f"{sum(pair) / 2:.4g}" for pair in one.measured)
    predicted = " -> ".join("?" if us is None else f"{us:.4g}" for us in one.predicted)
    relative = high == 1
    ratio = "" if relative else f"{one.predicted[0] / (low + high) * 2:.2f}"
    gain, ours = one.gains
    gains = (f"{gain:.3f}", "" if ours is None else f"{ours:.3f}")
    return one.name, "of before" if relative else one.unit, shown, predicted, ratio, *gains


if __name__ == "__main__":
    raise SystemExit(main())
