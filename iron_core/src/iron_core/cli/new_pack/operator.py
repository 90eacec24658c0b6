"""A pack of operators: one with its reference, its array by an inline kernel, and a C++ kernel for the CPU."""

from __future__ import annotations

from iron_core.cli.new_pack.kind import Kind

OPERATOR = Kind(
    name="operator",
    described="operators",
    says="`{{prefix}}.SquaredReLU`, an operator: its numpy reference, an array for NPUs, a C++ kernel for the CPU",
    files={
        "src/{{package}}/__init__.py": "src/__init__.py.in",
        "src/{{package}}/squared_relu.py": "src/squared_relu.py.in",
        "src/{{package}}/squared_relu.h": "src/squared_relu.h.in",
        "src/{{package}}/host.py": "src/host.py.in",
        "tests/test_squared_relu.py": "tests/test_squared_relu.py.in",
    },
    entries={
        "operators": {"{{prefix}}.SquaredReLU": "{{package}}.squared_relu:SquaredReLU"},
        "lowerings": {"host.{{package}}.SquaredReLU": "{{package}}.host:SquaredReLU"},
    },
    tests=("iron-host", "iron-ops-aie", "iron-sim"),
    use=("iron operators run {{prefix}}.SquaredReLU size=4096 --backend reference,host", "iron sim {{prefix}}.SquaredReLU"),
)
