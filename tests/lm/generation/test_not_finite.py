"""Logits that become NaN or infinite while tokens come: every way to run says so, after what was said before."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main
from iron_core.errors import CheckpointError
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session

SAYS = "the logits are not finite: the weights hold NaN or infinity, or overflow the dtype they run in"
WAYS = {
    "greedy": {},
    "drawn": {"temperature": 0.7, "seed": 3},
    "of many": {"temperature": 0.7, "top_k": 100, "seed": 3},
    "top-p": {"temperature": 0.7, "top_p": 0.9, "seed": 3},
    "penalty": {"repetition_penalty": 1.1},
}


@pytest.mark.parametrize("backend", ["host", "reference"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_generating_ends_at_the_step(tiny: Any, backend: str, way: str, bad: float) -> None:
    """Whoever chooses, the graph or the program: the tokens before it are told, and the session is of use afterwards."""
    sampler = Sampler(**WAYS[way])
    ids = tiny.ids[:5]
    whole = Session(tiny.model(), backend=backend).generate(ids, 6, sampler)
    broken = next(token for token in whole[1:4] if token not in (*ids, whole[0]))
    model = tiny.model()
    table = np.array(model.embedding.table.data)
    table[broken] = bad
    model.embedding.table.data = table
    session = Session(model, backend=backend)
    for _ in range(2):
        told: list[int] = []
        with pytest.raises(CheckpointError, match=SAYS):
            session.generate(ids, 6, sampler, lambda token: told.append(token))  # type: ignore[func-returns-value]
        assert told == whole[: whole.index(broken) + 1]
    with pytest.raises(CheckpointError, match=SAYS):
        session.logits([*ids, broken])
    assert np.array_equal(session.logits(ids), Session(tiny.model(), backend=backend).logits(ids))


@pytest.fixture(scope="module")
def broken(tiny_gguf: Any, byte_metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The tiny Llama with a tokenizer of bytes and a template; and with NaN for the embedding of every token from 20 on
    that no prompt here has."""
    gguf = pytest.importorskip("gguf")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    whole = Path(tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": template}))
    copy = tmp_path_factory.mktemp("broken") / "broken.gguf"
    shutil.copy(whole, copy)
    (table,) = [t.data for t in gguf.GGUFReader(copy, "r+").tensors if t.name == "token_embd.weight"]
    kept = {*b"The capital of France is Hi", 252, 254, 255}
    table[[i for i in range(20, 256) if i not in kept]] = np.nan
    table.flush()
    return whole, copy


@pytest.mark.parametrize("options", [[], ["--temperature", "0.7"], ["--top-p", "0.9", "--temperature", "0.7"], ["--chat"], ["--json"]])
def test_the_command_shows_what_came_before(broken: tuple[Path, Path], capsys: Any, monkeypatch: Any, options: list[str]) -> None:
    """Exit status 2, the text so far ended by a newline (nothing with --json), and one line that says why."""
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nagain\n"))
    line = [*options, "--num-tokens", "40", "--seed", "1"]
    assert main(["run", "llama", str(broken[0]), *line]) == 0
    whole, _ = capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nagain\n"))
    assert main(["run", "llama", str(broken[1]), *line]) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"error: {SAYS}[^\n]*", err.splitlines()[-1]), err
    if "--json" in options:
        assert out == ""
    else:
        assert out.endswith("\n") and whole.startswith(out[:-1]), out


def test_the_bench_does_not_print_rates_of_nothing(broken: tuple[Path, Path], capsys: Any) -> None:
    """A table of a model that computes NaN would be no model's."""
    assert main(["run", "llama", str(broken[1]), "--bench"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and SAYS in err
