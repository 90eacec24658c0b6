"""A pack with a reader of files of weights."""

from __future__ import annotations

from iron_core.cli.new_pack.kind import Kind

READER = Kind(
    name="reader",
    described="a reader of files of weights",
    says="`{{dashed}}`, a reader of files of weights: a line of JSON, then the tensors",
    files={"src/{{package}}/reader.py": "src/reader.py.in", "tests/test_reader.py": "tests/test_reader.py.in"},
    entries={"checkpoints": {"{{dashed}}": "{{package}}.reader:{{camel}}File"}},
    tests=("iron-lm",),
    use=("iron checkpoints show FILE",),
)
