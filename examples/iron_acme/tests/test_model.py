"""A model with drawn weights: against its twin in numpy, twice alike, and a turn of a conversation."""

from __future__ import annotations

import numpy as np
from iron_core.cli import main
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


def test_the_command_line_runs_it() -> None:
    """Four tokens behind a prompt of three, of drawn weights."""
    line = ["run", "acme-tiny", "--random-weights", "0", "--prompt-len", "3", "--num-tokens", "4"]
    assert main(line) == 0
