"""A backend that measures by a model whose every number a test knows: what steps take, entries, loads; noise on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from iron_core.backends.measuring import Measured, Platform, Run, RunList, Timing, drawn
from iron_core.declare.identity import array_key
from iron_core.declare.rounding import round_to


class FakeBackend:
    """T = D0 + steps + entries (base + loads of their arrays) + R if the entries are odd; or, separate, F + steps + loads.

    us: what a run takes. noise: the standard deviation of a round, relative. sleep_s: of every list, really. wrong: which runs write other
    bits, and by how much. disturbed: why no figure of a list is to be trusted.
    """

    name = "fake"

    def __init__(
        self,
        us: Callable[[Run], float],
        *,
        dispatch_us: float = 100.0,
        base_us: float = 20.0,
        reset_us: float = 7.0,
        load_us: Callable[[Run], float] = lambda run: 5.0,
        noise: float = 0.0,
        sleep_s: float = 0.0,
        wrong: Callable[[Run], float] = lambda run: 0.0,
        disturbed: Callable[[RunList], str] = lambda runs: "",
        mode: str = "performance",
    ) -> None:
        self.us, self.load_us, self.wrong, self.disturbed = us, load_us, wrong, disturbed
        self.dispatch_us, self.base_us, self.reset_us = dispatch_us, base_us, reset_us
        self.noise, self.sleep_s, self.mode = noise, sleep_s, mode
        self.lists: list[RunList] = []
        self._rng = np.random.default_rng(0)

    def platform(self, dev: Any) -> Platform:
        return Platform("Fake NPU", self.mode)

    def measure(self, lists: Sequence[RunList], dev: Any, timing: Timing) -> list[Measured]:
        self.lists += lists
        time.sleep(self.sleep_s)
        fastest = {len(runs.runs): min(self.model_us(other) for other in lists if len(other.runs) == len(runs.runs)) for runs in lists}
        found = []
        for runs in lists:
            us = self.model_us(runs)
            rounds = min(timing.settle, timing.rounds) if us > timing.cutoff * fastest[len(runs.runs)] else timing.rounds
            taken = tuple(us * (1 + self.noise * self._rng.standard_normal()) for _ in range(rounds))
            found.append(Measured(taken, self._outputs(runs) if runs.compared else {}, self.disturbed(runs)))
        return found

    def model_us(self, runs: RunList) -> float:
        """What a list takes, without noise."""
        pack = {index: number for number, members in enumerate(runs.packs) for index in members}
        arrays = [array_key(run.op) for run in runs.runs]
        devices = [("pack", pack[i]) if i in pack else ("array", arrays[i]) for i in range(len(arrays))]
        held = {d: {arrays[i]: runs.runs[i] for i, other in enumerate(devices) if other == d} for d in devices}
        steps = sum(map(self.us, runs.runs))
        if runs.dispatch == "separate":
            switches = [i for i in range(len(arrays)) if len(set(devices)) > 1 and devices[i] != devices[i - 1]]
            return self.dispatch_us + steps + sum(self.load_us(runs.runs[i]) for i in switches)
        entered = [d for i, d in enumerate(devices) if i == 0 or devices[i - 1] != d]
        entries = sum(self.base_us + sum(map(self.load_us, held[d].values())) for d in entered)
        return self.dispatch_us + steps + entries + (self.reset_us if len(entered) % 2 else 0.0)

    def _outputs(self, runs: RunList) -> dict[tuple[int, str], np.ndarray]:
        run = runs.runs[0]
        inputs = drawn(runs, 0)
        op = run.op.bounded(**run.op.limits(run.members)) if run.members else run.op
        blank = {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
        made = op.reference(*(inputs.get(o.name) for o in op.inputs), **blank)
        written = [o for o in op.outputs if o.present(op)]
        made = made if isinstance(made, tuple) else (made,)
        off = self.wrong(run)
        return {(0, o.name): round_to(m * (1 + off), o.format(op).dtype) for o, m in zip(written, made, strict=True)}
