"""Every field of a part's config says what it may hold, and refuses the rest by class, field, value and what would be legal."""

from __future__ import annotations

import importlib
import math
import pkgutil
from typing import Any

import attrs
import numpy as np
import pytest

import iron_lm.parts
from iron_core.errors import ParamError
from iron_lm.decoder_config import DecoderConfig
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.embedding import EmbeddingConfig
from iron_lm.parts.head import HeadConfig
from iron_lm.parts.layer_norm import LayerNormConfig
from iron_lm.parts.mlp import GatedMLPConfig, MLPConfig
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run

DECODER = dict(
    vocab_size=8, hidden_size=8, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, intermediate_size=8, max_positions=64
)  # fmt: skip
MADE = (
    AttentionConfig(8, 4, 2, 4), EmbeddingConfig(8, 8), HeadConfig(8, 8), LayerNormConfig(8), GatedMLPConfig(8, 8), MLPConfig(8, 8),
    NormConfig(8), RotaryConfig(8), DecoderConfig(**DECODER), Run(64),
)  # fmt: skip
#: By the type of a field: what it is not, and the rule.
WHOLE = (1.5, 2.0, "8", True, 0, -1, math.nan, [8])
NUMBERS = ("5", True, 0.0, -1.0, math.nan, math.inf, [1.0])
WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "int": ((*WHOLE, None), "legal: a whole number, 1 or more."),
    "int | None": (WHOLE, "legal: a whole number, 1 or more, or None."),
    "float": ((*NUMBERS, None), "legal: a positive number."),
    "float | None": (NUMBERS, "legal: a positive number, or None."),
    "bool": (("no", 1, 0.0, None), "legal: True or False."),
    "str": (("tanhh", 5, None, ["silu"]), "legal: "),
    "NormConfig | None": ((4, "rms", NormConfig), "legal: a NormConfig, or None."),
    "RotaryConfig | None": ((4, "llama3", RotaryConfig), "legal: a RotaryConfig, or None."),
    "tuple[float, ...] | None": ((5, "1234", (1.0, "1", 1.0, 1.0), (1.0, math.nan, 1.0, 1.0)), "legal: one for each of 4 pairs"),
    "tuple[bool, ...]": ((True, "no", ("no", "no"), (1, 0)), "legal: True or False for each layer"),
    "tuple[str, tuple[float, ...]] | None": ((5, "linear", ("linear",), ("linear", 2.0), (["linear"], (2.0,))), "legal: linear, "),
}
FREE = {"DecoderConfig.name"}
FIELDS = [(made, field) for made in MADE for field in attrs.fields(type(made)) if f"{type(made).__name__}.{field.name}" not in FREE]


def test_no_config_of_a_part_is_left_out() -> None:
    """What follows is asked of all there are."""
    modules = [importlib.import_module(f"iron_lm.parts.{found.name}") for found in pkgutil.iter_modules(iron_lm.parts.__path__)]
    named = [each for module in modules for each in vars(module).items()]
    there = {cls for name, cls in named if attrs.has(cls) and name.endswith("Config") and name[0] != "_"}
    assert there == {type(made) for made in MADE} - {DecoderConfig, Run}


@pytest.mark.parametrize(("made", "field"), FIELDS, ids=[f"{type(made).__name__}.{field.name}" for made, field in FIELDS])
def test_a_field_refuses_what_it_cannot_hold(made: Any, field: Any) -> None:
    """Fractions and words for whole numbers, words for numbers and for yes or no, and whatever is none of a part's configs."""
    values, rule = WRONG[field.type]
    for value in values:
        with pytest.raises(ParamError) as error:
            attrs.evolve(made, **{field.name: value})
        said = str(error.value)
        assert said.startswith(f"{type(made).__name__}: ") and field.name in said and rule in said, said


def test_numbers_of_numpy_are_numbers() -> None:
    """Sizes that were computed with it, a checkpoint's epsilon, a comparison's outcome."""
    assert AttentionConfig(np.int64(8), np.int32(4), 2, 4, scale=np.float32(0.5), bias=np.bool_(True)).bias
    assert NormConfig(8, np.float64(1e-6)) == NormConfig(8, 1e-6)


@pytest.mark.parametrize(("name", "count", "takes"), [
    ("linear", 0, "1 number: factor"), ("linear", 2, "1 number: factor"), ("llama3", 1, "4 numbers: factor, low, high, original"),
    ("yarn", 5, "6 numbers: factor, original, fast, slow, attention, cut"), ("proportional", 1, "2 numbers: proportion, factor"),
    ("longrope", 1, "2 numbers: original, attention; then factors"),
])  # fmt: skip
def test_a_scaling_says_which_numbers_it_takes(name: str, count: int, takes: str) -> None:
    """Too few or too many are told before any angle is computed."""
    with pytest.raises(ParamError, match=f"RotaryConfig: scaling {name!r} with {count} numbers; legal: {takes}"):
        RotaryConfig(8, scaling=(name, (1.0,) * count))


@pytest.mark.parametrize("number", ["2", None, math.nan, math.inf, [2.0]])
def test_a_scaling_takes_finite_numbers(number: Any) -> None:
    """Its name and the number are said."""
    with pytest.raises(ParamError, match=r"RotaryConfig: scaling 'linear' with .*; legal: finite numbers"):
        RotaryConfig(8, scaling=("linear", (number,)))
