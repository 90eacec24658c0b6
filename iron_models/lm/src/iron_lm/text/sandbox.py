"""The program that renders a chat template: `template.py` runs it in a process of its own, with little CPU and memory.

A template is somebody else's program. It sees the conversation and nothing of Python, folds nothing while it is compiled,
makes strings and lists of bounded length, and takes what CPU and memory the process is given; where that ends, so does the
process. What it renders is what transformers renders. Nothing of Iron is imported here: a start takes a tenth of a second.

One request a line on standard input, one reply a line on standard output, both JSON. {"source": TEXT} comes first and
compiles; {"values": {...}} renders. A reply is {"text": TEXT}, or {"why": KIND, "said": TEXT} with KIND `syntax`, `refuses`
(the template does not want this conversation), `unsafe`, `spent` (its budget) or `fails`.
"""

from __future__ import annotations

import functools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

try:
    import resource
except ImportError:  # a system without limits: what runs for too long is ended by who started it
    resource = None  # type: ignore[assignment]

#: Characters a string may have; an item of a list counts as 64.
LENGTH = 4_000_000
#: What a filter may be told to count to: digits, columns, items of a row.
_COUNT = 1 << 10
_COUNTING = {"batch": "linecount", "round": "precision", "slice": "slices"}
#: Characters of an error's text.
_SAID = 200

_FILTERS = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int", "items", "last",
    "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "slice",
    "sort", "string", "sum", "title", "trim", "unique", "upper",
)  # fmt: skip
#: Methods of strings and containers that make nothing much larger than what they are given.
_METHODS = frozenset(
    "capitalize count endswith find get index isalnum isalpha isdigit islower isspace isupper items keys lower lstrip rfind rsplit "
    "rstrip split splitlines startswith strip title upper values".split()
)


class Spent(SecurityError):
    """A template asks for more than its budget."""


class _Generation(Extension):
    """`{% generation %}` marks an assistant's text for training; rendering passes it through."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Generator(CodeGenerator):
    """`a ~ b` goes through the sandbox too; nothing is computed while a template is compiled."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, (nodes.TemplateData, nodes.Const)):
            raise nodes.Impossible()
        return super()._output_child_to_const(node, frame, finalize)


def _bounded(length: float) -> None:
    if length > LENGTH:
        raise Spent(f"it makes something longer than {LENGTH} characters")


def _size(value: Any) -> int:
    """Characters of a text; for a list what its items may take; a number itself, as often as it repeats what it multiplies."""
    return len(value) if hasattr(value, "__len__") else abs(int(value))


def _concat(parts: Iterable[str]) -> str:
    pieces, total = [], 0
    for part in parts:
        total += len(part)
        _bounded(total)
        pieces.append(part)
    return "".join(pieces)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Nothing of Python but arithmetic, strings and lists; nothing that grows out of hand."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "*", "**", "%"))
    concat = staticmethod(_concat)  # type: ignore[assignment]

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if operator == "**" or (operator == "%" and not numbers):
            raise SecurityError(f"it computes {operator}")
        if numbers:
            _bounded(math.log2(abs(left) + 2) + math.log2(abs(right) + 2))
        elif operator == "+":
            _bounded(_size(left) + _size(right))
        else:
            listed = 1 if isinstance(left, str) or isinstance(right, str) else 64  # a list's items are larger than characters
            _bounded(_size(left) * _size(right) * listed)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (str, bytes, list, tuple, Mapping)) and callable(value):
            return attr in _METHODS or (attr in ("replace", "join") and isinstance(obj, str))
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, fn: Any, *args: Any, **keywords: Any) -> Any:  # type: ignore[override]
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, str):  # what jinja passes along for context functions is none of a string's
            keywords = {name: value for name, value in keywords.items() if name not in ("_loop_vars", "_block_vars")}
        if isinstance(owner, str) and getattr(fn, "__name__", "") == "replace":
            return _replace(owner, *args, **keywords)
        if isinstance(owner, str) and getattr(fn, "__name__", "") == "join":
            return _join(args[0], owner)
        return super().call(context, fn, *args, **keywords)


def _replace(text: Any, old: str, new: str, count: int = -1) -> str:
    text = str(text)
    _bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def _join(values: Any, d: str = "", attribute: Any = None) -> str:
    separated = False

    def parts() -> Iterable[str]:
        nonlocal separated
        for v in values:
            if separated:
                yield str(d)
            separated = True
            yield str(v if attribute is None else (v.get(attribute) if isinstance(v, Mapping) else ""))

    return _concat(parts())


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    if indent is not None and not 0 <= int(indent) <= 16:
        raise SecurityError(f"it indents by {indent}")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return _concat(encoder.iterencode(value))


def _guarded(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of jinja2 whose counts and result are bounded."""

    @functools.wraps(filter)
    def call(*args: Any, **keywords: Any) -> Any:
        if name in _COUNTING:
            count = args[1] if len(args) > 1 else keywords.get(_COUNTING[name], 0)
            if isinstance(count, (int, float)) and not abs(count) <= _COUNT:
                raise Spent(f"its filter {name} counts to more than {_COUNT}")
        found = filter(*args, **keywords)
        if isinstance(found, (str, list, tuple)):
            _bounded(len(found) if isinstance(found, str) else 64 * len(found))
        return found

    return call


def _raise(message: Any) -> None:
    raise TemplateError(str(message)[:LENGTH])


def _now(format: str) -> str:
    _bounded(16 * len(format))
    return datetime.now().strftime(format)


def environment() -> _Sandbox:
    """The names, filters and tests that a chat template has."""
    sandbox = _Sandbox(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation])
    own = {"tojson": _tojson, "replace": _replace, "join": _join}
    sandbox.filters = {name: _guarded(name, sandbox.filters[name]) for name in _FILTERS} | own
    sandbox.globals = {name: sandbox.globals[name] for name in ("range", "dict", "namespace")}
    sandbox.globals.update(raise_exception=_raise, strftime_now=_now)
    return sandbox


# -- the process ----------------------------------------------------------------------------------


def _said(error: BaseException) -> str:
    return (str(error)[: 2 * _SAID].splitlines() or [""])[0][:_SAID].rstrip(".") or type(error).__name__


def _answer(template: Any, request: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """(the compiled template, the reply) to a request."""
    compiling = "source" in request
    try:
        if compiling:
            return environment().from_string(request["source"]), {"text": ""}
        return template, {"text": _concat(template.generate(request["values"]))}
    except Spent as error:
        return template, {"why": "spent", "said": _said(error)}
    except (MemoryError, RecursionError) as error:
        return template, {"why": "spent", "said": "memory" if isinstance(error, MemoryError) else "it calls itself, or nests, too deeply"}
    except SecurityError as error:
        return template, {"why": "unsafe", "said": _said(error)}
    except TemplateError as error:
        return template, {"why": "syntax" if compiling else "refuses", "said": _said(error)}
    except Exception as error:
        return template, {"why": "syntax" if compiling else "fails", "said": f"{type(error).__name__}: {_said(error)}"}


def _limit(memory: int) -> None:
    """From here on, so many bytes of address space beyond what is held, no file, no other process."""
    if resource is None:
        return
    try:
        with open("/proc/self/statm", encoding="utf-8") as file:
            held = int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        held = 1 << 30  # what a process begins with is not told: programs and libraries, once each
    for kind, most in (("RLIMIT_AS", held + memory), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0), ("RLIMIT_NPROC", 0)):
        if hasattr(resource, kind):
            hard = resource.getrlimit(getattr(resource, kind))[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(getattr(resource, kind), (most, most))


def serve(seconds: float, memory: int) -> None:
    """Answer requests until the input ends. A request may take `seconds` of CPU; all together `memory` bytes."""
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, wherever in C it is
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF,))
    _limit(memory)
    template: Any = None
    for line in sys.stdin.buffer:
        request = json.loads(line.decode("utf-8", "surrogatepass"))
        if timed:
            signal.setitimer(signal.ITIMER_PROF, seconds)
        template, reply = _answer(template, request)
        answer = json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        if reply.get("why") == "spent":
            return  # what is left of this process is not relied on


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]))
