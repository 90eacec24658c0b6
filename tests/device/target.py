"""A device that a test runs on: is it here, what stands in for it, and who else uses it.

One process at a time has a device, for its hardware contexts are few and shared by all: a test builds beside others, and waits when
what it built is ready to run (`Target.take`). It has the device until it ends.
"""

from __future__ import annotations

import fcntl
import gc
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import attrs
import pytest

from iron_core.backends.choose import get, probe
from iron_core.backends.protocol import Unavailable
from iron_core.devices import device
from iron_core.errors import IronError, sentence

FAMILIES = ("npu1", "npu2")
#: The backend that runs on the device itself: of those it takes, the first is here.
DEVICE = "npu"

_Made = TypeVar("_Made")


@cache
def absent(backend: str, dev: str) -> str:
    """Why nothing can be run on `dev` by this backend here, in a line; empty where it can."""
    try:
        found = get(backend)
    except IronError as error:
        return str(error)
    state = probe(found)
    if isinstance(state, Unavailable):
        return f"backend {backend} cannot run here: {sentence(state.reason)}{state.fix and f' {state.fix}'}"
    families = list(dict.fromkeys(device(name).family for name in found.devices()))
    there = families[:1] if backend == DEVICE else families
    return "" if dev in there else f"no {dev}: backend {backend} has {', '.join(there)} here"


def lock_file() -> Path:
    """Held by the process that has the device, whatever its session: one file for each user."""
    return Path(tempfile.gettempdir()) / f"iron-npu-{os.getuid()}.lock"


@attrs.define(eq=False)
class Target:
    """dev: the family. backend: "npu", or what stands in for it. figures: what the test measured, see `figure`."""

    dev: str
    backend: str
    figures: list[tuple[str, str, str, float]] = attrs.field(factory=list)
    _held: Any = None
    _made: list[Any] = attrs.field(factory=list)

    @property
    def options(self) -> dict[str, str]:
        """Keywords of a compile."""
        return {"backend": self.backend, "dev": self.dev}

    @property
    def taken(self) -> bool:
        return self._held is not None

    def take(self, made: _Made) -> _Made:
        """What was compiled, when the device is this process's: a compiled graph, an operator's image or a session."""
        if self._held is None:
            self._held = lock_file().open("a")
            fcntl.flock(self._held, fcntl.LOCK_EX)
        self._made.append(getattr(made, "compiled", made))
        return made

    def refuse(self, rule: str) -> NoReturn:
        """Skip: no array of this family takes what the test asks for."""
        pytest.skip(f"{self.dev} refuses it: {rule}")

    def figure(self, operator: str, case: str, metric: str, value: float) -> None:
        """A row of the file that `--csv-output` names."""
        self.figures.append((operator, case, metric, float(value)))

    def release(self) -> None:
        """Unload what was taken, also what the traceback of a failed test still refers to, and let the next one have the device."""
        for made in self._made:
            for version in made._program.versions.values():
                version.executable = None
            made._program._memory = None
        self._made.clear()
        gc.collect()
        if self._held is not None:
            self._held.close()
            self._held = None
