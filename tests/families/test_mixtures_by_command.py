"""Mixtures of experts by their command lines: what each task says of a small one, from files and with random weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

MIXTURES = ["qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe"]
SIZES = ["--backend", "host", "--max-seq-len", "48", "--json"]
TASKS = {
    "bench": ["--bench", "--prompt-len", "12", "--num-tokens", "4"],
    "accuracy": ["--check-accuracy", "--prompt-len", "20", "--num-tokens", "4"],
    "determinism": ["--check-determinism", "3", "--prompt-len", "20", "--num-tokens", "4"],
    "text": ["--prompt-len", "12", "--num-tokens", "4"],
}


def answer(family: Any, capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    capsys.readouterr()
    assert family.family.main([*SIZES, *line]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(params=MIXTURES)
def mixture(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("weights", ["file", "random", "random q4_0"])
@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_a_mixture(mixture: Any, task: str, weights: str, monkeypatch: Any, capsys: Any) -> None:
    """Gates hold, bits repeat, a bench has its rates; --random-weights the same at the family's shape, dense or in blocks."""
    config = mixture.load().config
    monkeypatch.setattr(mixture.family, "full_size", classmethod(lambda cls: config))
    given = ["--checkpoint", str(mixture.write())] if weights == "file" else ["--random-weights", "3"]
    given += ["--dtype", "q4_0"] if "q4_0" in weights else ["--dtype", "float32"]
    found = answer(mixture, capsys, *given, *TASKS[task])
    if task == "bench":
        assert len(found["rates"]) == 2 and all(rate["median_tok_s"] > 0 for rate in found["rates"])
    elif task == "text":
        assert len(found["prompt_ids"]) == 12 and len(found["ids"]) == 4
    else:
        assert found["passed"] is True, found
