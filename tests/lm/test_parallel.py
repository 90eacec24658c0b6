"""`--parallel N`, `--prompts FILE` and `model.generate([...])`: several prompts side by side, each with the answer that it has alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_lm
from iron_core.errors import CheckpointError, UsageError
from iron_lm import parallel, process
from iron_lm.generation.batch import Batch
from iron_lm.generation.paged import PagedModel
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session

PROMPTS = ("1 2 3 1 2 3 1 2", "1 2 3 1 2 4", "hello", "1 2 3 1 2 3 1 2")
WAYS: dict[str, tuple[Any, ...]] = {
    "greedy": (),
    "drawn": ("--temperature", 1.0, "--seed", 3),
    "penalties": ("--temperature", 1.0, "--top-p", 0.9, "--repetition-penalty", 1.2, "--frequency-penalty", 0.1),
    "a form": ("--regex", "[a-z ]{5,30}"),
    "a stop": ("--stop", "e"),
    "each step": ("--each-step",),
    "no tiles": ("--no-tiles",),
    "cut": ("--prompt-len", 4),
}


def _repeated(prompts: tuple[str, ...]) -> list[str]:
    return [part for prompt in prompts for part in ("--prompt", prompt)]


# -- the engine over a model --------------------------------------------------------------------------

SAMPLERS = (
    Sampler(), Sampler(temperature=1.0, seed=3), Sampler(temperature=0.8, top_p=0.9, seed=5), Sampler(repetition_penalty=1.3),
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(tiny: Any) -> tuple[Session, PagedModel]:
    """The tiny Llama alone, and over a pool in which two long sequences do not fit."""
    return Session(tiny.model(), backend="host"), PagedModel(tiny.model(), pages=3, sequences=3, backend="host")


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_batch_of_a_model_is_its_session_many_times(tiny: Any, engine: tuple[Session, PagedModel], data: st.DataObject) -> None:
    """Token by token: prompts of all lengths that share beginnings, arriving at any pass; a few of them are cancelled."""
    session, paged = engine
    batch, asked, cancelled = Batch(paged), [], set()
    for _ in range(data.draw(st.integers(1, 6))):
        length, other = data.draw(st.integers(1, 90)), data.draw(st.integers(0, 100))
        ids = [(7 * n if n >= other else 3 * n) % tiny.config().vocab_size for n in range(length)]
        given = ids, data.draw(st.integers(1, 20)), data.draw(st.sampled_from(SAMPLERS))
        asked.append((batch.submit(*given), given))
        for _ in range(data.draw(st.integers(0, 4))):
            batch.step()
        if data.draw(st.integers(0, 5)) == 0:
            asked[-1][0].cancel()
            cancelled.add(asked[-1][0])
    batch.run()
    for request, given in asked:
        want = session.generate(*given)
        assert request.ended and request.error is None
        assert request.answer == (want[: len(request.answer)] if request in cancelled else want)


@pytest.mark.parametrize("name", ("gemma3", "qwen3_moe", "gpt2"))
def test_other_families_answer_as_their_sessions(tmp_path: Path, name: str) -> None:
    """Layers with a reach, experts, learned positions."""
    from tests.families.conftest import Family

    made = Family(name, tmp_path)
    session, paged = Session(made.model(), backend="host"), PagedModel(made.model(), pages=6, sequences=3, backend="host")
    batch, ids = Batch(paged), [*made.ids, *made.ids][:40]
    asked = [(ids[:n], 12, sampler) for n, sampler in zip((40, 38, 3, 40), SAMPLERS, strict=True)]
    requests = [batch.submit(*each) for each in asked]
    batch.run()
    for request, asked_for in zip(requests, asked, strict=True):
        assert request.error is None and request.answer == session.generate(*asked_for)


# -- the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_answer_is_its_prompts_alone(line: Any, way: tuple[Any, ...]) -> None:
    """Whatever else the line asks for. `--json` has a line for each answer, in the order of the prompts, and one of the run."""
    if "--regex" in way:
        pytest.importorskip("llguidance", reason="llguidance, which makes the masks, is not installed")
    asked = ("--num-tokens", 20, "--dtype", "float32", "--max-seq-len", 128, "--json", *way)
    alone = [json.loads(line("--prompt", prompt, *asked)[1]) for prompt in PROMPTS]
    for n in (1, 3):
        status, out, err = line("--parallel", n, *_repeated(PROMPTS), *asked)
        assert status == 0, err
        *answers, run = map(json.loads, out.splitlines())
        assert answers == [
            {"prompt": n, "prompt_ids": want["prompt_ids"], "ids": want["ids"], "text": want["text"]} for n, want in enumerate(alone)
        ]
        assert (run["answers"], run["tokens"]) == (4, sum(len(want["ids"]) for want in alone))
        assert run["prompt_tokens"] == sum(len(want["prompt_ids"]) for want in alone) and run["dtype"] == "float32"


def test_answers_are_printed_apart(line: Any, tmp_path: Path) -> None:
    """Each behind its prompt, in the order of the prompts, whether repeated or the lines of a file; below them what the run took."""
    asked = ("--num-tokens", 12, "--backend", "host")
    alone = [line("--prompt", prompt, *asked)[1] for prompt in PROMPTS]
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(PROMPTS[2:]) + "\n\n")
    status, out, err = line("--parallel", 2, *_repeated(PROMPTS[:2]), "--prompts", file, *asked)
    assert status == 0 and out == "\n".join(alone)
    assert re.search(r"\n4 answers, \d+ tok in \d+\.\d\d s \(\d+\.\d tok/s\) · prompts \d+ tok, \d+ tok computed in all · ", err), err


def test_a_common_prompt_is_computed_once(line: Any) -> None:
    """Eight answers after it cost its tokens once, and then their own."""
    prompt = "the same for everybody: " * 4
    asked = ("--num-tokens", 3, "--json", "--max-seq-len", 256)
    run = json.loads(line("--parallel", 8, *_repeated(tuple(prompt + str(n) for n in range(8))), *asked)[1].splitlines()[-1])
    assert run["computed"] < run["prompt_tokens"] / 8 + 8 * 3 + 8


# -- from Python --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> iron_lm.Model:
    return iron_lm.load(tiny_gguf(metadata=byte_metadata), dtype="float32", max_seq_len=128, parallel=3, backend="host")


@pytest.mark.parametrize("rules", [{}, dict(temperature=1.0, seed=3), dict(repetition_penalty=1.3, stop="e")])
def test_several_prompts_stream_each(model: iron_lm.Model, rules: dict[str, Any]) -> None:
    """Asked one by one, in turns, or left early; ids and texts may stand beside each other."""
    prompts = [*PROMPTS, [5, 6, 7]]
    want = [list(model.generate(prompt, 15, **rules)) for prompt in prompts]
    assert [list(answer) for answer in model.generate(prompts, 15, **rules)] == want
    turns, got = model.generate(tuple(prompts), 15, **rules), [list[str]() for _ in prompts]
    for _ in range(16):
        for answer, pieces in zip(turns, got, strict=True):
            pieces += [piece] if (piece := next(answer, None)) else []
    assert got == want
    left = model.generate(prompts, 15, **rules)
    next(left[0])
    del left[1:]
    left[0].close()  # type: ignore[attr-defined]
    assert [list(answer) for answer in model.generate(prompts, 15, **rules)] == want


def test_answers_that_nobody_keeps_are_not_made(model: iron_lm.Model) -> None:
    """Iterators that are gone before they began leave nothing in the batch."""
    model.generate(PROMPTS, 15)
    assert model._beside is not None and not model._beside.batch._requests


def test_forms_hold_each(model: iron_lm.Model) -> None:
    """Of a regular expression; each answer has one of its own."""
    pytest.importorskip("llguidance", reason="llguidance, which makes the masks, is not installed")
    want = [list(model.generate(prompt, 15, regex="[a-z]{3,9}")) for prompt in PROMPTS]
    assert [list(answer) for answer in model.generate(PROMPTS, 15, regex="[a-z]{3,9}")] == want


# -- what cannot be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--prompt", "a", "--prompt", "b"), r"--prompt was given 2 times; legal: once, or --parallel N, which answers several"),
        (("--prompts", "x"), r"--prompts is for --parallel N"),
        (("--parallel", 2), r"--parallel N needs prompts: --prompt TEXT, which may be repeated, --prompts FILE, or standard input"),
        (("--parallel", 0, "--prompt", "a"), r"--parallel.*0 is not in the range"),
        (("--parallel", 2, "--prompt", "a", "--shift"), r"--parallel and --shift exclude each other; leave one out"),
        (("--parallel", 2, "--prompt", "a", "--state", "x"), r"--parallel and --state exclude each other"),
        (("--parallel", 2, "--prompt", "a", "--lookup"), r"--parallel and --lookup exclude each other"),
        (("--parallel", 2, "--prompt", "a", "--draft", "x"), r"--parallel and --draft exclude each other"),
        (("--parallel", 2, "--prompt", "a", "--profile"), r"--parallel and --profile exclude each other"),
        (("--parallel", 2, "--chat"), r"--chat and --parallel exclude each other"),
        (("--parallel", 2, "--bench"), r"--bench and --parallel exclude each other"),
        (("--parallel", 2, "--prompts", "/nowhere/prompts"), r"--prompts /nowhere/prompts: No such file or directory"),
        (("--parallel", 2, "--prompt", "a", "--prompt", ""), r"prompt 2 of 2: --prompt is empty"),
        (("--parallel", 2, "--prompt", "abc", "--max-seq-len", 32, "--num-tokens", 30), r"prompt 1 of 1: --max-seq-len 32 has no room"),
    ],
)
def test_lines_that_cannot_be(line: Any, argv: tuple[Any, ...], says: str) -> None:
    """By one line, before anything is compiled."""
    status, out, err = line(*argv)
    assert (status, out) == (2, "") and re.search(says, err.strip().splitlines()[-1]), err


@pytest.mark.parametrize(
    ("raw", "says"), [(b"\n \n", "no line has a prompt"), (b"\xff\n", "no UTF-8")], ids=("empty lines", "other bytes")
)
def test_files_that_have_no_prompts(line: Any, tmp_path: Path, raw: bytes, says: str) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(raw)
    status, _, err = line("--parallel", 2, "--prompts", file)
    assert status == 2 and err.strip().endswith(f"--prompts {file}: {says}."), err


@pytest.mark.parametrize(
    ("prompts", "asked", "says"),
    [
        (["a", []], {}, "generate: prompt 1 is empty; legal: some text, or ids"),
        (["a", "b" * 120], dict(max_tokens=20), r"generate: max_tokens=20 after prompt 1 of 12\d tokens; legal: 1 to"),
        (["a", "b"], dict(shift=True), "generate: shift is for one prompt at a time; leave it out, or give the prompts one by one"),
    ],
)
def test_calls_that_cannot_be(model: iron_lm.Model, prompts: list[str], asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        model.generate(prompts, **asked)


def test_a_number_of_answers_is_one_or_more(talking: Path) -> None:
    with pytest.raises(UsageError, match=r"parallel=0; legal: 1 or more"):
        iron_lm.load(talking, parallel=0)


def test_guesses_are_for_one_prompt(talking: Path) -> None:
    """A model that guesses answers several prompts once it does not."""
    guessing = iron_lm.load(talking, lookup=True, max_seq_len=128, backend="host")
    with pytest.raises(UsageError, match=r"what guesses tokens \(lookup, draft\) is for one prompt at a time"):
        guessing.generate(["a", "b"])
    guessing.speculation = None
    assert [list(answer) for answer in guessing.generate(["a", "b"], 5)] == [list(guessing.generate(each, 5)) for each in "ab"]


def test_recurrent_states_are_refused(tmp_path: Path) -> None:
    """By the family's name, before anything is compiled."""
    from tests.families.conftest import Family

    made = Family("qwen3_5", tmp_path).write()
    loaded = iron_lm.load(made, backend="host").loaded
    with pytest.raises(UsageError, match="pages hold keys and values, and the layers of qwen3_5 keep recurrent states besides"):
        parallel.Parallel(loaded, 2)


def test_a_pool_that_memory_has_no_room_for_is_refused(model: iron_lm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it takes and what is free, before it is made."""
    pages = parallel.pages_of(model.loaded.context, 3)
    assert pages == 128 // 64 + 3
    needs = parallel.pool_bytes(model.loaded.model(), pages)
    config = model.config
    assert needs == pages * 64 * config.num_layers * 2 * config.num_kv_heads * config.head_dim * 4
    monkeypatch.setattr(process, "available_bytes", lambda: needs - 1)
    with pytest.raises(CheckpointError, match=rf"^3 sequences side by side: {pages} pages of keys and values take .*; a smaller"):
        parallel.Parallel(model.loaded, 3, backend="host")
