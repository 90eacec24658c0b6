"""`Pages`: which pages of a pool of keys and values hold which tokens, of many sequences side by side."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from iron_core.errors import BoundsError

ROWS = 64  # of a page

_Chain = tuple[int, tuple[int, ...]]  # the page before (-1: none), and the tokens of this one


class Table:
    """The pages of one sequence, in order, and how many rows of them it has written (`length`)."""

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)


class Pages:
    """`count` pages of `rows` rows each, shared by reference.

    A full page is found again by its tokens and the page before it, so that a common prefix is stored once. A page that no table holds
    but that may be found so stays until its place is wanted; the one let go longest ago goes first.
    """

    def __init__(self, count: int, rows: int = ROWS) -> None:
        for keyword, value in (("count", count), ("rows", rows)):
            if value < 1:
                raise BoundsError(f"Pages: {keyword} must be at least 1, not {value}. Legal: at least 1.")
        self.count, self.rows = count, rows
        self.references = [0] * count
        self._free = list(range(count - 1, -1, -1))
        self._found: dict[_Chain, int] = {}
        self._chain: dict[int, _Chain] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # held by no table, still to be found

    @property
    def available(self) -> int:
        """How many pages may be taken now."""
        return len(self._free) + len(self._idle)

    def open(self, tokens: Sequence[int]) -> Table:
        """A table that holds the full pages already stored of a prefix of `tokens`; one token at least is left to run."""
        table = Table()
        before = -1
        for start in range(0, len(tokens) - self.rows, self.rows):
            part = tuple(tokens[start : start + self.rows])
            page = self._found.get((before, part))
            if page is None:
                break
            self._hold(page)
            table.pages.append(page)
            table.tokens.extend(part)
            before = page
        return table

    def fork(self, table: Table, length: int | None = None) -> Table:
        """A second table of the same tokens, or of the first `length` of them; its last page, if it is not full, is copied by
        whichever of them writes first."""
        other = Table()
        other.tokens = table.tokens[:length]
        other.pages = table.pages[: -(-other.length // self.rows)]
        for page in other.pages:
            self._hold(page)
        return other

    def append(self, table: Table, token: int) -> tuple[int, tuple[int, int] | None] | None:
        """The place (page * rows + row) of one more token, and the pages (from, to) to copy before it is written.

        None, and nothing changed, where no page is left.
        """
        row = table.length % self.rows
        copy = None
        if row == 0:
            page = self._take()
            if page is None:
                return None
            table.pages.append(page)
        elif self.references[table.pages[-1]] > 1 or table.pages[-1] in self._chain:  # the rows behind are another's, or to be found
            page = self._take()
            if page is None:
                return None
            copy = (table.pages[-1], page)
            self._let_go(table.pages[-1])
            table.pages[-1] = page
        table.tokens.append(token)
        return table.pages[-1] * self.rows + row, copy

    def written(self, table: Table) -> None:
        """The rows of `table` are computed: its full pages may be found by others."""
        before = -1
        for index in range(table.length // self.rows):
            page = table.pages[index]
            chain = (before, tuple(table.tokens[index * self.rows : (index + 1) * self.rows]))
            if page not in self._chain:
                if chain in self._found:  # stored twice: computed side by side; pages behind this copy stay its own
                    return
                self._found[chain], self._chain[page] = page, chain
            before = page

    def close(self, table: Table) -> None:
        """The table's pages are let go, the last first, so that a prefix stays longer than what follows it."""
        while table.pages:
            self._let_go(table.pages.pop())
        table.tokens.clear()

    def _hold(self, page: int) -> None:
        self._idle.pop(page, None)
        self.references[page] += 1

    def _let_go(self, page: int) -> None:
        self.references[page] -= 1
        if not self.references[page]:
            if page in self._chain:
                self._idle[page] = None
            else:
                self._free.append(page)

    def _take(self) -> int | None:
        if not self._free:
            if not self._idle:
                return None
            self._forget(next(iter(self._idle)))
        page = self._free.pop()
        self.references[page] = 1
        return page

    def _forget(self, page: int) -> None:
        """`page`, idle, is free. No page is found behind it: who held such a one held this too, and let this go after it."""
        del self._found[self._chain.pop(page)]
        del self._idle[page]
        self._free.append(page)
