"""The stub of a lazy catalog: what type checkers and editors see of a pack whose operators load on first use.

`python -m iron_core.declare.stub PACKAGE` writes `PACKAGE/__init__.pyi`. A pack is a package whose `__all__` names its
operators. Each gets two overloads of `__new__`: construction by keyword, and, where it reads any, the call on tensors in a graph's body.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

from iron_core.declare.field import AutoField, DTypeField, Field
from iron_core.declare.methods import is_abstract
from iron_core.declare.operator import Operator
from iron_core.files import write_whole

_HEAD = '''"""What a type checker sees of `{package}`. Made by `python -m iron_core.declare.stub {package}`; do not edit."""

from typing import Any, TypeAlias, overload

import numpy as np
{imports}

_Tensor: TypeAlias = Handle | Weight | State | np.ndarray[Any, Any] | PackedArray
_PerCall: TypeAlias = Any  # a per-call value of the body, or an expression in one

__all__ = [{names}]
'''
_USES = {
    ("iron_core.declare.formats", "PackedArray"),
    ("iron_core.declare.operand", "BoundOperand"),
    ("iron_core.graph.handle", "Handle"),
    ("iron_core.graph.weight", "State"),
    ("iron_core.graph.weight", "Weight"),
}
_LINE = 120


def stub(package: str) -> str:
    """The text of `package/__init__.pyi`."""
    module = import_module(package)
    classes = [getattr(module, name) for name in sorted(module.__all__)]
    bases = {(base.__module__, base.__name__) for cls in classes for base in cls.__bases__}
    imports = "\n".join(f"from {where} import {name}" for where, name in sorted(_USES | bases))
    names = ", ".join(f'"{cls.__name__}"' for cls in classes)
    head = _HEAD.format(package=package, imports=imports, names=names)
    return "\n".join([head, *(_operator(cls) for cls in classes)])


def _operator(cls: type[Operator]) -> str:
    lines = [f"class {cls.__name__}({', '.join(base.__name__ for base in cls.__bases__)}):", *_docstring(cls)]
    for name, member in vars(cls).items():
        if isinstance(member, Field):
            lines.append(f"    {name}: {_type(cls, name)}")
        elif name in cls.operands:
            lines.append(f"    {name}: BoundOperand")
    lines += _filled(cls)
    made = _signature(_construction(cls), cls.__name__)
    if not any(operand.when is None for operand in cls.inputs):
        # A class is called on tensors; without any, an instance is called in a body.
        return "\n".join([*lines, *made, ""])
    overload = "    @overload"
    return "\n".join([*lines, overload, *made, overload, *_signature(_call(cls), _result(cls)), ""])


def _filled(cls: type[Operator]) -> list[str]:
    """The methods that a base leaves open and the class has: without them a type checker takes it for a base itself."""
    lines = []
    for name, member in vars(cls).items():
        if any(is_abstract(vars(base).get(name)) for base in cls.__mro__[1:]):
            taken = [_untyped(p) for p in inspect.signature(member).parameters.values()]
            lines.append(f"    def {name}({', '.join(taken)}) -> Any: ...")
    return lines


def _untyped(parameter: inspect.Parameter) -> str:
    stars = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
    if parameter.name == "self":
        return "self"
    return f"{stars}{parameter.name}: Any{'' if parameter.default is parameter.empty else ' = ...'}"


def _docstring(cls: type) -> list[str]:
    text = inspect.cleandoc(cls.__doc__ or cls.__name__).splitlines()
    if len(text) == 1:
        return [f'    """{text[0]}"""']
    return [f'    """{text[0]}', *(f"    {line}".rstrip() for line in text[1:]), '    """']


def _type(cls: type[Operator], name: str) -> str:
    """A field's type: the annotation of the class that declares it, as written."""
    for base in cls.__mro__:
        if name in vars(base):
            return str(vars(base).get("__annotations__", {}).get(name, "Any"))
    return "Any"


def _construction(cls: type[Operator]) -> list[str]:
    required: list[str] = []
    optional: list[str] = []
    for name, field in cls.fields.items():
        if isinstance(field, AutoField) and field.derived:
            continue
        given = f"{name}: {_type(cls, name)}"
        (required if field.required else optional).append(given if field.required else f"{given} = ...")
    return ["*", *required, *optional]


def _call(cls: type[Operator]) -> list[str]:
    """Inputs, then outputs, by position; optional inputs, fields and per-call numbers by keyword."""
    positional = [f"{o.name}: _Tensor" for o in cls.inputs if o.when is None]
    positional += [f"{o.name}: Handle | State = ..." for o in cls.outputs if o.role == "out"]
    keywords = [f"{o.name}: _Tensor | None = ..." for o in cls.inputs if o.when is not None]
    views = {member for m in cls.accept_views.values() for member in (m.offset, m.valid)}
    keywords += [f"{name}: _PerCall = ..." for name in (*cls.extents, *cls.scratchpads) if name not in views]
    for name, field in cls.fields.items():
        if not (isinstance(field, AutoField) and field.derived):
            keywords.append(f"{name}: {_type(cls, name)} = ...")
    if "dtype" not in cls.fields and any(isinstance(o.dtype, DTypeField) for o in cls.outputs if o.role == "out"):
        keywords.append("dtype: Any = ...")
    return [*positional, "/", "*", *keywords]


def _result(cls: type[Operator]) -> str:
    handles = ["Handle"] * len(cls.outputs)
    return handles[0] if len(handles) == 1 else f"tuple[{', '.join(handles)}]"


def _signature(parameters: list[str], result: str) -> list[str]:
    """mypy asks that `__new__` return an instance of its class; a recorded call returns handles."""
    ignore = "" if "Handle" not in result else "  # type: ignore[misc]"
    start, end = "    def __new__(", f") -> {result}: ..."
    one = f"{start}{', '.join(['cls', *parameters])}{end}{ignore}"
    if len(one) <= _LINE:
        return [one]
    return [f"    def __new__({ignore}", "        cls,", *(f"        {p}," for p in parameters), f"    {end}"]


def write(package: str) -> Path:
    """Write the stub beside the package's `__init__.py`; returns its path."""
    place = Path(str(import_module(package).__file__)).with_suffix(".pyi")
    write_whole(place, stub(package))
    return place


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: python -m iron_core.declare.stub PACKAGE\n")
        return 2
    print(write(argv[0]))
    return 0


__all__ = ["main", "stub", "write"]

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
