"""What an author's own code raises by mistake, told as a mistake of the class it belongs to."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb
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
    Iron's own code raises goes on as it is: that is Iron's mistake. deep: unless the author's lines called it, for what is given
    nothing but what Iron checked before.
    """

    __slots__ = ("deep", "part", "thing")

    def __init__(self, thing: Any, part: str, *, deep: bool = False) -> None:
        self.thing = thing
        self.part = part
        self.deep = deep

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, MISTAKES) or isinstance(error, IronError) or trace is None:
            return
        below = list(walk_tb(trace.tb_next))
        theirs = [(frame, line) for frame, line in below if not ours(frame.f_globals.get("__name__", ""))]
        if below and not (theirs and (self.deep or theirs[-1] == below[-1])):
            return
        at = "".join(f" at {Path(frame.f_code.co_filename).name}:{line}" for frame, line in theirs[-1:])
        cls = self.thing if isinstance(self.thing, type) else type(self.thing)
        from iron_core.plugins.registry import registry  # here: declaring operators needs no plugins

        whose = registry().behind(self.thing)
        if theirs and not whose:  # a function that was given to something of ours
            whose = registry().of_module(theirs[-1][0].f_globals.get("__name__", ""))
        of = f" ({', '.join(whose)})" if whose else ""
        raise DeclarationError(f"{cls.__name__}.{self.part}{of} fails{at}: {type(error).__name__}: {error}.") from error


def ours(module: str) -> bool:
    """Is this a module of Iron's distributions?"""
    from iron_core.plugins.record import OWN

    return module.partition(".")[0].replace("_", "-") in OWN
