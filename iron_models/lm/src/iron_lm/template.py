"""Chat templates: the Jinja text a checkpoint brings, rendered in a sandbox that bounds what it may do.

A template is somebody else's program. It sees the conversation and nothing of Python, runs for a bounded number of lines, and
makes strings of bounded length. What it renders is what transformers renders.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from iron_core.errors import CheckpointError, UsageError
from iron_lm.special_tokens import Companions

#: Lines a rendering may run, and characters a string it makes may have.
LINES = 200_000
LENGTH = 4_000_000
#: Characters of a template.
SOURCE = 1_000_000

_FILTERS = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "slice",
    "sort", "string", "sum", "title", "trim", "unique", "upper",
)  # fmt: skip
#: Methods of strings and containers that make nothing much larger than what they are given.
_METHODS = frozenset(
    "capitalize count endswith find get index isalnum isalpha isdigit islower isspace isupper items keys lower lstrip rfind rsplit "
    "rstrip split splitlines startswith strip title upper values".split()
)


class _Generation(Extension):
    """`{% generation %}` marks an assistant's text for training; rendering passes it through."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Generator(CodeGenerator):
    """`a ~ b` goes through the sandbox too."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")


def _bounded(length: float) -> None:
    if length > LENGTH:
        raise SecurityError("it makes too long a string")


def _concat(parts: Iterable[str]) -> str:
    pieces = list(parts)
    _bounded(sum(map(len, pieces)))
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


def _size(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else abs(int(value))


def _join(values: Any, d: str = "", attribute: Any = None) -> str:
    parts = [str(v if attribute is None else (v.get(attribute) if isinstance(v, Mapping) else "")) for v in values]
    _bounded(sum(map(len, parts)) + len(d) * len(parts))
    return str(d).join(parts)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    if indent is not None and not 0 <= int(indent) <= 16:
        raise SecurityError(f"it indents by {indent}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


class ChatTemplate:
    """A conversation as the text a model was trained on.

    source: the Jinja text. tokens: special tokens it names (`bos_token`, `eos_token`, ...). where: the file, for messages.
    CheckpointError for a template that is none.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, where: str = "the checkpoint") -> None:
        self.where = where
        self.tokens = dict(tokens or {})
        if len(source) > SOURCE:
            raise CheckpointError(f"{where}: its chat template has {len(source)} characters; legal: up to {SOURCE}.")
        sandbox = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        sandbox.filters = {name: sandbox.filters[name] for name in _FILTERS} | {"tojson": _tojson, "replace": _replace, "join": _join}
        sandbox.globals = {name: sandbox.globals[name] for name in ("range", "dict", "namespace")}
        sandbox.globals.update(raise_exception=_raise, strftime_now=_now)
        try:
            self._template = sandbox.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise CheckpointError(f"{where}: its chat template does not compile ({_first_line(error)}).") from None

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **values: Any) -> str:
        """The text of `messages` (each `role` and `content`), up to where the assistant begins.

        UsageError where the template refuses the conversation; CheckpointError where it breaks its bounds.
        """
        given = dict(self.tokens, messages=list(messages), add_generation_prompt=add_generation_prompt, tools=None, documents=None)
        try:
            with _Bounded():
                return _concat(self._template.generate(given | values))
        except SecurityError as error:
            raise CheckpointError(f"{self.where}: its chat template is not safe to run ({_first_line(error)}).") from None
        except TemplateError as error:
            raise UsageError(f"the model's chat template refuses this conversation: {_first_line(error)}.") from None
        except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{self.where}: its chat template fails ({type(error).__name__}: {_first_line(error)}).") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


class _Bounded:
    """Counts the template's lines while it renders."""

    def __enter__(self) -> None:
        self.lines = 0
        self.before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self.before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename == "<template>" else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += 1
        if self.lines > LINES:
            raise SecurityError(f"it runs for more than {LINES} lines")
        return self._line


def find_template(checkpoint: Any, tokenizer: Any, beside: Path | None = None) -> ChatTemplate | None:
    """The chat template of a checkpoint: a GGUF's own, or the folder's `chat_template.jinja` or `tokenizer_config.json`.

    beside: the tokenizer's file or folder, where it was given apart. None where there is none; CheckpointError for a bad one.
    """
    if checkpoint is not None and checkpoint.kind == "gguf" and beside is None:
        metadata = checkpoint.metadata
        source = metadata.get("tokenizer.chat_template")
        names = {f"{kind}_token": metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos", "pad", "unk")}
        tokens = {name: tokenizer.token(id) or "" for name, id in names.items() if isinstance(id, int)}
        return ChatTemplate(str(source), tokens, str(checkpoint.path)) if source else None
    place = beside or (checkpoint.path if checkpoint is not None else None)
    if place is None:
        return None
    folder = place if place.is_dir() else place.parent
    companions = Companions(folder)
    config, tokens = companions.config, companions.named
    file = folder / "chat_template.jinja"
    source = _text(file) if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default") or next(iter(named.values()), None)
    return ChatTemplate(str(source), tokens, str(folder)) if source else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file}: not UTF-8 at byte {error.start}.") from None
