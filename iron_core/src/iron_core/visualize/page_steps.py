"""The run list of a page: what is alike is told once, and every step is there to be opened, found and linked to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from iron_core.visualize.markup import Raw, bar, cell, chip, details, table
from iron_core.visualize.repeats import Stretch, repeats
from iron_core.visualize.run_list import Row, RunList
from iron_core.visualize.times import Times, duration, percent
from iron_core.visualize.tunables import shown

_LAYER = re.compile(r"\.(\d+)\.")


def stretches(run: RunList) -> tuple[Stretch, ...]:
    """Where the rows repeat; the numbers in their weights' names tell layers from one another."""
    layers = [next((int(m[1]) for name in row.reads if (m := _LAYER.search(name))), None) for row in run.rows]
    return repeats([row.kind for row in run.rows], layers)


class StepTables:
    """The tables of one version. prefix: of its rows' ids, and of its arrays'."""

    def __init__(self, run: RunList, priced: Times, hue: Mapping[str, int], prefix: str) -> None:
        self.run, self.priced, self.hue, self.prefix = run, priced, hue, prefix
        self.slowest = max(priced.us.values(), default=0.0)
        self.timed = bool(priced.us or priced.notes)

    @property
    def time_head(self) -> str:
        return "time, bound by" if self.priced.bounds else "time"

    # -- cells -------------------------------------------------------------------------------------

    def operator(self, row: Row) -> Raw:
        parts = [f"{chip(self.hue[row.operator])}<b>{escape(row.operator)}</b>"]
        signs = {"before": "{} →", "after": "→ {}", "store": "→ {}"}
        for part in row.inside:
            text = signs[part.how].format(part.operator)
            parts.append(f'<span class="tag" title="{escape(part.name, quote=True)}, {part.how} it">{escape(text)}</span>')
        return Raw(" ".join(parts))

    def shape(self, row: Row, reads: str) -> Raw:
        parts = [escape(row.short)] if row.short else []
        parts += [f'<span class="soft">{escape(reads)}</span>'] if reads else []
        return Raw(" · ".join(parts))

    def where(self, row: Row) -> Raw:
        if row.array is None:
            return Raw(escape(row.how))
        used = self.run.arrays[row.array]
        cores = len(used.array.cores)
        many = f"{used.columns} col{'s' * (used.columns != 1)}, {cores} core{'s' * (cores != 1)}"
        return Raw(f'<a href="#{self.prefix}a{used.number}">array {used.number}</a><br><span class="soft">{many}</span>')

    def follows(self, row: Row) -> Raw:
        return Raw(f'<span class="soft">{escape(row.follows).replace("=", "=<wbr>")}</span>' if row.follows else "")

    def tunables(self, row: Row) -> Raw:
        away = {moved.name: moved for moved in row.moved}
        parts = []
        for name, value in row.tunables:
            text = escape(f"{name}={shown(value)}")
            if name in away:
                text = f'<span class="tag moved" title="{escape(str(away[name]), quote=True)}">{text}</span>'
            parts.append(text)
        return Raw(f'<span class="soft">{" ".join(parts)}</span>' if parts else "")

    def time(self, us: float | None, note: str, most: float, bound: str = "") -> Raw:
        if us is None:
            return Raw(escape(note))
        by = f'<br><span class="soft">{escape(bound)}</span>' if bound else ""
        return Raw(f"{bar(us / most if most else 0, 60)} {duration(us)}{by}")

    # -- tables ------------------------------------------------------------------------------------

    def by_operator(self) -> str:
        """How many steps each operator has, with what is folded into them, and what they take together."""
        rows, found = self.run.rows, Counter(row.operator for row in self.run.rows)
        inside = Counter((row.operator, part.operator) for row in rows for part in row.inside)
        us = {name: self.priced.of([row for row in rows if row.operator == name]) for name in found}
        order = sorted(found, key=lambda name: (-us[name], -found[name], name))
        lines = []
        for name in order:
            held = ", ".join(f"{count} {other}" for (host, other), count in inside.items() if host == name)
            line: list[object] = [Raw(f"{chip(self.hue[name])}{escape(name)}"), found[name], bar(found[name] / max(found.values())), held]
            if self.priced.known:
                share = [duration(us[name]), percent(us[name] / self.priced.steps), bar(us[name] / max(us.values()))]
                line += share if us[name] else ["", "", ""]
            lines.append(line)
        head = ["operator", "steps", "", "with, folded in"] + (["time", "of all steps", ""] if self.priced.known else [])
        return table(head, lines, "kn  " + ("nn " if self.priced.known else ""), "Steps by operator")

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Heads and kinds of the columns that say how a step runs, which follow its name."""
        onto = [("array", "k"), ("tunables", " ")] if self.run.arrays else [("runs by", " ")]
        return [("operator", " "), ("of", " "), *onto, ("per call", "e")]

    def cells(self, row: Row, reads: str) -> list[object]:
        onto = [self.where(row), self.tunables(row)] if self.run.arrays else [self.where(row)]
        return [self.operator(row), self.shape(row, reads), *onto, self.follows(row)]

    def rows(self, rows: Sequence[Row]) -> str:
        """A table of these, in order; each row has its step's id."""
        columns = [("", "n"), ("step", "k"), *self.columns, *([(self.time_head, "n")] if self.timed else [])]
        lines = []
        for row in rows:
            name = Raw(f'<span class="mono" title="{escape(row.operands, quote=True)}">{escape(row.name)}</span>')
            line = [row.number, name, *self.cells(row, ", ".join(row.reads))]
            us, bound = self.priced.us.get(row.number), self.priced.bounds.get(row.number, "")
            lines.append([*line, *([self.time(us, self.priced.at(row), self.slowest, bound)] if self.timed else [])])
        ids = [f"{self.prefix}{row.number}" for row in rows]
        return table([head for head, _ in columns], lines, "".join(kind for _, kind in columns), "Steps", kind="steps", ids=ids)

    def stretch(self, one: Stretch) -> str:
        """Rows that repeat nothing, as they are; of a repetition one round, told for all, and each round to be opened."""
        rows = self.run.rows[one.start : one.stop]
        if one.count == 1:
            long = len(rows) > 60
            return details(f"steps {one.start} to {one.stop - 1}", self.rows(rows)) if long else self.rows(rows)
        rounds = [rows[i : i + one.length] for i in range(0, len(rows), one.length)]
        us = self.priced.of(rows)
        share = f" · {duration(us)}, {percent(us / self.priced.steps)} of all steps" if self.priced.known else ""
        title = f"<b>{one.count} × {one.length} steps</b> <span class='soft'>steps {one.start} to {one.stop - 1}{share}</span>"
        each = [
            details(
                f"round {n} <span class='soft'>steps {part[0].number} to {part[-1].number}"
                f"{f', {duration(self.priced.of(part))}' if self.priced.known else ''}{self._of(part)}</span>",
                self.rows(part),
            )
            for n, part in enumerate(rounds)
        ]
        return details(title, self._one_round(rounds) + details(f"each of the {one.count} rounds", "\n".join(each)), opened=True)

    @staticmethod
    def _of(rows: Sequence[Row]) -> str:
        """The layers that a round's weights are of."""
        layers = dict.fromkeys(m[0].join(("", "")) for row in rows for name in row.reads if (m := re.match(r".*?\.\d+(?=\.)", name)))
        return f", {escape(', '.join(layers))}" if layers else ""

    def _one_round(self, rounds: Sequence[Sequence[Row]]) -> str:
        timed = [(f"in all: {self.time_head}", "n"), ("of all steps", "n")] if self.priced.known else []
        columns = [("steps", "k"), *self.columns, *timed]
        lines: list[list[object]] = []
        alike = list(zip(*rounds, strict=True))
        most = max((self.priced.of(rows) for rows in alike), default=0.0)
        for rows in alike:
            first = rows[0]
            reads = ", ".join(dict.fromkeys(_LAYER.sub(".*.", name) for name in first.reads))
            names = Raw(f'<span class="mono">{escape(first.name)}</span> <span class="soft">… {escape(rows[-1].name)}</span>')
            line: list[object] = [names, *self.cells(first, reads)]
            if self.priced.known:
                us = self.priced.of(rows)
                bounds = ", ".join(dict.fromkeys(self.priced.bounds[row.number] for row in rows if row.number in self.priced.bounds))
                line += [self.time(us, "", most, bounds), percent(us / self.priced.steps)]
            lines.append(line)
        return table([head for head, _ in columns], lines, "".join(kind for _, kind in columns), "One round of what repeats")

    def moved(self) -> str:
        """Tunables away from what operators choose themselves; empty where there are none."""
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in self.run.rows:
            for one in row.moved:
                key = (row.operator, row.short, one.name, shown(one.default), shown(one.value), one.by)
                found.setdefault(key, []).append(row)
        lines = [[*key[:2], key[2], key[3], key[4], key[5], len(rows)] for key, rows in found.items()]
        head = ("operator", "of", "tunable", "by itself", "here", "from", "steps")
        return table(head, lines, "k k   n", "Moved tunables") if lines else ""

    def folds(self) -> str:
        """What was folded, by kind, and why others were not."""
        folds = Counter((part.operator, part.how, row.operator) for row in self.run.rows for part in row.inside)
        words = {"before": "in front of", "after": "behind", "store": "into the store of"}
        done = table(("folded", "", "into", "steps"), [(a, words[how], b, n) for (a, how, b), n in folds.items()], "k  n") if folds else ""
        rules: dict[str, list[str]] = {}
        for fold, rule in self.run.version.refused:
            rules.setdefault(rule, []).append(fold)
        lines = [(len(names), names[0], rule) for rule, names in rules.items()]
        undone = table(("not folded", "the first", "why"), lines, "n  ") if lines else ""
        return done + (details(f"{len(self.run.version.refused)} folds were not taken", undone) if undone else "")

    def words(self) -> str:
        """What a call patches."""
        if self.run.image is None or not self.run.image.parameters:
            return ""
        steps = self.run.image.steps
        lines = []
        for one in self.run.image.parameters:
            uses = [f"{steps[index].name}.{name}" for index, name in one.uses]
            lines.append((one.symbol, repr(one.form), len(uses), ", ".join(uses[:4]) + (", …" if len(uses) > 4 else "")))
        return table(("word", "of a call", "uses", "by"), lines, "k n ", "Words that a call patches")


def find_script() -> str:
    """Narrows tables to rows with what is typed, and opens what a link leads to. Without it everything is there to be opened by hand."""
    return """
document.documentElement.classList.add('js');
const up = n => { for (; n; n = n.parentElement) if (n.tagName === 'DETAILS') n.open = true; };
const go = () => {
  const n = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (n) { up(n); n.scrollIntoView({block: n.tagName === 'TR' ? 'center' : 'start'}); }
};
addEventListener('hashchange', go); go();
for (const box of document.querySelectorAll('.filter')) {
  const part = box.parentElement, input = box.querySelector('input'), said = box.querySelector('output');
  const rows = [...part.querySelectorAll('table.steps tbody tr')], folded = [...part.querySelectorAll('details')];
  const before = folded.map(d => d.open);
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let found = 0;
    for (const row of rows) {
      const hit = words.every(w => row.textContent.toLowerCase().includes(w));
      row.classList.toggle('gone', !hit); found += hit;
    }
    folded.forEach((d, i) => {
      const any = words.length ? !!d.querySelector('table.steps tbody tr:not(.gone)') : true;
      d.classList.toggle('gone', !any); d.open = words.length ? any : before[i];
    });
    said.textContent = words.length ? found + ' of ' + rows.length + ' steps' : '';
  });
}
"""


def search_box(what: str) -> str:
    box = f'<input type="search" placeholder="{cell(what)}" aria-label="{cell(what)}">'
    return f'<div class="filter">{box}<output class="soft"></output></div>'
