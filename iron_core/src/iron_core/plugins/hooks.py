"""Events a pluggy module of `iron.plugins.v1` may follow. The modules load at the first event, not before."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("iron")
#: Marks a plugin's implementations: `from iron_core.plugins.hooks import hookimpl`.
hookimpl = pluggy.HookimplMarker("iron")


class Events:
    """What iron announces. Results are ignored: a plugin watches, it does not change."""

    @hookspec
    def iron_plan_built(self, plan: Any) -> None:
        """A graph was planned."""

    @hookspec
    def iron_image_built(self, image: Any, plan: Any) -> None:
        """A backend built an image of one version."""

    @hookspec
    def iron_step_timed(self, step: Any, seconds: float) -> None:
        """A step was measured."""

    @hookspec
    def iron_profile(self, profile: Any) -> None:
        """A profile was loaded or entered."""


@lru_cache(maxsize=1)
def manager() -> pluggy.PluginManager:
    """The plugin manager, with every loadable module of `iron.plugins.v1` registered."""
    from iron_core.plugins.registry import registry

    found = pluggy.PluginManager("iron")
    found.add_hookspecs(Events)
    for record in registry().select("plugins"):
        if record.load():
            try:
                found.register(record.object, name=f"{record.distribution}:{record.name}")
            except Exception as error:  # a plugin that does not fit its specification breaks only itself
                record.status, record.detail = "failed", f"{type(error).__name__}: {error}"
    return found


def announce(event: str, **facts: Any) -> None:
    """Tell every plugin; one that raises is noted and hurts nobody."""
    from iron_core.plugins.registry import registry

    if not any(r.status in ("not loaded", "ok") for r in registry().select("plugins")):
        return
    for caller in getattr(manager().hook, event).get_hookimpls():
        try:
            caller.function(*[facts[name] for name in caller.argnames if name in facts])
        except Exception as error:
            for record in registry().select("plugins"):
                if f"{record.distribution}:{record.name}" == caller.plugin_name:
                    record.status, record.detail = "failed", f"{event}: {type(error).__name__}: {error}"
