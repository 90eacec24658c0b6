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
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run

MODULES = [importlib.import_module(f"iron_lm.parts.{found.name}") for found in pkgutil.iter_modules(iron_lm.parts.__path__)]
CONFIGS = {cls for module in MODULES for name, cls in vars(module).items() if attrs.has(cls) and name.endswith("Config") and name[0] != "_"}


def made(cls: Any) -> Any:
    """One whose fields that must be given are all 8."""
    must = [field for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    return cls(**{field.name: {"int": 8, "float": 8.0}[field.type] for field in must})


MADE = [*map(made, sorted({*CONFIGS, DecoderConfig}, key=lambda cls: cls.__name__)), Run(64)]
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
    "str | None": (("int4", 5, ["int8"]), "legal: int8, or None."),
    "DecoderConfig.pooling": (("int4", 5, ["mean"]), "legal: cls, last, mean, or None."),
    "NormConfig | None": ((4, "rms", NormConfig), "legal: a NormConfig, or None."),
    "RotaryConfig | None": ((4, "llama3", RotaryConfig), "legal: a RotaryConfig, or None."),
    "tuple[float, ...] | None": ((5, "1234", (1.0, "1", 1.0, 1.0), (1.0, math.nan, 1.0, 1.0)), "legal: one for each of 4 pairs"),
    "tuple[bool, ...]": ((True, "no", ("no", "no"), (1, 0)), "legal: True or False for each layer"),
    "tuple[str, tuple[float, ...]] | None": ((5, "linear", ("linear",), ("linear", 2.0), (["linear"], (2.0,))), "legal: linear, "),
}
FREE = {"DecoderConfig.name"}
FIELDS = [(one, field) for one in MADE for field in attrs.fields(type(one)) if f"{type(one).__name__}.{field.name}" not in FREE]


def test_the_configs_of_parts_are_found() -> None:
    """What follows is asked of all there are, so a new one is found."""
    assert {AttentionConfig, NormConfig, RotaryConfig} < CONFIGS and len(CONFIGS) > 8


@pytest.mark.parametrize(("one", "field"), FIELDS, ids=[f"{type(one).__name__}.{field.name}" for one, field in FIELDS])
def test_a_field_refuses_what_it_cannot_hold(one: Any, field: Any) -> None:
    """Fractions and words for whole numbers, words for numbers and for yes or no, and whatever is none of a part's configs."""
    values, rule = WRONG[f"{type(one).__name__}.{field.name}" if f"{type(one).__name__}.{field.name}" in WRONG else field.type]
    for value in values:
        with pytest.raises(ParamError) as error:
            attrs.evolve(one, **{field.name: value})
        said = str(error.value)
        assert said.startswith(f"{type(one).__name__}: ") and field.name in said and rule in said, said


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
