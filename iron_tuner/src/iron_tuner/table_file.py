"""The file of a cost table while it is made: several tuners may add to one, and any of them may be killed."""

from __future__ import annotations

from pathlib import Path

from iron_core.cache.keys import digest
from iron_core.errors import printable
from iron_tuner.cost_table import CostTable
from iron_tuner.errors import CostError
from iron_tuner.probe import Probe


class TableFile:
    """A file, and `table`, what one tuner has found for it. anew: what is there is of no interest, and the first `write()` replaces it.

    CostError where what is there is of another device, packaging, platform or power mode.
    """

    def __init__(self, path: Path, probe: Probe, anew: bool = False) -> None:
        self.path, self._probe, self._anew = path, probe, anew
        self.table = CostTable(probe.dev.name, probe.dispatch, probe.platform.name)
        self._there()

    def write(self) -> None:
        """Add what was found to what the file has by now, whole or not at all. OSError says why not."""
        with self._probe.cache.turn(f"table-{digest(str(self.path.resolve()))[:16]}"):
            there = self._there()
            there.steps |= self.table.steps
            there.calibrations |= self.table.calibrations
            there.packs |= self.table.packs
            there.save(self.path)
        self._anew = False

    def _there(self) -> CostTable:
        probe = self._probe
        if self._anew or not self.path.exists():
            return CostTable(probe.dev.name, probe.dispatch, probe.platform.name)
        table = CostTable.load(self.path, probe.dev.name, probe.dispatch)
        if table.pmode not in ("", probe.platform.mode) or table.platform not in ("", probe.platform.name):
            raise CostError(
                f"{printable(self.path, 120)} is of {table.platform} in power mode {table.pmode}; this is {probe.platform.name} in "
                f"{probe.platform.mode}. Legal: --remeasure for a new table, or --table of another name."
            )
        return table
