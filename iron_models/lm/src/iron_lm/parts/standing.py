"""`Standing`: where each row of a pass over several sequences stands."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(eq=False)
class Standing:
    """What parts are given for `position`, where rows are of any sequences: handles of int32.

    at: (rows,), the position of each in its sequence. owner: (rows,), whose it is. tables: (sequences, most), the pages of each sequence,
    in order. places: (rows,), the row of the pool that its keys and values are written to.
    """

    at: Any
    owner: Any
    tables: Any
    places: Any
