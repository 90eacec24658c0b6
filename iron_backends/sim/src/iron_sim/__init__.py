"""The simulator of the NPU's array. `backend=` sim."""

from __future__ import annotations

import _iron_start

_iron_start.check()
