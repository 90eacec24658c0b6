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
from iron_core.errors import IronError, sentence
from iron_npu.machine.system import System

FAMILIES = ("npu1", "npu2")
#: The backend that runs on the device itself.
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
    if dev not in found.devices():
        return f"no {dev}: backend {backend} takes {', '.join(found.devices())}"
    there = {node.family for node in System().nodes()} if backend == DEVICE else set()
    return f"no {dev}: the NPU here is {', '.join(sorted(there))}" if there and dev not in there else ""


def lock_file() -> Path:
    """Held by the process that has the device, whatever its session: one file for each user."""
    return Path(tempfile.gettempdir()) / f"iron-npu-{os.getuid()}.lock"


def built(program: Any) -> None:
    """Build what loading it would, while others may have the device: the binaries of its image, which is that of its newest version."""
    from iron_npu.building import files  # needed with the vendor's programs alone

    files(list(program.versions.values())[-1].image)


@attrs.define(eq=False)
class Target:
    """dev: the family. backend: "npu", or what stands in for it. figures: what the test measured, see `figure`."""

    dev: str
    backend: str
    figures: list[tuple[str, str, str, float]] = attrs.field(factory=list)
    _held: Any = None
    _programs: list[Any] = attrs.field(factory=list)

    @property
    def options(self) -> dict[str, str]:
        """Keywords of a compile."""
        return {"backend": self.backend, "dev": self.dev}

    @property
    def taken(self) -> bool:
        return self._held is not None

    def take(self, made: _Made) -> _Made:
        """What was compiled, when the device is this process's: a compiled graph, an operator's image or a session."""
        program = getattr(made, "compiled", made)._program
        if self._held is None:
            if self.backend == DEVICE:
                built(program)
            self._held = lock_file().open("a")
            fcntl.flock(self._held, fcntl.LOCK_EX)
        self._programs.append(program)
        return made

    def refuse(self, rule: str) -> NoReturn:
        """Skip: no array of this family takes what the test asks for."""
        pytest.skip(f"{self.dev} refuses it: {rule}")

    def figure(self, operator: str, case: str, metric: str, value: float) -> None:
        """A row of the file that `--csv-output` names."""
        self.figures.append((operator, case, metric, float(value)))

    def release(self) -> None:
        """Unload what was taken, also what the traceback of a failed test still refers to, and let the next one have the device."""
        for program in self._programs:
            for version in program.versions.values():
                version.executable = None
            program._memory = None
        self._programs.clear()
        gc.collect()
        if self._held is not None:
            self._held.close()
            self._held = None
