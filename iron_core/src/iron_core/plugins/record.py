"""What is known of one entry point: whose it is, and what happened when it was loaded."""

from __future__ import annotations

import traceback
from typing import Any

import attrs

#: The groups this iron reads, and the API level it reads of each.
LEVELS = {
    "operators": 1,
    "backends": 1,
    "lowerings": 1,
    "models": 1,
    "checkpoints": 1,
    "devices": 1,
    "commands": 1,
    "tuners": 1,
    "plugins": 1,
}

_UNSET: Any = object()


@attrs.define(eq=False)
class Record:
    """One entry point. `group` is short ("operators"); `level` is the one its distribution was built for.

    status: "not loaded", "ok", "failed", "ambiguous", "denied" or "incompatible"; `detail` says why.
    """

    group: str
    level: int
    name: str
    value: str
    distribution: str
    version: str
    entry: Any
    status: str = "not loaded"
    detail: str = ""
    traceback: str = ""
    _loaded: Any = attrs.field(default=_UNSET, repr=False)

    @property
    def owner(self) -> str:
        """Distribution and version, as shown."""
        return f"{self.distribution} {self.version}"

    def load(self, *, debug: bool = False) -> bool:
        """Import what it names, once. False if that failed (the reason is then in `detail`)."""
        if self.status in ("failed", "denied", "incompatible"):
            return False
        if self._loaded is _UNSET:
            try:
                self._loaded = self.entry.load()
            except (Exception, SystemExit) as error:  # a module that exits must not take the process along
                if debug:
                    raise
                where = self.value.partition(":")[0]
                self.detail = f"{type(error).__name__}: {error} (from {where})"
                self.traceback = traceback.format_exc()
                self.status = "failed"
                return False
            if self.status == "not loaded":
                self.status = "ok"
        return True

    @property
    def object(self) -> Any:
        """What it names; load() first."""
        return self._loaded

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "group": self.group,
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "api": f"v{self.level}",
            "value": self.value,
            "status": self.status,
            "detail": self.detail,
        }
