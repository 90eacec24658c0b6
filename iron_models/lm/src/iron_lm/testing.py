"""What the tests of a part, a family or a model share: a tiny model with drawn weights, and the checks it passes.

    loaded = testing.tiny(Family, config)
    for report in testing.check_model(loaded, backend="host"):
        assert report.passed, report.lines()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded
from iron_lm.parts.part import Part
from iron_lm.run import Run
from iron_lm.tasks.gates import Gate, Report, check_accuracy, check_chat_turn, check_determinism, forced_logits

__all__ = [
    "Gate", "Report", "alone", "check_accuracy", "check_chat_turn", "check_determinism", "check_model", "check_part", "drawn",
    "forced_logits", "tiny",
]  # fmt: skip


def drawn(part: Part, seed: int = 0) -> dict[str, np.ndarray]:
    """float32 weights for all that a part needs, by path: matrices N(0, 1 / columns), vectors 1 + N(0, 0.01). No two numbers are
    alike, so a weight in another's place shows."""
    rng = np.random.default_rng(seed)

    def of(shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        return (1 + 0.1 * values if len(shape) == 1 else values * shape[-1] ** -0.5).astype(np.float32)

    return {path: of(shape) for path, shape in part.tensors().items()}


def tiny(family: type[Family], config: DecoderConfig, *, seed: int = 0, max_seq_len: int = 64, prefill_chunk: int = 16) -> Loaded:
    """A model of this family and config, as `iron_lm.loading.load` gives one, with `drawn` weights in float32 all through."""
    run = Run(max_seq_len, prefill_chunk, dtype="float32", cache_dtype="float32")
    weights = drawn(family.build(config, run), seed)
    return Loaded(family, config, run, weights, weights, None, None, max_seq_len, "random float32")


def check_model(loaded: Loaded, *, seed: int = 0, **options: Any) -> list[Report]:
    """Accuracy against the model's twin, determinism, and a chat turn, on tokens that are drawn. options: `compile()`'s."""
    run, session = loaded.run, Session(loaded.model(), **options)
    ids = np.random.default_rng(seed).integers(0, loaded.config.vocab_size, run.max_seq_len).tolist()
    half, quarter = len(ids) // 2, len(ids) // 4
    return [
        check_accuracy(session, loaded.twin, ids),
        check_determinism(session, [ids[:quarter], ids[: half + 1]], 2),
        check_chat_turn(session, ids[:half], quarter // 2, ids[half : half + quarter]),
    ]


def alone(part: Part, run: Run, x: Any, prompt: int | None = None, **options: Any) -> np.ndarray:
    """float32, a row for each of x: what a part with its weights, compiled as a graph by itself, makes of a sequence.

    x: (n, width) float32, or n ids. The first `prompt` rows (all, by default) go in as a prompt's chunks, the others a row a call;
    a mixer's rotary embedding gives its angles. options: `compile()`'s.
    """
    n, body, rotary = len(x), part.parameters(), getattr(part, "rotary", None)
    prompt = n if prompt is None else prompt
    turn = None if rotary is None else rotary.angles(np.arange(n))
    values = {value.name for value in body.values}
    starts = [*range(0, prompt, run.prefill_chunk), *range(prompt, n)]
    out = []
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        rows = end - start
        given = [] if start >= prompt and "token" in values else [x[start:end], *([] if turn is None else [turn[start:end]])]
        # A part that is told how many rows there are is compiled for whole chunks; of another each number is a version.
        built = run.prefill_chunk if "rows" in values and start < prompt else rows
        shapes = {name: ((built, *a.shape[1:]), a.dtype) for name, a in zip(body.inputs, given, strict=False)}
        call = dict(chunk=start // run.prefill_step, rows=rows, position=end - 1, token=int(x[start]) if np.ndim(x) == 1 else 0)
        compiled = part.compile(**options, **shapes)
        out.append(compiled(*given, **{name: value for name, value in call.items() if name in values}))
    return np.concatenate(out).astype(np.float32)


def check_part(part: Part, run: Run, x: Any, prompt: int | None = None, *, seed: int = 0, limit: float = 1e-4, **options: Any) -> Report:
    """A part `alone`, with `drawn` weights, against its twin: the largest difference."""
    weights = drawn(part, seed)
    part.fill(weights)
    where = [np.arange(len(x))] if "position" in {value.name for value in part.parameters().values} else []
    got, want = alone(part, run, x, prompt, **options), part.twin(weights, x, *where)
    worst = float(np.abs(got - want).max(initial=0)) if got.shape == want.shape else np.inf
    return Report(f"{type(part).__name__} against its twin", (Gate("largest difference", worst, limit),), len(x), "rows")
