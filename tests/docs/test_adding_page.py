"""docs/adding.md: its two commits, installed as the page writes them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import iron_core as iron
from iron_core.cli.operators import find
from iron_core.errors import Unresolvable
from iron_sim.command import main
from tests.docs.pages import files, install, page

PAGE = page("adding")
#: Per commit, the number in its heading and its files: a path alone on a line, then a block.
COMMITS = {
    title: (int(count), files(text))
    for title, count, text in re.findall(r"^## ([^\n]*): (\d+) files\n(.*?)(?=^## )", PAGE, re.M | re.S)
}


@pytest.fixture
def acme(site):
    """Both commits, installed."""
    install(site, "iron-acme", [file for _, written in COMMITS.values() for file in written])


def test_a_commit_touches_as_many_files_as_its_heading_says():
    """An elementwise operator with its array two, a reduction with its array three; of pyproject.toml one line."""
    assert {title: count for title, (count, _) in COMMITS.items()} == {"An elementwise operator": 2, "A reduction": 3}
    for count, written in COMMITS.values():
        assert len(written) == count and len(dict(written)["pyproject.toml"].splitlines()) == 2


def test_both_are_simulated_on_both_devices(acme, capsys):
    """Every case they declare, equal to its tile references and within its gate."""
    assert main(["acme.Absolute", "acme.RowSum"]) == 0
    assert "8 simulated, 0 refused, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("n", [1, 30, 64])
def test_the_reduction_takes_a_bound_per_call(acme, n, rng):
    """With what the page says and no more: the first n rows, on a simulated array."""
    row_sum = find("acme.RowSum")

    class Sums(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return row_sum(x[:n])

    x = rng.standard_normal((64, 32)).astype(iron.bfloat16)
    assert iron.allclose(Sums().compile(x=(64, 32), backend="sim", dev="npu2")(x, n=n), x[:n].astype(float).sum(1))


def test_what_does_not_fit_is_refused_as_the_page_says(acme):
    row_sum = find("acme.RowSum")
    for fields in (dict(rows=100, cols=64), dict(rows=64, cols=4096)):
        with pytest.raises(Unresolvable) as caught:
            row_sum(**fields).resolved("npu2")
        assert f"\n{caught.value}\n" in PAGE, caught.value
