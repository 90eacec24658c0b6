"""docs/hooks.md: the page that the specifications of events make, and the plugin on it."""

from __future__ import annotations

import inspect

import numpy as np

import iron_core as iron
from iron_core.plugins import hooks_page
from iron_core.plugins.hooks import Events
from iron_ops_aie import ReLU, SiLU
from tests.docs.pages import DOCS, files, install, page


def test_it_is_what_is_made_of_the_specifications(tmp_path, capsys):
    """Run `python -m iron_core.plugins.hooks_page docs/hooks.md`."""
    assert hooks_page.main([str(tmp_path / "hooks.md")]) == 0
    assert (tmp_path / "hooks.md").read_text() == (DOCS / "hooks.md").read_text()
    assert hooks_page.main([]) == 2 and "usage: python -m iron_core.plugins.hooks_page FILE" in capsys.readouterr().err


def test_it_tells_of_every_event_and_of_every_fact():
    """A heading with the call, and a line for each argument."""
    events = {name: list(inspect.signature(event).parameters)[1:] for name, event in vars(Events).items() if name.startswith("iron_")}
    sections = {part.split("(")[0]: part for part in page("hooks").split("\n## `")[1:]}
    assert list(sections) == list(events) and len(events) == 4
    for name, facts in events.items():
        heading, _, text = sections[name].partition("\n")
        assert heading == f"{name}({', '.join(facts)})`" and [line.split("`")[1] for line in text.splitlines() if line[:1] == "*"] == facts


def test_its_plugin_watches(site, capsys):
    """The files of the page, installed."""
    install(site, "iron-acme-log", files(page("hooks")))

    class Small(iron.Graph):
        def body(self, x):
            return ReLU(SiLU(x))

    Small().compile(x=((8,), np.float32), backend="reference")
    assert capsys.readouterr().err == "Small: 2 steps for host\nSmall: VersionPlan of reference\n"
