"""`Planned`: what a compiled graph and an operator image say of what they run."""

from __future__ import annotations

from iron_core.backends.protocol import Backend
from iron_core.backends.traffic import Traffic
from iron_core.compiled.explain import explain
from iron_core.compiled.program import Program
from iron_core.image.plan import Packaging, Plan


class Planned:
    """The plan of a program, and for whom it was made."""

    _program: Program

    @property
    def backend(self) -> Backend:
        return self._program.backend

    @property
    def dev(self) -> str:
        return self._program.plan.dev

    @property
    def plan(self) -> Plan:
        """All versions together."""
        return self._program.plan

    @property
    def packaging(self) -> Packaging:
        return self._program.plan.packaging

    @property
    def traffic(self) -> Traffic:
        """What calls copied, and the arrays that were configured, until now: see `Traffic`. UnsupportedError where the backend does
        not count."""
        return self._program.traffic()

    def explain(self) -> str:
        """Backend and why, packaging and why, memory, and each version's steps and per-call words."""
        return explain(self._program)
