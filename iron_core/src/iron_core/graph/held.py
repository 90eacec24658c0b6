"""What a graph instance holds: its weights and states by attribute path, whatever they lie in."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from iron_core.errors import TraceError
from iron_core.graph.weight import State, Weight, is_array


def holds(item: Any) -> bool:
    """Is this a weight, a state, or something that a body may find one in?"""
    return bool(held(item))


def held(graph: Any) -> dict[int, tuple[str, Any]]:
    """Storage key -> (attribute path, object), for every weight and state `graph` holds.

    Public attributes are walked through lists, tuples, deques, dicts, arrays of objects, namespaces, graphs, and instances of
    classes of any kind; after these what their classes have, and what functions among them and methods close over (but for
    graphs, which are named by their class). The first path to an object names it (`layers.3.q`). TraceError for one that only
    a set has: it has no order to name it by. One that lies elsewhere, as in a function's defaults, is a tensor of a body that
    takes it all the same; a trace numbers it (`w0`), and the graph's plans are not kept for another start.
    """
    found: dict[int, tuple[str, Any]] = {}
    seen: set[int] = set()
    classes: set[type] = set()  # whose own parts are looked at: those of another instance are the same

    left = [("", graph)]  # what is still to look at, the next one last: attributes may be nested however deep
    behind: list[tuple[str, Any]] = []  # what is not an instance's own: it is looked at when all else is named
    own = True
    while left or behind:
        if not left:
            left, behind, own = behind[::-1], [], False
        path, item = left.pop()
        if isinstance(item, (str, int, float, bool, type(None))):
            continue
        if isinstance(item, (Weight, State)) or (is_array(item) and not _of_objects(item)):
            key, name = (id(item), None) if is_array(item) else (item.key, item.name)
            if key not in found:
                found[key] = (name or _ordered(path, graph), item)
        elif id(item) not in seen and (own or _OF_SET in path or not getattr(type(item), "is_iron_graph", False)):
            seen.add(id(item))
            left += _named(path, _parts(item))[::-1]
            behind += _named(path, _shared(item, classes))
    return found


def names(graph: Any) -> dict[int, str]:
    """Storage key -> attribute path, for every weight and state `graph` holds; see `held`."""
    return {key: name for key, (name, _) in held(graph).items()}


#: What an element of a set is called on the way.
_OF_SET = "\0"


def _ordered(path: str, graph: Any) -> str:
    """A path that has names all the way."""
    before, of_set, _ = path.partition(_OF_SET)
    if of_set:
        where = f"{type(graph).__name__}.{before.rstrip('.')}"
        raise TraceError(f"{where} is a set, whose weights and states have no order to be named by; legal: a list, or weights with name=.")
    return path


def _named(path: str, parts: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(f"{path}.{name}" if path else name, part) for name, part in parts if not name.startswith("_")]


def _parts(item: Any) -> Iterator[tuple[str, Any]]:
    """Named parts of an item's own; nothing of one that has none."""
    if isinstance(item, (dict, types.MappingProxyType)):
        yield from ((str(k), v) for k, v in item.items())
    elif isinstance(item, (list, tuple, deque)):
        yield from ((str(i), v) for i, v in enumerate(item))
    elif _of_objects(item):
        yield from ((".".join(map(str, at)), v) for at, v in np.ndenumerate(np.atleast_1d(item)))
    elif isinstance(item, types.SimpleNamespace) or getattr(type(item), "is_iron_graph", False):
        yield from vars(item).items()
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        yield from ((f.name, getattr(item, f.name, None)) for f in dataclasses.fields(item))
    elif attrs.has(type(item)):
        yield from ((f.name, getattr(item, f.name, None)) for f in attrs.fields(type(item)))
    elif _is_instance(item):
        for cls in type(item).__mro__:
            declared = vars(cls).get("__slots__", ())
            for name in (declared,) if isinstance(declared, str) else declared:
                if name not in ("__dict__", "__weakref__") and not name.startswith("_") and _is_set(cls, name, item):
                    yield name, getattr(item, name)
        yield from getattr(item, "__dict__", {}).items()


def _shared(item: Any, classes: set[type]) -> Iterator[tuple[str, Any]]:
    """Named parts that are not an item's own: of an instance what its classes have, but for these, to which they are added; of a
    function what it closes over, of a set whatever is in it."""
    if isinstance(item, types.MethodType):
        yield from _parts(item.__self__)
    elif isinstance(item, (set, frozenset)):
        yield from ((_OF_SET, element) for element in item)
    elif isinstance(item, functools.partial):
        yield from (*_shared(item.func, classes), *_parts(item.args), *_parts(item.keywords))
    elif isinstance(item, types.FunctionType):
        for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
            if cell != types.CellType():  # one that is filled
                yield name, cell.cell_contents
    elif _is_instance(item):
        for cls in type(item).__mro__:
            if cls not in classes and not _is_foreign(cls):
                classes.add(cls)
                yield from ((n, p.__func__ if isinstance(p, (staticmethod, classmethod)) else p) for n, p in vars(cls).items())


def _is_set(cls: type, slot: str, item: Any) -> bool:
    """Does a slot hold something? Its descriptor is asked: an item's own `__getattr__` may raise whatever it likes."""
    try:
        vars(cls)[slot].__get__(item, cls)
    except AttributeError:
        return False
    return True


def _of_objects(item: Any) -> bool:
    """Is it an array whose elements are Python's objects?"""
    return isinstance(item, np.ndarray) and item.dtype == object


def _is_instance(item: Any) -> bool:
    """Is it an instance of an ordinary class: none of Python's own, of numpy or of Iron's core, no function, class or module?

    What such an instance holds is the graph's, as `self.layers[0].q`.
    """
    return not isinstance(item, (type, types.ModuleType, int, float, complex, str, bytes)) and not (
        inspect.isroutine(item) or _is_foreign(type(item))
    )


def _is_foreign(cls: type) -> bool:
    top = cls.__module__.partition(".")[0]
    return top in sys.stdlib_module_names or top in ("numpy", "ml_dtypes", "iron_core")
