"""A pack with a format: integers in blocks of a row, with a scale each."""

from __future__ import annotations

from iron_core.cli.new_pack.kind import Kind

FORMAT = Kind(
    name="format",
    described="a format of tensors",
    says="`{{prefix}}.int8`, a format of tensors: signed bytes, 64 of a row to a scale",
    files={"src/{{package}}/int8.py": "src/int8.py.in", "tests/test_int8.py": "tests/test_int8.py.in"},
    entries={"formats": {"{{prefix}}.int8": "{{package}}.int8:INT8"}},
    tests=("iron-host", "iron-ops-aie"),
    use=("iron operators run GEMV M=64 K=128 W={{prefix}}.int8",),
)
