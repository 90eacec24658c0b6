"""Arguments that a declaration does not take: told by the class whose body gives them, not as a slip of Iron's."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from iron_core.declare.callables import spelled
from iron_core.errors import DeclarationError

_M = TypeVar("_M", bound=Callable[..., Any])

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def declaration(made: _M) -> _M:
    """Of a function or class that class bodies call: DeclarationError for arguments that are not its own."""
    if not isinstance(made, type):
        return _told(made, made.__name__, inspect.signature(made))  # type: ignore[return-value]
    made.__init__ = _told(made.__init__, made.__name__, inspect.signature(made))  # type: ignore[misc]
    return made


def _told(function: Callable[..., Any], name: str, signature: inspect.Signature) -> Callable[..., Any]:
    @functools.wraps(function)
    def told(*given: Any, **keywords: Any) -> Any:
        try:
            return function(*given, **keywords)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from inside: not about these arguments
            own = given[1:] if "self" in inspect.signature(function).parameters else given
            raise _wrong(name, signature, own, keywords) from None

    return told


def _wrong(name: str, signature: inspect.Signature, given: tuple[Any, ...], keywords: dict[str, Any]) -> DeclarationError:
    parameters = signature.parameters
    legal = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)]
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [keyword for keyword in keywords if keyword not in legal and not every]
    if unknown:
        return unknown_keyword(name, unknown[0], legal)
    by_position = [n for n, p in parameters.items() if p.kind in _POSITIONAL]
    if len(given) > len(by_position) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        most = f"at most {len(by_position)} by position ({', '.join(by_position)})" if by_position else "none by position"
        words = f"{most}, the others by keyword{'' if every else f': {_listed(legal)}'}"
        return DeclarationError(f"{in_class()}{name}({', '.join(map(spelled, given))}): {len(given)} given; legal: {words}.")
    there = {*by_position[: len(given)], *keywords}
    missing = [n for n, p in parameters.items() if p.default is p.empty and n in legal and n not in there]
    if missing:
        return DeclarationError(f"{in_class()}{name}(...) needs {' and '.join(missing)}; it takes {', '.join(legal)}.")
    twice = [n for n in by_position[: len(given)] if n in keywords]
    return DeclarationError(f"{in_class()}{name}(...): {_listed(twice)} is given twice, by position and by keyword.")


def unknown_keyword(name: str, keyword: str, legal: Iterable[str]) -> DeclarationError:
    """What a call of `name` with this keyword gets."""
    known = list(legal)
    near = difflib.get_close_matches(keyword, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return DeclarationError(f"{in_class()}{name}({keyword}=...): no keyword of it.{hint} Legal: {_listed(known)}.")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def in_class() -> str:
    """The class whose body is being run, in words in front of a message: "A: "; nothing outside of one."""
    frame = sys._getframe(1)
    while frame is not None:
        if "__qualname__" in frame.f_locals and "__module__" in frame.f_locals:
            return f"{frame.f_locals['__qualname__'].rpartition('.')[2]}: "
        frame = frame.f_back  # type: ignore[assignment]
    return ""
