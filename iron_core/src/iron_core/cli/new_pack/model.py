"""A pack with a model: a family of language models with a feed-forward of its own."""

from __future__ import annotations

from iron_core.cli.new_pack.kind import Kind

MODEL = Kind(
    name="model",
    described="a family of language models",
    says="`{{dashed}}-tiny`, a family of language models: a Llama with another feed-forward",
    files={"src/{{package}}/model.py": "src/model.py.in", "tests/test_model.py": "tests/test_model.py.in"},
    entries={"models": {"{{dashed}}-tiny": "{{package}}.model:{{camel}}Tiny"}},
    needs=("iron-lm", "iron-ops-aie"),
    tests=("iron-host",),
    use=("iron-run {{dashed}}-tiny --random-weights 0 --prompt-len 4 --num-tokens 8",),
)
