"""`Grouped`: a command whose help has its options in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class Grouped(click.Command):
    """groups: a title, and the options that stand under it. `--help` stands in the last group, under no other title."""

    def __init__(self, name: str, groups: Mapping[str, Sequence[click.Option]], params: Sequence[click.Parameter] = (), **settings: Any):
        super().__init__(name, params=[*params, *(option for options in groups.values() for option in options)], **settings)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = self.get_help_option(ctx)
        last = list(self.groups)[-1]
        for title, options in self.groups.items():
            shown = [*options, *([own] if title == last and own is not None else [])]
            records = filter(None, (option.get_help_record(ctx) for option in shown))
            with formatter.section(title):
                formatter.write_dl(list(records))
