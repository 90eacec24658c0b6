"""`null`: plans everything, runs nothing. For packaging decisions, plans and pictures of a device that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.devices import DEVICES, Device, device
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.image.folding import array_refusal
from iron_core.image.plan import Plan
from iron_core.lowering.answer import No, Yes

_REFUSAL = "backend='null' plans and computes nothing, so it has no {what} to give. Compile with backend='reference' or 'host'."


class NullMemory:
    """No bytes at all."""

    def grow(self, plan: Plan) -> None:
        """Nothing to make room for."""

    def read(self, name: str, rows: int | None = None) -> Any:
        raise UnsupportedError(_REFUSAL.format(what=f"content of `{name}`"))

    def write(self, name: str, array: Any, rows: int | None = None) -> None:
        raise UnsupportedError(_REFUSAL.format(what=f"place for `{name}`"))


class NullExecutable:
    """A version that cannot be called."""

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> NoReturn:
        raise UnsupportedError(_REFUSAL.format(what="outputs"))


class NullBackend(Backend):
    """Takes every operator on every device and never runs one."""

    name = "null"
    loads_binaries = True

    def probe(self) -> Available | Unavailable:
        return Available("plans for any device, runs nothing")

    def devices(self) -> tuple[str, ...]:
        return tuple(DEVICES)

    def takes(self, dev: Device) -> bool:
        return True

    def supports(self, op: Any, dev: str) -> Yes:
        return Yes("planned, not run")

    def accepts(self, fold: Any, dev: str) -> bool | No:
        rule = array_refusal(fold, device(dev)) if device(dev).is_npu else None
        return rule is None or No(rule)

    def compile(self, plan: Plan, signature: Signature) -> Any:
        return plan.version(signature)

    def memory(self, plan: Plan) -> NullMemory:
        return NullMemory()

    def load(self, image: Any, memory: Any) -> NullExecutable:
        return NullExecutable()
