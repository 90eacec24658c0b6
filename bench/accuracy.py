"""`python -m bench --accuracy`: how far logits are from the float32 oracle's on the same file, Iron's beside llama.cpp's."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from bench.engines import LLAMA_CPP, Unavailable
from bench.measure import Bench, say
from bench.weights import QUANTIZED, Missing
from iron_host.backend import HostBackend
from iron_lm import families, loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.generation.session import Session
from iron_lm.tasks.gates import POSITIONS, Report, check_accuracy

#: Files it is measured of: the one that others are made of, and these.
FILES = ("q4_1", *QUANTIZED)


@attrs.frozen
class Accuracy:
    """A file's figures: Iron's report, held to the peer's figures where there are any, and those."""

    weights: str
    report: Report
    peer: dict[str, Any] | None
    skipped: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {"weights": self.weights, "iron": self.report.as_dict(), "peer": self.peer, "skipped": self.skipped}


def figures(got: np.ndarray, exact: np.ndarray, program: str) -> dict[str, Any]:
    """A peer's, of logits (positions, vocabulary), as the gate takes them."""
    rms = float(np.sqrt(np.mean((got.astype(np.float64) - exact) ** 2)))
    return {"program": program, "positions": len(got), "logit_rms": rms, "top1_agreement": int((got.argmax(-1) == exact.argmax(-1)).sum())}


def measured(bench: Bench, name: str, positions: int = POSITIONS) -> Accuracy:
    """Of a file, at so many teacher-forced positions of the passage, a decode step a token in both."""
    path, ids = bench.weights.path(name), bench.ids(positions)
    checkpoint = Checkpoint.open(path)
    loaded = loading.load(families.of(checkpoint), checkpoint, max_seq_len=positions)
    exact = np.asarray(loaded.twin(ids))
    peer, skipped = None, ""
    try:
        with bench.worker(LLAMA_CPP, name, {"context": positions}) as worker:
            file = bench.weights.folder / f"logits-{name}.npy"
            worker.order(do="logits", ids=ids, path=str(file))
            peer = figures(np.load(file), exact, f"llama.cpp {worker.version}")
            file.unlink()
    except (Unavailable, Missing) as error:
        skipped = str(error)
    session = Session(loaded.model(), backend=HostBackend(threads=bench.threads), cache_key=loaded.cache_key)
    return Accuracy(name, check_accuracy(session, lambda _: exact, ids, peer), peer, skipped)


def every(bench: Bench) -> list[Accuracy]:
    """Of all files; a line of progress each."""
    found = []
    for name in FILES:
        say(f"accuracy of {name}")
        found.append(measured(bench, name))
    return found


def lines(found: list[Accuracy]) -> list[str]:
    """A table: rms of the logits' errors and how often the most likely token is the oracle's, and whether the gate holds."""
    table = ["| file | rms | llama.cpp | same token | llama.cpp | gate |", "| --- | --- | --- | --- | --- | --- |"]
    for one in found:
        ours = {gate.name: gate for gate in one.report.gates}
        rms, top = ours["logit rms"], ours["top-1 agreement"]
        theirs = (f"{one.peer['logit_rms']:.4f}", str(one.peer["top1_agreement"])) if one.peer else ("", "")
        beside = rms.limit is not None and top.limit is not None
        limits = f"at most {rms.limit:.4f}, at least {top.limit:.0f}" if beside else "divergence"
        verdict = f"{limits}: {'met' if one.report.passed else 'missed'}"
        table.append(f"| {one.weights} | {rms.figure:.4f} | {theirs[0]} | {top.figure:.0f} | {theirs[1]} | {verdict} |")
    reasons = sorted({one.skipped for one in found if one.skipped})
    return table + [f"\nllama.cpp: {reason}" for reason in reasons]
