"""What an author's own code raises by mistake, told as a mistake of the class it belongs to."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from iron_core.errors import DeclarationError, IronError

#: What a slip of the author's raises: a name that is none, an argument too many, a value of another kind, a number that another
#: cannot be divided by. What the system refuses (memory, a file) is nobody's slip, and an exception of the author's own is meant.
MISTAKES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError, RecursionError),
    *(TypeError, ValueError),
)


class authored:
    """Around a call of a method or rule that a subclass defines: `with authored(op, "resolve()"):`.

    What its author's lines raise, or its signature, is a DeclarationError that names the class, the part and the line. What
    Iron's own code raises goes on as it is: that is Iron's mistake.
    """

    __slots__ = ("part", "thing")

    def __init__(self, thing: Any, part: str) -> None:
        self.thing = thing
        self.part = part

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, MISTAKES) or isinstance(error, IronError) or trace is None:
            return
        last = trace
        while last.tb_next is not None:
            last = last.tb_next
        if last is not trace and _ours(last.tb_frame.f_globals.get("__name__", "")):
            return
        at = "" if last is trace else f" at {Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"
        cls = self.thing if isinstance(self.thing, type) else type(self.thing)
        raise DeclarationError(f"{cls.__name__}.{self.part} fails{at}: {type(error).__name__}: {error}.") from error


def _ours(module: str) -> bool:
    """Is this a module of Iron's distributions?"""
    from iron_core.plugins.record import OWN  # here: declaring operators needs no plugins

    return module.partition(".")[0].replace("_", "-") in OWN
