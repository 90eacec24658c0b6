"""`Rows`: operators whose rows are computed alone, by a kernel that shares them among threads."""

from __future__ import annotations

from typing import Any

from iron_host.lowerings.template import TemplateLowering


class Rows(TemplateLowering):
    """x is (rows, cols); a result may be a number for each row."""

    def work(self, op: Any) -> int:
        return 0 if op.rows == 1 else super().work(op)  # one row is one thread's
