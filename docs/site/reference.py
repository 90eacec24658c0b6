"""The reference of Python's names: a page for each distribution, of what its packages name in `__all__`, and what its entry points name.

Nothing else of a distribution is public. The text is that of the docstrings.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def projects() -> dict[Path, dict[str, Any]]:
    """Folder -> table `project` of every distribution."""
    found = [*sorted(ROOT.glob("iron_*/pyproject.toml")), *sorted(ROOT.glob("iron_*/*/pyproject.toml"))]
    return {file.parent: tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in found}


def modules(folder: Path) -> list[str]:
    """A distribution's modules that say what they export, and its errors."""
    found = []
    for file in sorted((folder / "src").rglob("*.py")):
        if file.name == "errors.py" or re.search(r"^__all__\b", file.read_text(encoding="utf-8"), re.M):
            parts = file.relative_to(folder / "src").with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def exported(module: str) -> dict[str, Any]:
    """Public name -> what it is."""
    loaded = import_module(module)
    names = getattr(loaded, "__all__", None) or [
        name for name, thing in vars(loaded).items() if isinstance(thing, type) and thing.__module__ == module
    ]
    return {name: getattr(loaded, name) for name in names}


def entries(project: dict[str, Any]) -> dict[str, Any]:
    """"module:name" of every entry point -> what it names; of formats and devices nothing, which are values."""
    groups = {group: named for group, named in project.get("entry-points", {}).items() if not re.search("formats|devices|commands", group)}
    return {said: getattr(import_module(said.partition(":")[0]), said.partition(":")[2]) for g in groups.values() for said in g.values()}


def _line(thing: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def page(folder: Path, project: dict[str, Any]) -> str:
    """The page of one distribution."""
    seen: set[int] = set()
    text = [f"# {project['name']}\n\n{project['description']}.\n"]
    values = []
    for module in modules(folder):
        for name, thing in sorted(exported(module).items()):
            if inspect.ismodule(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, type) or inspect.isfunction(thing):
                text.append(_described(f"{thing.__module__}.{thing.__qualname__}", f"{module}.{name}"))
            else:
                values.append(f"| `{module}.{name}` | `{type(thing).__name__}` | {_line(type(thing))} |")
    for said, thing in sorted(entries(project).items()):
        if id(thing) not in seen and (isinstance(thing, type) or inspect.isfunction(thing)):
            seen.add(id(thing))
            text.append(_described(f"{thing.__module__}.{thing.__qualname__}", said.replace(":", ".")))
    if values:
        text.append("## Values\n\n| name | of class | which is |\n|---|---|---|\n" + "\n".join(values) + "\n")
    return "\n".join(text)


def _described(path: str, heading: str) -> str:
    return f'::: {path}\n    options:\n      heading: "{heading}"\n      toc_label: "{heading.rpartition(".")[2]}"\n'


def on_config(config: Any) -> Any:
    """The pages' place in the navigation: where their index is."""
    reference = next(iter(part["Reference"] for part in config.nav if "Reference" in part))
    reference[reference.index("api/index.md")] = {"Python": ["api/index.md", *(f"api/{p['name']}.md" for p in projects().values())]}
    return config


def on_files(files: Any, config: Any) -> Any:
    """A page for every distribution, and their index."""
    from mkdocs.structure.files import File

    rows = []
    for folder, project in projects().items():
        place = f"api/{project['name']}.md"
        files.append(File.generated(config, place, content=page(folder, project)))
        rows.append(f"| [{project['name']}]({project['name']}.md) | {project['description']} |")
    text = "# Names of Python\n\n| distribution | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    files.append(File.generated(config, "api/index.md", content=text))
    return files
