"""The distributions of this repository, found from their pyproject.toml files; no test keeps a list of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[1]


@attrs.frozen
class Distribution:
    """folder: from the root, "iron_models/lm". name: "iron-lm". package: "iron_lm". project: the table of that name."""

    folder: str
    name: str
    package: str
    project: dict[str, Any] = attrs.field(hash=False)

    @property
    def path(self) -> Path:
        return ROOT / self.folder

    @property
    def sources(self) -> Path:
        """Its package's folder."""
        return self.path / "src" / self.package

    def offers(self, group: str) -> dict[str, str]:
        """Its entry points of a group, "operators": name -> "module:attribute"."""
        return self.project.get("entry-points", {}).get(f"iron.{group}.v1", {})


def _found() -> tuple[Distribution, ...]:
    files = sorted([*ROOT.glob("iron_*/pyproject.toml"), *ROOT.glob("iron_*/*/pyproject.toml")])
    projects = {file: tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files}
    return tuple(
        Distribution(file.parent.relative_to(ROOT).as_posix(), project["name"], project["name"].replace("-", "_"), project)
        for file, project in projects.items()
    )


DISTRIBUTIONS = _found()
#: Those that offer operators.
PACKS = tuple(one for one in DISTRIBUTIONS if one.offers("operators"))
