"""One class per kind of mistake. Each names the keyword, the rule, the value and what would be legal.

Every class derives from `IronError` and, where Python has a habit for that kind of mistake, from the
built-in too, so `except ValueError` keeps working. The command line turns any of them into one line
and exit status 2.
"""

from __future__ import annotations

#: Characters of a message about a file.
LONGEST = 300


def printable(text: object, longest: int | None = None) -> str:
    """A text on one line, fit for a terminal: whatever does not print (controls, escape sequences, marks that turn the
    direction of writing, halves of characters) is written as its escape, and what is longer than `longest` characters
    loses its middle."""
    shown = str(text)
    if longest is not None and len(shown) > longest:
        shown = _cut(shown, longest)  # before what may be gigabytes is looked at character by character
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
        shown = _cut(shown, longest) if longest is not None else shown
    return shown


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    last = (longest - 5) * 2 // 5
    return f"{text[: longest - 5 - last]} ... {text[len(text) - last :]}"


def sentence(text: object) -> str:
    """A text that ends as a sentence does."""
    shown = str(text)
    return shown if shown.endswith((".", "!", "?")) else f"{shown}."


class IronError(Exception):
    """Base of every error Iron raises on a user's mistake."""


class FormatError(IronError, ValueError):
    """A dtype or block format that does not exist, or a tensor that is not whole blocks of one.

    Raises:  iron.weight(np.ones(4))  # float64
    Fix:     iron.weight(np.ones(4, np.float32))
    """


class DeclarationError(IronError, TypeError):
    """What an author wrote breaks a rule of the vocabulary: a class of an operator or graph (found when it is made), or a part of
    one, or of a backend, that fails or gives something else (found when it is first used; the message has the line).

    Raises:  def body(self, *xs): ...
    Fix:     def body(self, x, y=None): ...
    """


class ParamError(IronError, ValueError):
    """A field's value is missing, unknown, or refused by `validate()`.

    Raises:  SiLU(size=-4)
    Fix:     SiLU(size=4)
    """


class ShapeError(IronError, ValueError):
    """Operand shapes, ranks or dtypes that disagree with each other or with the declaration.

    Raises:  iron.state((4, 0))
    Fix:     iron.state((4, 1))
    """


class CallError(IronError, TypeError):
    """A call with wrong names, counts or kinds of arguments.

    Raises:  project(x)  # body(self, x, *, n: Scratchpad[np.int32])
    Fix:     project(x, n=3)
    """


class TraceError(IronError, TypeError):
    """Something a graph body cannot do: branch on a per-call value, return an input, take `*args`.

    Raises:  return x + y
    Fix:     return ElementwiseAdd(x, y)
    """


class BoundsError(IronError, IndexError):
    """A per-call index or bound outside its view; raised before the call runs.

    Raises:  project(x, n=17)  # x has 16 rows
    Fix:     project(x, n=16)
    """


class NotFinite(IronError, ArithmeticError):
    """NaN or infinity where a step must have numbers to go on: a loop whose logits are not finite.

    Raises:  compiled.loop(8, token=5, position=0)  # row 5 of the embedding holds NaN
    Fix:     mend the weights, or compile for a dtype they do not overflow
    """


class Unresolvable(IronError, ValueError):
    """An operator has no array on this device: it declares none, its fields, tunables or bounded members break a rule of the
    array (a dtype it does not compute on, a tile that does not divide), or what the array needs is not there.

    Of one operator, by whatever resolves, folds or builds it; a compile that meets one is an `UnsupportedError`.

    Raises:  Op(size=8).resolved("npu2")  # a tunable with no default and no rule
    Fix:     Op(size=8, tile=4).resolved("npu2")
    """


class UnsupportedError(IronError, ValueError):
    """A backend does not do what a compile or a call asks of it: a step, a plan, a device, an image or another option; names the
    rule and what would be legal.

    Raises:  compile(x=(4, 8), backend="null", dev="host", image="elf")
    Fix:     compile(x=(4, 8), backend="null", dev="npu2", image="elf")
    """


class BackendUnavailable(IronError, RuntimeError):
    """A backend was asked for by name and its probe says why it cannot run here.

    Raises:  compile(x=(4, 8), dev="npu2")  # no npu backend here
    Fix:     compile(x=(4, 8), dev="npu2", backend="null")
    """


class UnknownName(IronError, LookupError):
    """A name no installed distribution provides; lists near names and plugins that failed to load.

    Raises:  compile(x=(4, 8), backend="hots")
    Fix:     compile(x=(4, 8), backend="host")
    """


class PluginError(IronError, ImportError):
    """A known name whose plugin failed to load, is ambiguous, denied, or of another API level.

    Raises:  iron operators run fast.Conv  # its module does not import
    Fix:     IRON_PLUGINS=-iron-fast, or mend the plugin
    """


class DeviationError(IronError, AssertionError):
    """An output element is further from the exact result than the contract allows.

    Raises:  op.check(outputs, exact, *inputs)  # outputs of an array that rounds at another place
    Fix:     round where the contract says, or give the operator the tolerance it needs
    """


class PluginWarning(UserWarning):
    """A plugin that is passed over: what it did, and whose it is."""


class CheckpointError(IronError, ValueError):
    """A weight file that is truncated, malformed, or lacks a tensor or has it in another shape.

    What a file holds is somebody else's: the message is one printable line of at most `LONGEST` characters, whatever is
    quoted in it.

    Raises:  iron-run llama --checkpoint half-a-download.gguf
    Fix:     download the file again
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message, LONGEST))


class CacheError(IronError, OSError):
    """The cache folder cannot be used: it is full, read-only, another user's, or not known.

    Raises:  env -u HOME iron-run ...  # as a user without a home folder
    Fix:     NPU_CACHE_HOME=a folder you can write to
    """


class CacheHomeError(CacheError):
    """NPU_CACHE_HOME names what can be no folder.

    Raises:  NPU_CACHE_HOME=/etc/passwd iron-run ...
    Fix:     NPU_CACHE_HOME=a folder you can write to
    """


class OutOfMemory(IronError, MemoryError):
    """The system gives no memory for something. `what` names it, as "state k"; `nbytes` were asked for.

    Raises:  iron.state((1 << 40, 64))  # in a graph that is called
    Fix:     iron.state((1 << 12, 64))
    """

    def __init__(self, message: str, what: str = "", nbytes: int = 0) -> None:
        super().__init__(message)
        self.what = what
        self.nbytes = nbytes


class UsageError(IronError, ValueError):
    """A command-line value that breaks a rule (a prompt longer than the cache, an unknown flag value).

    Raises:  iron-run llama --num-tokens -1 ...
    Fix:     iron-run llama --num-tokens 40 ...
    """
