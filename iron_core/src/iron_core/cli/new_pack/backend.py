"""A pack with a backend: a page that runs elementwise steps with numpy."""

from __future__ import annotations

from iron_core.cli.new_pack.kind import Kind

BACKEND = Kind(
    name="backend",
    described="a backend",
    says="`{{dashed}}`, a backend that runs elementwise operators with numpy",
    files={"src/{{package}}/backend.py": "src/backend.py.in", "tests/test_backend.py": "tests/test_backend.py.in"},
    entries={"backends": {"{{dashed}}": "{{package}}.backend:{{camel}}Backend"}},
    tests=("iron-ops-aie",),
    use=("iron backends list", "iron operators run ReLU size=4096 --backend reference,{{dashed}}"),
)
