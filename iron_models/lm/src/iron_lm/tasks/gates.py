"""The checks a model passes: accuracy against the float32 oracle, determinism, chat turns. One that compared nothing fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.errors import UsageError
from iron_lm.generation.sampler import kl_divergence
from iron_lm.generation.session import Session, shared
from iron_lm.run import Run

DATA = Path(__file__).parents[1] / "data"
#: Teacher-forced positions an accuracy check compares.
POSITIONS = 256
#: How far the distributions may be from the float32 oracle's, in nats: twice what a Llama in bfloat16 gave on an NPU (mean 0.0083, 90th
#: percentile 0.018, largest 0.091).
DIVERGENCE = {"kl": 0.02, "kl90": 0.04, "klmax": 0.2}
#: The same where projections are integers of one scale: twice what SmolLM2-135M gives with a scale for each row of activations (0.092,
#: 0.160), and its largest (1.56) by a third, for it is one position of 256. Models made small or drawn are within a tenth of it.
INTEGER_DIVERGENCE = {"kl": 0.18, "kl90": 0.32, "klmax": 2.0}
#: How far an encoder's vectors may be from the float32 oracle's: in float32 by their distance, else by the mean of their cosines.
DISTANCE, COSINE = 1e-4, 0.997


@attrs.frozen
class Gate:
    """One figure beside its limit. `at_most` False: the figure must reach the limit instead."""

    name: str
    figure: float
    limit: float | None = None
    at_most: bool = True

    @property
    def passed(self) -> bool:
        if self.limit is None:
            return True
        return self.figure <= self.limit if self.at_most else self.figure >= self.limit

    def __str__(self) -> str:
        if self.limit is None:
            return f"{self.name} {self.figure:.4g}"
        sign = "<=" if self.at_most else ">="
        return f"{self.name} {self.figure:.4g} (gate {sign} {self.limit:.4g}) {'ok' if self.passed else 'FAILED'}"


@attrs.frozen
class Report:
    """What a check found: its gates, how many comparisons (of `unit`) stand behind them, and notes for the reader."""

    name: str
    gates: tuple[Gate, ...]
    compared: int
    unit: str = "positions"
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.compared > 0 and all(g.passed for g in self.gates)

    @property
    def figures(self) -> tuple[Gate, ...]:
        """What was found, without limits."""
        return tuple(attrs.evolve(gate, limit=None) for gate in self.gates)

    def lines(self) -> list[str]:
        """For people."""
        nothing = [] if self.compared else ["compared nothing: FAILED"]
        head = f"{self.name} over {self.compared} {self.unit}"
        return [head, *(f"  {g}" for g in self.gates), *(f"  {n}" for n in self.notes), *nothing]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return attrs.asdict(self) | {"passed": self.passed}


def passage() -> str:
    """The text accuracy is judged on."""
    return (DATA / "passage.txt").read_text(encoding="utf-8")


def llama_cpp_figures(path: Path) -> dict[str, Any] | None:
    """What llama.cpp's default settings reach on this very file, if that was measured."""
    if not path.is_file():
        return None
    known = json.loads((DATA / "llama_cpp.json").read_text(encoding="utf-8"))
    return known.get(hashlib.sha256(path.read_bytes()).hexdigest())  # type: ignore[no-any-return]


def forced_logits(session: Session, ids: list[int]) -> np.ndarray:
    """float32 (n, vocab): the logits after each of `ids`, a decode step a token."""
    session.reset()
    return np.stack([session.logits(ids[: n + 1]).copy() for n in range(len(ids))])


def check_accuracy(session: Session, twin: Callable[[list[int]], np.ndarray], ids: list[int], peer: dict[str, Any] | None = None) -> Report:
    """Logits at teacher-forced positions against the float32 oracle's.

    Gates: float32 activations and exact arithmetic, the largest difference; with a peer's figures for this file, its
    logit rms times 1.1 and its top-1 agreement less 3; otherwise the divergence of the distributions (`DIVERGENCE`, and where
    projections are integers of one scale `INTEGER_DIVERGENCE`).
    """
    run = session.model.run
    ids = ids[: min(POSITIONS, run.max_seq_len)]
    if not ids:
        return Report("accuracy against the float32 oracle", (), 0)
    exact, got = twin(ids), forced_logits(session, ids)
    error = got.astype(np.float64) - exact
    kl = kl_divergence(exact, got)
    rms, worst = float(np.sqrt(np.mean(error**2))), float(np.abs(error).max())
    agreed = int((got.argmax(-1) == exact.argmax(-1)).sum())
    notes: tuple[str, ...] = ()
    limits: dict[str, float] = {}
    if run.quantize is not None:
        limits |= INTEGER_DIVERGENCE
    elif run.dtype == "float32" and run.cache_dtype == "float32" and run.activations == "exact":
        limits["worst"] = 1e-3
    elif peer is not None and run.activations == "int8_block" and len(ids) == peer["positions"]:
        limits |= {"rms": 1.1 * peer["logit_rms"], "top1": peer["top1_agreement"] - 3}
        notes = (f"llama.cpp on this file: logit rms {peer['logit_rms']:.4g}, top-1 {peer['top1_agreement']} ({peer['program']})",)
    else:
        limits |= DIVERGENCE
    gates = (
        Gate("logit rms", rms, limits.get("rms")),
        Gate("largest logit difference", worst, limits.get("worst")),
        Gate("top-1 agreement", agreed, limits.get("top1"), at_most=False),
        Gate("mean KL", float(kl.mean()), limits.get("kl")),
        Gate("90th percentile KL", float(np.percentile(kl, 90)), limits.get("kl90")),
        Gate("largest KL", float(kl.max()), limits.get("klmax")),
    )
    return Report("accuracy against the float32 oracle", gates, len(ids), notes=notes)


def check_vectors(
    run: Run, vector: Callable[[list[int]], np.ndarray], twin: Callable[[list[int]], np.ndarray], texts: list[list[int]]
) -> Report:
    """An encoder's vector of each text (ids), before it is made of length 1, against the float32 oracle's.

    Gates: float32, the largest distance as a part of the vector's length, 1e-4; otherwise the mean cosine, 0.997.
    """
    if not texts:
        return Report("accuracy against the float32 oracle", (), 0, "texts")
    cosines, distances = [], []
    for ids in texts:
        want, got = (np.asarray(one(ids), np.float64).reshape(-1) for one in (twin, vector))
        cosines.append(float(want @ got / (np.linalg.norm(want) * np.linalg.norm(got))))
        distances.append(float(np.linalg.norm(got - want) / np.linalg.norm(want)))
    exact = run.dtype == "float32" and run.quantize is None and run.activations == "exact"
    gates = (
        Gate("mean cosine", float(np.mean(cosines)), None if exact else COSINE, at_most=False),
        Gate("smallest cosine", min(cosines)),
        Gate("largest relative error", max(distances), DISTANCE if exact else None),
    )
    return Report("accuracy against the float32 oracle", gates, len(texts), "texts")


def check_determinism(session: Session, prompts: list[list[int]], rounds: int) -> Report:
    """The same prompts in turn, `rounds` times from an empty cache: logits equal bit for bit each time."""
    if rounds < 2:
        raise UsageError(f"check-determinism={rounds}; legal: 2 rounds or more, one has nothing to be compared with.")
    first: dict[int, np.ndarray] = {}
    compared = differing = 0
    for _ in range(rounds):
        for i, ids in enumerate(prompts):
            session.reset()
            logits = session.logits(ids).copy()
            if i in first:
                compared += 1
                differing += not np.array_equal(first[i].view(np.uint32), logits.view(np.uint32))
            first.setdefault(i, logits)
    return Report("determinism", (Gate("runs that differ", differing, 0),), compared, "repeated runs")


def check_chat_turn(session: Session, first: list[int], answer: int, second: list[int]) -> Report:
    """A turn that reuses the caches equals a run from scratch, bit for bit.

    The first prompt is answered with `answer` tokens and followed by `second`; the caches are overwritten in between. A
    turn too short to reuse a chunk compares nothing.
    """
    session.reset()
    said = session.generate(first, answer)
    turn = [*first, *said, *second]
    chunk = session.model.run.prefill_chunk
    kept = min(shared(session.held, turn), len(turn) - 1) // chunk * chunk
    reused = session.logits(turn).copy()
    session.reset()
    session.logits(turn[::-1])  # other tokens where the turn's were
    session.reset()
    scratch = session.logits(turn).copy()
    differing = int((reused.view(np.uint32) != scratch.view(np.uint32)).sum())
    return Report("chat turn against a run from scratch", (Gate("logits that differ", differing, 0),), kept, "reused tokens")
