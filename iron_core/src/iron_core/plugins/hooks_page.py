"""The page about events, made of their specifications: what `iron_core.plugins.hooks.Events` says is what the page says.

`python -m iron_core.plugins.hooks_page FILE` writes it; docs/hooks.md is such a file.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iron_core.files import write_whole
from iron_core.plugins.hooks import Events

_HEAD = """# Events

<!-- Made by `python -m iron_core.plugins.hooks_page docs/hooks.md` of iron_core/plugins/hooks.py; do not edit. -->

A distribution may watch what Iron does: it names a module, or an object, in the group `iron.plugins.v1`, whose functions have the names of
events and the mark `hookimpl`. It is imported at the first event, not before. Nothing that it does changes what happens.

`pyproject.toml`

```toml
[project]
name = "iron-acme-log"
version = "0.1"
dependencies = ["iron-core>=2,<3"]

[project.entry-points."iron.plugins.v1"]
acme-log = "iron_acme_log.watch"
```

`src/iron_acme_log/watch.py`

```python
\"\"\"Says what is compiled.\"\"\"

import sys

from iron_core.plugins.hooks import hookimpl


@hookimpl
def iron_plan_built(plan):
    print(f"{plan.name}: {len(plan.versions[-1].steps)} steps for {plan.dev}", file=sys.stderr)


@hookimpl
def iron_image_built(image, plan):
    print(f"{plan.name}: {type(image).__name__} of {plan.backend}", file=sys.stderr)
```

One that raises at an event, or does not fit the specifications below (a name that is no event, a fact that an event does not have, a
wrapper, a generator, a coroutine), is told nothing more. A `PluginWarning` says so once, with its distribution, its entry point, what was
raised and the line; the run goes on, and the other plugins are told. So it is with one that does not load.
"""


def page() -> str:
    """The page's text."""
    events = [member for name, member in vars(Events).items() if name.startswith("iron_")]
    parts = [_HEAD, "## What holds for each of them", _prose(Events), *(part for event in events for part in _event(event))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _event(event: Callable[..., Any]) -> tuple[str, str]:
    facts = [name for name in inspect.signature(event).parameters if name != "self"]
    return f"## `{event.__name__}({', '.join(facts)})`", _listed(_prose(event), facts)


def _prose(documented: Any) -> str:
    return inspect.cleandoc(documented.__doc__ or "")


def _listed(text: str, facts: list[str]) -> str:
    """A docstring whose last paragraph tells of the facts, "plan: what it is. image: ...", with a line of a list for each."""
    *said, told = text.split("\n\n")
    parts = re.split(rf"(?:^|(?<=\.)\s)({'|'.join(facts)}): ", told)
    if parts[0] or parts[1::2] != facts:
        raise ValueError(f"the last paragraph of {text!r} does not say of each of {', '.join(facts)} what it is")
    rows = [f"* `{name}`: {' '.join(what.split())}" for name, what in zip(parts[1::2], parts[2::2], strict=True)]
    return "\n\n".join([*said, "\n".join(rows)])


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: python -m iron_core.plugins.hooks_page FILE\n")
        return 2
    write_whole(Path(argv[0]), page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
