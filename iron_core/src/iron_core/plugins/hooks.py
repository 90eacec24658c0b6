"""Events a pluggy module of `iron.plugins.v1` may follow. The modules load at the first event, not before."""

from __future__ import annotations

import inspect
import warnings
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pluggy

from iron_core.errors import PluginWarning
from iron_core.plugins import foreign
from iron_core.plugins.record import Record

hookspec = pluggy.HookspecMarker("iron")
#: Marks a plugin's implementations: `from iron_core.plugins.hooks import hookimpl`.
hookimpl = pluggy.HookimplMarker("iron")


class Events:
    """What Iron announces. An implementation takes the facts it names, in any order, and leaves out the others; what it returns is ignored.

    It is called on the thread that announces, which waits for it, and on several at once where several threads compile. Of a graph that is
    being compiled no version can be compiled from within.
    """

    @hookspec
    def iron_plan_built(self, plan: Any) -> None:
        """A version of a graph was planned, and will be compiled next: by `compile()`, or by a call that needs another version. A plan that
        an earlier process kept is announced as one that was made now.

        plan: an `iron_core.image.plan.Plan` of all versions of the graph that there are; the last of `plan.versions` is the new one.
        """

    @hookspec
    def iron_image_built(self, image: Any, plan: Any) -> None:
        """There is an image of the version that `iron_plan_built` told of: the backend compiled it, or an earlier process kept it. Nothing
        of it is loaded yet.

        image: the backend's own, as the `HostImage` of `host`. plan: as before.
        """

    @hookspec
    def iron_step_timed(self, step: Any, seconds: float) -> None:
        """A step of a run that was recorded has its time. Announced for every step once a block of
        `iron_core.backends.run_profile.profiled` ends, which `iron-run MODEL --profile` has around its runs.

        step: has a `name`, "gemv0", and `operands`, buffers by the operand's name. seconds: of one pass, on average.
        """

    @hookspec
    def iron_profile(self, profile: Any) -> None:
        """A profile of tunables was loaded from a file, or entered by `with`: of one that is loaded and then entered both are announced.

        profile: an `iron_core.Profile`, which has a length and gives its entries one after another.
        """


@lru_cache(maxsize=1)
def manager() -> pluggy.PluginManager:
    """The plugin manager, with every module of `iron.plugins.v1` registered that loads and fits the specifications."""
    from iron_core.plugins.registry import registry

    found = pluggy.PluginManager("iron")
    found.add_hookspecs(Events)
    for record in registry().select("plugins"):
        untold = record.status == "not loaded"
        if record.load():
            _register(found, record)
        elif untold and record.status == "failed":
            _tell(record, "does not load", record.detail)
    return found


def _register(found: pluggy.PluginManager, record: Record) -> None:
    try:
        with foreign.guarded():
            found.register(record.object, name=_key(record))
        for caller in found.get_hookcallers(record.object) or []:
            for one in caller.get_hookimpls():
                if one.plugin is record.object:
                    _fits(caller, one)
    except (foreign.Raised, TypeError) as error:
        _forget(found, _key(record))
        _drop(record, "does not fit the events", str(error))


def _fits(caller: Any, one: Any) -> None:
    """TypeError for what pluggy would take and never call."""
    if not caller.has_spec() and not one.optionalhook:
        events = ", ".join(name for name in vars(Events) if name.startswith("iron_"))
        raise TypeError(f"it follows {caller.name}, which is no event. Events: {events}")
    if one.hookwrapper or one.wrapper or inspect.isgeneratorfunction(one.function) or inspect.iscoroutinefunction(one.function):
        raise TypeError(f"its {caller.name} is a wrapper, a generator or a coroutine; a plugin watches with a plain function")


def announce(event: str, **facts: Any) -> None:
    """Tell every plugin. One that fails is reported, in a warning with its distribution, told nothing more, and hurts nobody."""
    from iron_core.plugins.registry import registry

    if not any(r.status in ("not loaded", "ok") for r in registry().select("plugins")):
        return
    told = manager()
    for caller in getattr(told.hook, event).get_hookimpls():
        try:
            with foreign.guarded():
                caller.function(*[facts[name] for name in caller.argnames if name in facts])
        except foreign.Raised as raised:
            _forget(told, caller.plugin_name)
            for record in registry().select("plugins"):
                if _key(record) == caller.plugin_name:
                    _drop(record, f"failed at {event}", f"{raised}{foreign.place(raised.error, record.package)}", raised.error)


def _forget(manager: pluggy.PluginManager, key: str) -> None:
    with suppress(foreign.Raised), foreign.guarded():
        manager.unregister(name=key)


def _key(record: Record) -> str:
    return f"{record.distribution}:{record.name}"


def _drop(record: Record, what: str, why: str, error: BaseException | None = None) -> None:
    record.fail(f"{what}: {why}", error)
    _tell(record, what, why)


def _tell(record: Record, what: str, why: str) -> None:
    text = f"plugin of {record.origin} {what} and is told nothing more: {why}. {record.fix}."
    warnings.warn(text, PluginWarning, stacklevel=2)
