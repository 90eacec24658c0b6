"""`Kind`: what one kind of pack adds to a project."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Kind:
    """What it is called, what is written, and which entry points it has. Words in double braces stand in all texts.

    name: "operator", its flag and its folder of templates. described: what it is, within a sentence. says: what the README says
    that there is. files: by path in the project, a template of that folder. entries: by group of entry points, name -> target.
    needs, tests: distributions of ours that the pack and its tests need. use: command lines that show it.
    """

    name: str
    described: str
    says: str
    files: Mapping[str, str]
    entries: Mapping[str, Mapping[str, str]]
    needs: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
