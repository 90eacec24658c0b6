"""Pages of keys and values: what they hold, who holds them, and that none is lost."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iron_core.errors import BoundsError
from iron_lm.generation.pages import Pages

ROWS = 2
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)


class Sequences(RuleBasedStateMachine):
    """Sequences open, grow, fork and close, over a pool that the machine writes as a cache would."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages(6, ROWS)
        self.pool: list[tuple[int, ...] | None] = [None] * (6 * ROWS)  # a row holds the whole prefix that it was computed from
        self.tables = []

    def grow(self, table, tokens) -> None:
        for token in tokens:
            before = (list(table.pages), list(table.tokens), list(self.pages.references))
            taken = self.pages.append(table, token)
            if taken is None:
                assert self.pages.available == 0
                assert before == (table.pages, table.tokens, self.pages.references)
                break
            place, copy = taken
            if copy:
                source, target = copy
                self.pool[target * ROWS : (target + 1) * ROWS] = self.pool[source * ROWS : (source + 1) * ROWS]
            self.pool[place] = tuple(table.tokens)
        self.pages.written(table)

    @rule(tokens=TOKENS)
    def submit(self, tokens) -> None:
        table = self.pages.open(tokens)
        assert table.length < len(tokens) and table.tokens == tokens[: table.length]
        self.tables.append(table)
        self.grow(table, tokens[table.length :])

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), token=st.integers(0, 1))
    def step(self, data, token) -> None:
        self.grow(data.draw(st.sampled_from(self.tables)), [token])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def fork(self, data) -> None:
        table = data.draw(st.sampled_from(self.tables))
        length = data.draw(st.none() | st.integers(0, table.length))
        self.tables.append(self.pages.fork(table, length))
        assert self.tables[-1].tokens == table.tokens[:length]

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def finish(self, data) -> None:
        self.pages.close(self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))))

    @invariant()
    def every_row_is_of_its_own_prefix(self) -> None:
        for table in self.tables:
            for row in range(table.length):
                assert self.pool[table.pages[row // ROWS] * ROWS + row % ROWS] == tuple(table.tokens[: row + 1])

    @invariant()
    def references_are_the_tables_and_none_leaks(self) -> None:
        held = [page for table in self.tables for page in table.pages]
        assert self.pages.references == [held.count(page) for page in range(6)]
        assert self.pages.available == 6 - len(set(held))

    @invariant()
    def a_page_that_is_found_holds_what_it_is_found_by(self) -> None:
        for page, (before, tokens) in self.pages._chain.items():
            rows = self.pool[page * ROWS : (page + 1) * ROWS]
            assert all(row is not None for row in rows) and rows[-1][-ROWS:] == tokens
            assert rows[-1][:-ROWS] == (() if before < 0 else self.pool[(before + 1) * ROWS - 1])

    @invariant()
    def no_page_is_found_behind_a_forgotten_one(self) -> None:
        assert all(before == -1 or before in self.pages._chain for before, _ in self.pages._chain.values())


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_common_prefix_is_stored_once():
    """A second prompt takes the full pages of the first, and computes only what follows."""
    pages = Pages(8, ROWS)
    first = pages.open([1, 2, 3, 4, 5])
    for token in [1, 2, 3, 4, 5]:
        pages.append(first, token)
    pages.written(first)
    second = pages.open([1, 2, 3, 4, 6])
    assert second.tokens == [1, 2, 3, 4] and second.pages == first.pages[:2]


def test_a_pool_of_no_pages_is_refused():
    """The rule and the value are named."""
    with pytest.raises(BoundsError, match="count must be at least 1, not 0"):
        Pages(0)
