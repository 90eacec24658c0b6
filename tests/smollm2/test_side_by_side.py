"""SmolLM2's real weights over pages: several prompts in the same passes, each with the answer that it has alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.batch import Batch
from iron_lm.generation.paged import PagedModel
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session

pytestmark = pytest.mark.smollm2
PASSAGE = [int(i) for i in np.load(Path(__file__).parents[1] / "data" / "smollm2_float32.npz")["passage"]]


@pytest.mark.slow
def test_each_answer_is_its_prompts_alone(smollm2: Path) -> None:
    """Token by token: prompts of 1 to 151 tokens, most of which share their beginnings, greedy and drawn, in a pool that is too small for
    all at once; what is shared is computed once."""
    loaded = loading.load(Llama, str(smollm2), max_seq_len=448)
    session, paged = Session(loaded.model(), backend="host"), PagedModel(loaded.model(), pages=16, sequences=4, backend="host")
    prompts = [PASSAGE[:n] for n in (100, 151, 70, 1)] + [[*PASSAGE[:90], *PASSAGE[200:225]], PASSAGE[150:190]]
    samplers = [Sampler() if n % 2 else Sampler(temperature=0.9, top_p=0.9, seed=n) for n in range(len(prompts))]
    batch = Batch(paged)
    asked = [batch.submit(ids, 16, sampler) for ids, sampler in zip(prompts, samplers, strict=True)]
    batch.run()
    for request, ids, sampler in zip(asked, prompts, samplers, strict=True):
        assert request.error is None and request.answer == session.generate(ids, 16, sampler), len(ids)
    assert batch.computed < sum(map(len, prompts)) + 16 * len(prompts)


@pytest.mark.slow
def test_a_command_line_answers_as_lines_of_one_prompt(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--parallel`: the ids of `--json` are those of each prompt's own line."""

    def ids(*argv: str) -> list[Any]:
        options = ("--num-tokens", "12", "--max-seq-len", "256", "--json", "--backend", "host")
        assert main(["run", "llama", "--checkpoint", str(smollm2), *argv, *options]) == 0
        return [said["ids"] for said in map(json.loads, capsys.readouterr().out.splitlines()) if "ids" in said]

    beginning = "The capital of France is Paris, and the capital of "
    prompts = (beginning + "Italy is", beginning + "the United Kingdom of Great Britain and Northern Ireland is", "Hello", beginning)
    repeated = [part for prompt in prompts for part in ("--prompt", prompt)]
    assert ids("--parallel", "3", *repeated) == [alone for prompt in prompts for alone in ids("--prompt", prompt)]
