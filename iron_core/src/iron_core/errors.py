"""One class per kind of mistake. Each names the keyword, the rule, the value and what would be legal.

Every class derives from `IronError` and, where Python has a habit for that kind of mistake, from the
built-in too, so `except ValueError` keeps working. The command line turns any of them into one line
and exit status 2.
"""

from __future__ import annotations


class IronError(Exception):
    """Base of every error Iron raises on a user's mistake."""


class FormatError(IronError, ValueError):
    """A dtype or block format that does not exist, or a tensor that is not whole blocks of one."""


class DeclarationError(IronError, TypeError):
    """An operator or graph class whose body breaks a rule of the vocabulary (found when the class is made)."""


class ParamError(IronError, ValueError):
    """A field's value is missing, unknown, or refused by `validate()`."""


class ShapeError(IronError, ValueError):
    """Operand shapes, ranks or dtypes that disagree with each other or with the declaration."""


class CallError(IronError, TypeError):
    """A call with wrong names, counts or kinds of arguments."""


class TraceError(IronError, TypeError):
    """Something a graph body cannot do: branch on a per-call value, return an input, take `*args`."""


class BoundsError(IronError, IndexError):
    """A per-call index or bound outside its view; raised before the call runs."""


class Unresolvable(IronError, ValueError):
    """No legal choice of a tunable on this device, or one that was given and cannot hold."""


class UnsupportedError(IronError, ValueError):
    """A backend or device cannot take a step as it is; names the rule and the nearest legal values."""


class BackendUnavailable(IronError, RuntimeError):
    """A backend was asked for by name and its probe says why it cannot run here."""


class UnknownName(IronError, LookupError):
    """A name no installed distribution provides; lists near names and plugins that failed to load."""


class PluginError(IronError, ImportError):
    """A known name whose plugin failed to load, is ambiguous, denied, or of another API level."""


class CheckpointError(IronError, ValueError):
    """A weight file that is truncated, malformed, or lacks a tensor or has it in another shape."""


class CacheError(IronError, OSError):
    """The cache folder cannot be used."""


class UsageError(IronError, ValueError):
    """A command-line value that breaks a rule (a prompt longer than the cache, an unknown flag value)."""
