"""A model whose file has no config.json gets one that says the same."""

from __future__ import annotations

import json
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_gemma3.model import Gemma3
from iron_llama.model import Llama
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.config_json import config_json
from iron_lm.parts.rotary import RotaryConfig, inverse_frequencies


def read(family: Any, config: Any) -> Any:
    """What the family makes of the config.json that is written, by way of its text."""
    return family.from_huggingface(huggingface.entries_of(json.loads(json.dumps(config_json(family, config))), family.absent))


def test_a_config_comes_back(family: Any) -> None:
    """Of every family whose settings a config.json has entries for; of the others, one line says what it lacks."""
    config = family.load().config
    if family.name in ("phi3", "gpt2"):
        lacking = {"phi3": "scaled by longrope", "gpt2": "gpt2: no config.json says what this model is like"}[family.name]
        with pytest.raises(CheckpointError, match=lacking):
            config_json(family.family, config)
    else:
        assert read(family.family, config) == config


def test_numbers_that_are_no_defaults_come_back() -> None:
    """Scales, caps, activations, shares of heads that turn."""
    odd = dict(activation="gelu_tanh", score_scale=0.3, score_cap=20.0, logit_cap=7.5, norm_epsilon=9.999999747378752e-06, tied=False)
    config = attrs.evolve(Llama.full_size(), rotary=RotaryConfig(64, 1234.5, ("linear", (3.0,)), dims=16), **odd)
    assert read(Llama, config) == config
    for scale in (0.17677669, *np.random.default_rng(0).uniform(0.01, 3, 200).astype(np.float32).tolist()):
        narrow = attrs.evolve(config, score_scale=float(scale))
        assert read(Llama, narrow) == narrow
    plain = attrs.evolve(Gemma3.full_size(), score_scale=168**-0.5)
    assert read(Gemma3, plain) == plain and config_json(Gemma3, plain)["query_pre_attn_scalar"] == 168


def test_a_model_without_a_name_is_called_by_its_type() -> None:
    """As any config.json without one has it."""
    assert read(Llama, attrs.evolve(Llama.full_size(), name="")) == attrs.evolve(Llama.full_size(), name="llama")


@pytest.mark.parametrize("numbers", [(8.0, 1.0, 4.0, 8192.0), (32.0, 1.0, 4.0, 8192.0), (32.0, 1.0, 4.0, 512.0)])
def test_factors_are_known_by_the_scaling_they_come_from(numbers: tuple[float, ...]) -> None:
    """A GGUF has the factors of Llama 3's scaling and not its numbers; rows that pair neighbours are another matter."""
    scaled = RotaryConfig(64, 500000.0, ("llama3", numbers))
    factors = inverse_frequencies(RotaryConfig(64, 500000.0))[0] / inverse_frequencies(scaled)[0]
    stored = RotaryConfig(64, 500000.0, None, tuple(map(float, factors.astype(np.float32))), neighbours=True)
    config = attrs.evolve(Llama.full_size(), rotary=stored)
    assert read(Llama, config) == attrs.evolve(config, rotary=scaled)


def test_factors_of_no_known_scaling_are_refused() -> None:
    """Rather than dropped."""
    rotary = RotaryConfig(8, 10000.0, None, (1.0, 3.0, 2.0, 5.0))
    with pytest.raises(CheckpointError, match="factors of its rotary embedding are no scaling of Llama 3's"):
        config_json(Llama, attrs.evolve(Llama.full_size(), head_dim=8, rotary=rotary))


def test_what_would_come_back_otherwise_is_refused() -> None:
    """A setting that the family's files cannot say is named, with both values."""

    class Forgetful(Llama):
        @classmethod
        def to_huggingface(cls, config: Any) -> dict[str, Any]:
            return {key: value for key, value in super().to_huggingface(config).items() if key != "final_logit_softcapping"}

    with pytest.raises(CheckpointError, match=r"logit_cap would be None, not 5\.0\."):
        config_json(Forgetful, attrs.evolve(Llama.full_size(), logit_cap=5.0))
