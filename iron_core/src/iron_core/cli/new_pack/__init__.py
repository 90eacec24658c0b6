"""`iron new-pack`: a whole project for a distribution of one's own, written from templates.

A kind of pack is a module here and a folder of `templates/`, whose files are the project's with words in double braces.
"""

from __future__ import annotations

from iron_core.cli.new_pack.project import write

__all__ = ["write"]
