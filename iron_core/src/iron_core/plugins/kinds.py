"""What an entry point of each group has to name. Looked at when it is loaded, without importing what the group is about."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from iron_core.plugins.foreign import kind_of


def wrong(group: str, thing: Any) -> str:
    """Why `thing` is none of the group's kind: what is wanted and what it is; "" if it is one."""
    check = _CHECKS.get(group)
    return check(thing) if check is not None else ""


def _derives(cls: type, module: str, name: str) -> bool:
    """Is it a class with that base? By name: whoever derives from the base has imported it."""
    return any((c.__module__, c.__qualname__) == (module, name) for c in cls.__mro__)


def _class(module: str, name: str, wanted: str) -> Callable[[Any], str]:
    def check(thing: Any) -> str:
        fits = isinstance(thing, type) and _derives(thing, module, name) and (thing.__module__, thing.__qualname__) != (module, name)
        return "" if fits else f"it names {kind_of(thing)}; {wanted}"

    return check


def _has(methods: dict[str, tuple[str, ...]], wanted: str) -> Callable[[Any], str]:
    """A class or object whose methods, called as they are, take these arguments."""

    def check(thing: Any) -> str:
        for name, arguments in methods.items():
            method = getattr(thing, name, None)
            if isinstance(thing, ModuleType | str | int | float) or not callable(method):
                return f"it names {kind_of(thing)}, which has no {name}({', '.join(arguments)}); {wanted}"
            if not takes(method, len(arguments)):
                return f"it names {kind_of(thing)}, whose {name}{_signature(method)} does not take ({', '.join(arguments)}); {wanted}"
        return ""

    return check


def takes(function: Any, count: int) -> bool:
    """Can it be called with so many positional arguments? True where its signature is not known."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _signature(function: Any) -> str:
    return str(inspect.signature(function))


def _command(thing: Any) -> str:
    if not callable(thing):
        return f"it names {kind_of(thing)}; a command is a function of the rest of the line, main(argv) -> int"
    if not takes(thing, 1):
        return f"it names {kind_of(thing)}{_signature(thing)}, which does not take (argv); a command is a function main(argv) -> int"
    return ""


def _backend(thing: Any) -> str:
    wanted = "a backend is a class of the protocol iron_core.backends.protocol.Backend, made without arguments, or an object of one"
    if isinstance(thing, ModuleType) or not callable(getattr(thing, "probe", None)):
        return f"it names {kind_of(thing)}, which has no probe(); {wanted}"
    if isinstance(thing, type) and not takes(thing, 0):
        return f"it names {kind_of(thing)}, which takes arguments; {wanted}"
    return ""


def _device(thing: Any) -> str:
    if _derives(type(thing), "iron_core.devices", "Device"):
        return ""
    if callable(thing) and not isinstance(thing, type) and takes(thing, 0):
        return ""
    return f"it names {kind_of(thing)}; a device is an iron_core.devices.Device, or a function () -> Device"


def _format(thing: Any) -> str:
    if not isinstance(thing, type) and _derives(type(thing), "iron_core.declare.formats.format", "Format"):
        return ""
    return f"it names {kind_of(thing)}; a format is an instance of iron_core.Format, of PlaneQuant for one"


def _watcher(thing: Any) -> str:
    if thing is None or isinstance(thing, str | bytes | int | float | list | tuple | dict | set) or kind_of(thing).startswith("a function"):
        return f"it names {kind_of(thing)}; a plugin is a module or an object with functions marked by iron_core.plugins.hooks.hookimpl"
    return ""


_CHECKS: dict[str, Callable[[Any], str]] = {
    "operators": _class("iron_core.declare.operator", "Operator", "an operator is a class deriving from iron_core.Operator"),
    "lowerings": _class("iron_core.lowering.protocol", "Lowering", "a lowering is a class deriving from iron_core.Lowering"),
    "backends": _backend,
    "models": _has({"main": ("argv",)}, "a model is a class with summary and main(argv) -> int"),
    "checkpoints": _has(
        {"sniff": ("path", "head"), "open": ("path",)}, "a reader is a class with sniff(path, head) -> bool and open(path)"
    ),
    "tokenizers": _has({"open": ("path", "checkpoint")}, "a tokenizer is a class with open(path, checkpoint)"),
    "devices": _device,
    "formats": _format,
    "commands": _command,
    "tuners": _has({"load": ("path",)}, "a tuner is a class with load(path), which gives what compile(coresident=) takes"),
    "plugins": _watcher,
}
