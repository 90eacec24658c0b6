"""The stub of a lazy catalog: what type checkers and editors see of a pack whose operators load on first use.

`python -m iron_core.declare.stub PACKAGE` writes `PACKAGE/__init__.pyi`: beside the package's source, and of what is installed, whose
folder is left as it is, into `typings` in the working folder. A pack is a package whose `__all__` names its operators. Each gets two
overloads of `__new__`: construction by keyword, and, where it reads any tensor, the call on tensors in a graph's body.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import sysconfig
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
_PerCall: TypeAlias = int | np.integer[Any] | Affine  # a per-call value of the body is an Affine, as an expression of such is

__all__ = [{names}]
'''
_USES = {
    ("iron_core.declare.affine", "Affine"),
    ("iron_core.declare.formats", "PackedArray"),
    ("iron_core.declare.operand", "BoundOperand"),
    ("iron_core.graph.handle", "Handle"),
    ("iron_core.graph.weight", "State"),
    ("iron_core.graph.weight", "Weight"),
}
_LINE = 120
#: Where the stub of what is installed is put, in the working folder.
TYPINGS = "typings"


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
    lines += _own(cls)
    made = _signature(_construction(cls), cls.__name__)
    if not any(operand.when is None for operand in cls.inputs):
        # A class is called on tensors; without any, an instance is called in a body.
        return "\n".join([*lines, *made, ""])
    overload = "    @overload"
    return "\n".join([*lines, overload, *made, overload, *_signature(_call(cls), _result(cls)), ""])


def _own(cls: type[Operator]) -> list[str]:
    """The methods of its own that anybody may call, and those that a base leaves open and the class has: without them a type checker
    takes it for a base itself."""
    lines = []
    for name, member in vars(cls).items():
        inherited = [vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)]
        if name.startswith("_") or (inherited and not any(map(is_abstract, inherited))):
            continue
        if isinstance(member, property):
            lines += ["    @property", f"    def {name}(self) -> Any: ..."]
        elif inspect.isfunction(inspect.unwrap(getattr(member, "__func__", member))):
            kind = [f"    @{type(member).__name__}"] if isinstance(member, (classmethod, staticmethod)) else []
            taken = list(inspect.signature(getattr(member, "__func__", member)).parameters.values())
            words = _parameters(taken, bound=not isinstance(member, staticmethod))
            lines += [*kind, f"    def {name}({', '.join(words)}) -> Any: ..."]
    return lines


def _parameters(taken: list[inspect.Parameter], *, bound: bool) -> list[str]:
    """How parameters are written, of any type; the first one is the object's where a method is bound."""
    words = []
    for number, one in enumerate(taken):
        if one.kind is one.KEYWORD_ONLY and not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in taken[:number]):
            words.append("*")
        stars = "*" * ((one.kind is one.VAR_POSITIONAL) + 2 * (one.kind is one.VAR_KEYWORD))
        if bound and not number:
            words.append(one.name)
        else:
            words.append(f"{stars}{one.name}: Any{'' if one.default is one.empty else ' = ...'}")
        if one.kind is one.POSITIONAL_ONLY and not any(p.kind is p.POSITIONAL_ONLY for p in taken[number + 1 :]):
            words.append("/")
    return words


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


def write(package: str, into: str | Path | None = None) -> Path:
    """Write the stub; returns its path.

    into: a folder for `PACKAGE/__init__.pyi`. None: beside the package's `__init__.py`, where that is somebody's source; for what is
    installed, whose folder is pip's, `typings` in the working folder, where pyright looks.
    """
    source = Path(str(import_module(package).__file__))
    if into is None and installed(source):
        into = TYPINGS
    place = source.with_suffix(".pyi") if into is None else Path(into, *package.split("."), "__init__.pyi")
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, stub(package))
    return place


def installed(source: Path) -> bool:
    """Is this file in a folder that installers fill?"""
    folders = {Path(path).resolve() for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
    parents = source.resolve().parents
    return any(parent in folders or parent.name in ("site-packages", "dist-packages") for parent in parents)


def main(argv: list[str]) -> int:
    """Write the stub of the package that is named, and say where. 2 for a wrong line."""
    parser = argparse.ArgumentParser(prog="python -m iron_core.declare.stub", description="The stub of a pack, for type checkers.")
    parser.add_argument("package", metavar="PACKAGE", help="an importable package whose __all__ names its operators")
    parser.add_argument("--into", metavar="FOLDER", help="write FOLDER/PACKAGE/__init__.pyi (default: beside the package's source)")
    given = parser.parse_args(argv)
    place = write(given.package, given.into)
    print(place)
    if given.into is None and place.parts[0] == TYPINGS:
        folder = Path(str(import_module(given.package).__file__)).parent
        said = f"{given.package} is installed in {folder}, which stays as it is; pyright reads {TYPINGS}, mypy with MYPYPATH={TYPINGS}."
        print(said, file=sys.stderr)
    return 0


__all__ = ["installed", "main", "stub", "write"]

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
