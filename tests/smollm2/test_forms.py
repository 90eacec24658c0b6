"""Answers of a form by SmolLM2: whatever it is asked, and however tokens are drawn, what it says is JSON of the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import iron_lm

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]
pytest.importorskip("llguidance", reason="llguidance, which makes the masks, is not installed")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colour": {"enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        "place": {
            "type": "object",
            "properties": {"north": {"type": "boolean"}, "far": {"type": ["null", "integer"], "minimum": 0, "maximum": 999}},
            "required": ["north", "far"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "colour", "tags", "place"],
    "additionalProperties": False,
}
PROMPTS = ("A person as JSON: ", "The capital of France is", "Once upon a time", "def f(x):\n", "{", "1, 2, 3, ", "\n\n", "Ann is 7.")
MOST = 400


def valid(said: Any) -> bool:
    """Is it of the schema? Said here by hand, entry by entry."""
    assert list(said) == SCHEMA["required"]
    place = said["place"]
    return (
        isinstance(said["name"], str) and 1 <= len(said["name"]) <= 12
        and type(said["age"]) is int and 0 <= said["age"] <= 120
        and said["colour"] in ("red", "green", "blue")
        and len(said["tags"]) <= 3 and all(isinstance(tag, str) and len(tag) <= 8 for tag in said["tags"])
        and list(place) == ["north", "far"] and isinstance(place["north"], bool)
        and (place["far"] is None or (type(place["far"]) is int and 0 <= place["far"] <= 999))
    )  # fmt: skip


def test_two_hundred_answers_are_of_the_schema(smollm2: Path) -> None:
    """25 of each of eight prompts: greedy, and drawn in several ways at a temperature of 1 and of 2; each ends by itself."""
    model = iron_lm.load(smollm2, max_seq_len=512, backend="host")
    rules: list[dict[str, Any]] = [{}, *({"temperature": 1.0 + seed % 2, "seed": seed} for seed in range(24))]
    for rule in rules[1::3]:
        rule |= {"top_p": 0.9, "repetition_penalty": 1.1}
    answers = ["".join(model.generate(prompt, MOST, schema=SCHEMA, **rule)) for prompt in PROMPTS for rule in rules]
    assert len(answers) == 200 and len(set(answers)) > 150
    assert all(valid(json.loads(answer)) for answer in answers)
