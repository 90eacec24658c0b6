"""Models with a mistake each, under the suite that models inherit: `test_model_mistakes.py` runs this and reads what failed."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

import iron_core as iron
from iron_core.plugins.registry import registry
from iron_core.testing import ModelConformance


class Right:
    summary = "Doubles the numbers that it is given."

    @classmethod
    def graph(cls, words, **options):
        class Doubled(iron.Graph):
            def body(self, x):
                return registry().load("operators", "ElementwiseAdd")(x, x)

        return Doubled().compile(**{"backend": "reference", **options}, x=((len(words),), np.float32))

    @classmethod
    def command(cls, call):
        numbers = click.Argument(["numbers"], nargs=-1, type=float)
        return click.Command(cls.__name__.lower(), params=[numbers], callback=call, help=cls.summary)

    @classmethod
    def main(cls, argv):
        def call(numbers):
            click.echo(cls.graph(numbers)(np.array(numbers, np.float32)))

        return cls.command(call).main(argv, prog_name=f"iron-run {cls.__name__.lower()}", standalone_mode=False)

    @classmethod
    def compiled(cls, argv, **options):
        return cls.command(lambda numbers: cls.graph(numbers, **options)).main(argv, standalone_mode=False)


class Wordy(Right):
    summary = "Two\nlines."


class Mute(Right):
    @classmethod
    def main(cls, argv):
        if "--help" in argv:
            return 0
        return super().main(argv)


class Crashes(Right):
    @classmethod
    def main(cls, argv):
        if any(word.startswith("--no") for word in argv):
            raise KeyError(argv[0])
        return super().main(argv)


class Tolerant(Right):
    @classmethod
    def main(cls, argv):
        return super().main([word for word in argv if not word.startswith("--no")] or ["1"])


class Writes(Right):
    @classmethod
    def main(cls, argv):
        Path("log.txt").write_text("here")
        return super().main(argv)


class Exports(Right):
    count = itertools.count()

    @classmethod
    def main(cls, argv):
        os.environ["DOUBLES_SEEN"] = str(next(cls.count))
        return super().main(argv)


class Eats(Right):
    @classmethod
    def main(cls, argv):
        given = list(argv)
        argv.clear()
        return super().main(given)


class Fails(Right):
    @classmethod
    def main(cls, argv):
        super().main(argv)
        return 1


class Elsewhere(Right):
    @classmethod
    def compiled(cls, argv, **options):
        return super().compiled(argv)


class Plain(Right):
    @classmethod
    def compiled(cls, argv, **options):
        return argv


MODELS = (Right, Wordy, Mute, Crashes, Tolerant, Writes, Exports, Eats, Fails, Elsewhere, Plain)

#: A distribution of all of them, on the path of this process.
_folder = Path(tempfile.mkdtemp(prefix="iron-wrong-models-"))
_info = _folder / "doubles-1.0.dist-info"
_info.mkdir()
(_info / "METADATA").write_text("Metadata-Version: 2.1\nName: doubles\nVersion: 1.0\n")
_lines = (f"{one.__name__.lower()} = {__name__}:{one.__name__}\n" for one in MODELS)
(_info / "entry_points.txt").write_text(f"[iron.models.v1]\n{''.join(_lines)}")
sys.path.insert(0, str(_folder))
registry.cache_clear()

for _model in MODELS:
    _given = dict(model=_model, name=_model.__name__.lower(), line=("1", "2"))
    globals()[f"Test{_model.__name__}"] = type(f"Test{_model.__name__}", (ModelConformance,), _given)


class TestRenamed(ModelConformance):
    model, name, line = Writes, "right", ("1",)
