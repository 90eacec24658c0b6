"""A model with drawn weights: against its twin in numpy, twice alike, and a turn of a conversation."""

from __future__ import annotations

import numpy as np
from iron_core.testing import ModelConformance
from iron_lm import testing
from iron_lm.loading import Loaded

from iron_acme import model


def tiny() -> Loaded:
    return testing.tiny(model.AcmeTiny, model.AcmeTiny.full_size())


def test_its_feed_forward_is_its_twin() -> None:
    loaded = tiny()
    x = np.random.default_rng(0).standard_normal((11, 64)).astype(np.float32)
    report = testing.check_part(model.FeedForward(64, 128, loaded.run), loaded.run, x, prompt=8)
    assert report.passed, report.lines()


def test_a_model_passes_its_checks() -> None:
    for report in testing.check_model(tiny()):
        assert report.passed, report.lines()


class TestCommandLine(ModelConformance):
    """What `iron-run acme-tiny` keeps of every model; its line that runs is of drawn weights."""

    model = model.AcmeTiny
    name = "acme-tiny"
    line = ("--random-weights", "0", "--prompt-len", "3", "--num-tokens", "4")
