"""Events: pluggy modules of `iron.plugins.v1`, loaded at the first event."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from iron_core.errors import PluginWarning
from iron_core.plugins.hooks import announce, manager
from iron_core.plugins.registry import registry

WATCHER = """
from iron_core.plugins.hooks import hookimpl
seen = []
@hookimpl
def iron_plan_built(plan):
    seen.append(("plan", plan))
@hookimpl
def iron_step_timed(step, seconds):
    seen.append(("step", step, seconds))
"""


@pytest.fixture
def watcher(site):
    """A plugin that notes what it is told."""
    site.add("iron-watch", entries={"iron.plugins.v1": {"watch": "watcher"}}, modules={"watcher.py": WATCHER})


def test_a_module_loads_at_the_first_event(watcher):
    """Not at import, not when plugins are listed: when something happens."""
    registry().select("plugins")
    assert "watcher" not in sys.modules
    announce("iron_step_timed", step="s", seconds=0.5)
    assert sys.modules["watcher"].seen == [("step", "s", 0.5)]


def test_a_plan_is_announced(watcher):
    """Compiling a graph tells the plugins."""
    import iron_core as iron
    from iron_ops_aie import SiLU

    class Small(iron.Graph):
        def body(self, x):
            return SiLU(x)

    Small().compile(x=((8,), np.float32), backend="reference")(np.ones(8, np.float32))
    assert sys.modules["watcher"].seen[0][0] == "plan"


EVERYTHING = """
from iron_core.plugins.hooks import hookimpl
seen = []
@hookimpl
def iron_plan_built(plan): seen.append(("plan", plan.name))
@hookimpl
def iron_image_built(image, plan): seen.append(("image", plan.name))
@hookimpl
def iron_step_timed(step, seconds): seen.append(("step", step.name, seconds > 0))
@hookimpl
def iron_profile(profile): seen.append(("profile", len(profile)))
"""


@pytest.mark.parametrize("backend", ["host", "sim"])
def test_every_event_there_is_is_announced(site, tmp_path, backend):
    """A plan, its image, a profile of tunables that is loaded and entered, and each step of runs that are profiled, once."""
    import iron_core as iron
    from iron_core.backends.run_profile import profiled
    from iron_core.plugins.hooks import Events
    from iron_ops_aie import ReLU, SiLU

    class Small(iron.Graph):
        def body(self, x):
            return ReLU(SiLU(x))

    site.add("iron-watch", entries={"iron.plugins.v1": {"watch": "everything"}}, modules={"everything.py": EVERYTHING})
    profile = iron.Profile()
    profile.add(SiLU, size=64, tile_size=32)
    profile.save(tmp_path / "profile.json")
    with iron.Profile.load(tmp_path / "profile.json"):
        small = Small().compile(x=(4096,), backend=backend)
    (version,) = small.versions.values()
    with profiled(small.backend, {"all": version.load()}) as found:
        small(np.ones(4096, iron.bfloat16))
        small(np.ones(4096, iron.bfloat16))
    assert sys.modules["everything"].seen == [
        *[("profile", 1)] * 2, ("plan", "Small"), ("image", "Small"), ("step", "silu0", True), ("step", "relu0", True),
    ]  # fmt: skip
    events = {name for name in vars(Events) if name.startswith("iron_")}
    assert events == {name for name in vars(sys.modules["everything"]) if name.startswith("iron_")}
    assert [step.name for step, _ in found.step_times()] == ["silu0", "relu0"]


@pytest.mark.parametrize(
    "source",
    [
        "1/0",
        WATCHER.replace('seen.append(("step", step, seconds))', "1/0"),
        "from iron_core.plugins.hooks import hookimpl\n@hookimpl\ndef iron_step_timed(step, no_such_fact): pass",
    ],
    ids=["import", "call", "specification"],
)
def test_a_watcher_that_fails_hurts_nobody(watcher, site, source):
    """At import, in a call or against its specification: it is noted, and the others are told."""
    site.add("iron-bad", entries={"iron.plugins.v1": {"bad": "bad_watcher"}}, modules={"bad_watcher.py": source})
    registry.cache_clear()
    whose = r"plugin of iron-bad 1\.0 \(entry point `bad = bad_watcher`\)"
    with pytest.warns(PluginWarning, match=whose + r" .* and is told nothing more: .*IRON_PLUGINS=-iron-bad\.\Z"):
        announce("iron_step_timed", step="s", seconds=0.5)
    assert sys.modules["watcher"].seen == [("step", "s", 0.5)]
    (bad,) = [r for r in registry().select("plugins") if r.name == "bad"]
    assert bad.status == "failed" and bad.detail


def test_nothing_happens_where_nobody_watches(site, recwarn):
    """An event without plugins makes no manager of them, and warns of nothing."""
    announce("iron_step_timed", step=None, seconds=0.0)
    assert manager.cache_info().currsize == 0 and not recwarn.list
