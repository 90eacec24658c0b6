"""`python -m docs.site.errors`: docs/errors.md, a catalogue of the classes in every distribution's errors.py, of their docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
HEAD = """# Errors

<!-- Made by `python -m docs.site.errors` of every distribution's errors.py; do not edit. -->

Whatever a user may get wrong is an `IronError`, in one sentence: the keyword, the rule, the value, and what would be legal. Each class is
also the one that Python has for such a mistake, so `except ValueError` goes on working. `iron` and `iron-run` print the sentence and end
with status 2; `--verbose` shows the traceback. What is no `IronError` is a fault of ours, or of a pack, which is then named, and ends with
status 1.
"""


def modules() -> dict[str, Any]:
    """Distribution -> its module of errors, iron-core's first."""
    found = [*sorted(ROOT.glob("iron_*/src/*/errors.py")), *sorted(ROOT.glob("iron_*/*/src/*/errors.py"))]
    return {file.parent.name.replace("_", "-"): import_module(f"{file.parent.name}.errors") for file in found}


def classes(module: Any) -> list[type[BaseException]]:
    """Errors and warnings that a module defines, in its order."""
    own = [thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    return [thing for thing in own if thing.__module__ == module.__name__]


def entry(cls: type[BaseException]) -> str:
    """One class: what it derives from, when it is raised, an example and its fix."""
    bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
    when, _, example = (inspect.getdoc(cls) or "").partition("Raises:")
    raises, _, fix = example.partition("Fix:")
    shown = [f"* {word}: {marked(' '.join(code.split()))}" for word, code in (("raised by", raises), ("mended by", fix)) if code.strip()]
    return "\n\n".join([f"### {cls.__name__}", f"({bases}) {' '.join(when.split())}", *(["\n".join(shown)] if shown else [])])


def marked(example: str) -> str:
    """Code as code, and the comment behind it as words; what is a sentence stays one."""
    code, _, said = (part.strip() for part in re.sub(r" +# ", " # ", example).partition(" # "))
    like = re.match(r"(iron|return|def|env|compile|[A-Z_]+=)|\w*[.(]", code) and "`" not in code
    return (f"`{code}`" if like else code) + (f" ({said})" if said else "")


def text() -> str:
    """The page."""
    parts = [HEAD]
    for name, module in modules().items():
        found = [entry(cls) for cls in classes(module)]
        if found:
            parts.append("\n\n".join([f"## {name}", *found]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{len(re.findall('^###', text(), re.M))} classes in {PAGE.name}\n")
