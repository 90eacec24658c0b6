"""`iron-run llama`: what it prints, and how it refuses what cannot be."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main

ONE_LINE = re.compile(r"error: [^\n]+\n")


class Line:
    """`iron-run llama` in this process, over the tiny GGUF with a tokenizer unless the line names another checkpoint. What it reads
    on standard input is `piped`."""

    def __init__(self, checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint, self.capsys, self.monkeypatch = checkpoint, capsys, monkeypatch
        self.piped = b"The capital of France is\n"

    def __call__(self, *argv: object, bare: bool = False) -> tuple[int, str, str]:
        """(exit status, standard output, standard error)."""
        given = [] if bare or "--checkpoint" in argv else ["--checkpoint", str(self.checkpoint)]
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(self.piped), encoding="utf-8"))
        status = main(["run", "llama", *given, *map(str, argv)])
        out, err = self.capsys.readouterr()
        return status, out, err

    def json(self, *argv: object, **options: Any) -> dict[str, Any]:
        status, out, err = self(*argv, "--json", **options)
        assert status == 0, err
        return dict(json.loads(out))

    def refused(self, says: str, *argv: object, **options: Any) -> None:
        """Exit status 2, nothing on standard output, one line that says so."""
        status, out, err = self(*argv, **options)
        assert (status, out) == (2, "") and ONE_LINE.fullmatch(err), (status, out, err)
        assert re.search(says, err), err


@pytest.fixture
def line(talking: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(talking, capsys, monkeypatch)


# -- sampling and rates ---------------------------------------------------------------------------


def test_every_sampling_rule_is_reproducible(line: Line) -> None:
    """The same line twice gives the same ids; another seed others; the greedy choice needs no seed."""
    rules = ("--temperature", 1.5, "--top-p", 0.95, "--min-p", 0.01, "--repetition-penalty", 1.2, "--num-tokens", 12)
    one, two = line.json(*rules, "--seed", 3), line.json(*rules, "--seed", 3)
    assert one["ids"] == two["ids"] != line.json(*rules, "--seed", 4)["ids"]
    greedy = line.json("--num-tokens", 6)["ids"]
    assert line.json("--num-tokens", 6, "--repetition-penalty", 1.0001, "--repeat-last-n", 0)["ids"] == greedy
    once = line.json("--num-tokens", 6, "--presence-penalty", 1e5)["ids"]
    assert len(set(once)) == 6 and once == line.json("--num-tokens", 6, "--frequency-penalty", 1e5)["ids"]
    banned = line.json("--num-tokens", 6, "--logit-bias", f"{greedy[0]}=-inf")["ids"]
    assert greedy[0] not in banned


def test_a_stop_string_ends_the_answer(line: Line) -> None:
    """What comes before it is the answer; it is not."""
    text = line.json("--num-tokens", 12)["text"]
    stop = text[3:6]
    assert line.json("--num-tokens", 12, "--stop", stop)["text"] == text[: text.index(stop)]


def test_an_answer_goes_on_where_the_prompt_ends(line: Line, tiny_gguf: Any) -> None:
    """Its first word keeps its space, in a vocabulary where a text's first word has none, and a stop string sees it."""
    tokens = ["<unk>", "<s>", "</s>", "▁and", "▁a", "▁", *"andx", *(f"<fill{i}>" for i in range(246))]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 253],
    }
    argv = ("--checkpoint", tiny_gguf(metadata=metadata), "--prompt", "a", "--num-tokens", 2, "--logit-bias", "3=1e6")
    assert line(*argv)[1] == "a and and\n" and line.json(*argv)["text"] == " and and"
    assert line(*argv, "--stop", " and")[1] == "a\n"


def test_bench_prints_rates_over_a_grid(line: Line) -> None:
    """Prompts and decoding at depths that fit the context; a table, or one object with --json."""
    found = line.json("--bench", "--max-seq-len", 64)
    assert [rate["name"] for rate in found["rates"]] == ["pp16", "pp64", "tg32"]
    assert all(len(rate["rates"]) == 3 and min(rate["rates"]) > 0 for rate in found["rates"])
    status, out, _ = line("--bench", "--max-seq-len", 64)
    assert status == 0 and out.split()[:2] == ["test", "tok/s"]


# -- what it prints -------------------------------------------------------------------------------


def test_standard_output_is_the_text_alone(line: Line) -> None:
    """Prompt and answer go to standard output; what ran and how fast, to standard error, in four lines."""
    status, out, err = line("--prompt", "the tea", "--num-tokens", 6)
    assert status == 0 and out.startswith("the tea") and out.endswith("\n")
    assert len(err.splitlines()) == 4
    for word in ("float32 as in the file", "host (", "load", "compile", "prompt 6 tok", "first token", "MB of its own"):
        assert word in err
    assert out == "the tea" + line.json("--prompt", "the tea", "--num-tokens", 6)["text"] + "\n"


def test_an_npu_that_is_meant_is_named(line: Line) -> None:
    """Whoever leaves out --dev sees which one the backend took."""
    for dev in ("npu1", "npu2"):
        assert f"reference on {dev} (" in line("--backend", "reference", "--dev", dev, "--num-tokens", 1)[2]
    assert "reference (" in line("--backend", "reference", "--num-tokens", 1)[2]


def test_json_is_one_object_and_nothing_else(line: Line) -> None:
    """--json gives ids, text and every figure, and leaves standard error empty."""
    status, out, err = line("--prompt", "the", "--num-tokens", 5, "--json")
    found = json.loads(out)
    assert status == 0 and err == "" and out.count("\n") == 1
    assert found["prompt_ids"] == [252, ord("t"), 255] and 1 <= len(found["ids"]) <= 5
    for key in ("load_s", "compile_s", "first_token_cpu_s", "decode_tok_s", "peak_memory_mb", "backend", "weights"):
        assert key in found


def test_a_prompt_is_greedy_and_the_same_on_both_backends(line: Line) -> None:
    """Without --temperature the answer is one, whoever computes it, on however many threads and however dispatched."""
    want = line.json("--num-tokens", 12)["ids"]
    for more in (["--backend", "reference"], ["--threads", 1], ["--threads", 3], ["--each-step"], ["--dev", "host"], ["--max-seq-len", 64]):
        assert line.json("--num-tokens", 12, *more)["ids"] == want, more


def test_draws_repeat_with_their_seed(line: Line) -> None:
    """The same temperature and seed give the same ids, another seed others, and --top-k 1 the greedy ones."""
    hot = ["--num-tokens", 16, "--temperature", 1.5]
    first = line.json(*hot, "--seed", 7)["ids"]
    assert line.json(*hot, "--seed", 7)["ids"] == first != line.json(*hot, "--seed", 8)["ids"]
    assert line.json(*hot, "--top-k", 1)["ids"] == line.json("--num-tokens", 16)["ids"]


@pytest.mark.parametrize("length", (1, 63, 64, 65, 130))
def test_prompt_len_counts_tokens(line: Line, length: int) -> None:
    """A prompt is cut to so many tokens, or made of so many where none is given."""
    assert len(line.json("--prompt-len", length, "--num-tokens", 1)["prompt_ids"]) == length
    whole = line.json("--prompt", "x" * 140, "--num-tokens", 1)["prompt_ids"]
    assert line.json("--prompt", "x" * 140, "--prompt-len", length, "--num-tokens", 1)["prompt_ids"] == whole[:length]


def test_a_cut_prompt_is_shown_as_it_was_cut(line: Line) -> None:
    """What is printed before the answer is what the model was given."""
    status, out, _ = line("--prompt", "x" * 140, "--prompt-len", 30, "--num-tokens", 1, "--json")
    assert status == 0
    shown = line("--prompt", "x" * 140, "--prompt-len", 30, "--num-tokens", 1)[1]
    assert 0 < shown.count("x") < 140 and shown.strip().startswith("xxx") and json.loads(out)["text"] in shown


@pytest.mark.parametrize("context", (1 + 8, 63, 65, 448))
def test_a_context_is_used_to_its_last_token(line: Line, context: int) -> None:
    """Prompt and answer may fill --max-seq-len exactly; one token more is refused with what would fit."""
    room = ["--max-seq-len", context, "--prompt", "1234567"]  # 8 tokens with the first
    assert len(line.json(*room, "--num-tokens", context - 8)["ids"]) in range(1, context - 7)
    line.refused(f"--num-tokens up to {context - 8}", *room, "--num-tokens", context - 7)


def test_dtypes_are_said_and_agree(line: Line) -> None:
    """Each --dtype runs, says what was converted, and greedy ids of a short answer agree with float32's."""
    want = line.json("--num-tokens", 3)["ids"]
    for dtype, computed in (("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32")):
        found = line.json("--num-tokens", 3, "--dtype", dtype)
        assert (found["dtype"], found["cache_dtype"], found["ids"]) == (computed, dtype, want)
        assert found["weights"] == ("float32 as in the file" if dtype == "float32" else f"{dtype} from float32")


def test_block_weights_run_both_arithmetics(line: Line, tiny_gguf: Any) -> None:
    """A Q8_0 file defaults to int8 activations; exact ones, and widened weights, on request."""
    path = tiny_gguf("Q8_0")
    for more, arithmetic in (([], "int8_block"), (["--activations", "exact"], "exact"), (["--dtype", "float32"], "exact")):
        found = line.json("--checkpoint", path, "--num-tokens", 2, *more)
        assert found["activations"] == arithmetic
    line.refused("needs block-quantised weights", "--checkpoint", path, "--dtype", "bfloat16", "--activations", "int8_block")


def test_a_model_without_tokenizer_runs_on_ids(line: Line, tiny: Any) -> None:
    """The prompt is drawn ids and the answer printed as ids; --prompt asks for a tokenizer."""
    status, out, _ = line("--checkpoint", tiny.checkpoint.path, "--num-tokens", 4)
    assert status == 0 and re.fullmatch(r"(\d+ ){4}\n", out)
    for text in ("hello", ""):
        line.refused("--prompt needs a tokenizer", "--checkpoint", tiny.checkpoint.path, "--prompt", text)


def test_checks_print_each_figure_beside_its_gate(line: Line) -> None:
    """--check-accuracy and --check-determinism print gates and pass; with --json they are one object."""
    status, out, _ = line("--check-accuracy", "--max-seq-len", 32)
    assert status == 0 and "over 32 positions" in out and "(gate <= 0.001) ok" in out
    status, out, _ = line("--check-determinism", 3)
    assert status == 0 and "runs that differ 0 (gate <= 0) ok" in out
    found = line.json("--check-accuracy", "--max-seq-len", 16)
    assert found["passed"] is True and found["compared"] == 16


def test_verbose_explains(line: Line) -> None:
    """--verbose prints, on standard error, the backend and why, the packaging and why, and the steps."""
    status, out, err = line("--verbose", "--num-tokens", 2)
    assert status == 0 and "host is the first available" in err and "fused dispatch" in err and "MHA" in err
    assert "MHA" not in out


# -- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "argv"),
    [
        ("--prompt is empty", ["--prompt", ""]),
        ("not valid UTF-8 at character 0", ["--prompt", "\udcff"]),
        ("--prompt-len 30 is longer than the prompt, 4 tokens", ["--prompt", "abc", "--prompt-len", 30]),
        ("no room for a prompt of 1000000000000 tokens", ["--prompt-len", 10**12]),
        ("Legal: a larger --max-seq-len", ["--max-seq-len", 1, "--num-tokens", 1, "--prompt-len", 1]),
        ("max_seq_len=4097; legal: 1 to 4096", ["--max-seq-len", 4097]),
        ("prefill_chunk=65; legal: 1 to max_seq_len=64", ["--max-seq-len", 64, "--prefill-chunk", 65]),
        ("'--prefill-chunk': 0", ["--prefill-chunk", 0]),
        ("--num-tokens up to", ["--num-tokens", 10**20]),
        ("'--num-tokens': 0", ["--num-tokens", 0]),
        ("'--seed': -1", ["--seed", -1]),
        ("'--random-weights': -1", ["--random-weights", -1]),
        ("temperature=nan; legal", ["--temperature", "nan"]),
        ("temperature=inf; legal", ["--temperature", "inf"]),
        ("'--top-k': 0", ["--top-k", 0]),
        ("'--top-p': 0", ["--top-p", 0]),
        ("'--min-p': 2", ["--min-p", 2]),
        ("'--repetition-penalty': 0", ["--repetition-penalty", 0]),
        ("'--typical-p': 0", ["--typical-p", 0]),
        ("presence_penalty=nan; legal: -1e[+]06 to", ["--presence-penalty", "nan"]),
        ("--logit-bias tea: give ID=B", ["--logit-bias", "tea"]),
        ("logit_bias of token 99999", ["--logit-bias", "99999=1"]),
        ("logit_bias of token 99999; legal: 0 to", ["--bench", "--logit-bias", "99999=1"]),
        ("logit_bias of token 99999; legal: 0 to", ["--check-accuracy", "--logit-bias", "99999=1"]),
        ("logit_bias of token 99999; legal: 0 to", ["--check-determinism", 2, "--logit-bias", "99999=1"]),
        ("--system is for --chat", ["--system", "be brief"]),
        ("needs a chat template", ["--chat"]),
        ("leave out --json", ["--chat", "--json"]),
        ("--chat and --bench exclude each other", ["--chat", "--bench"]),
        ("'--dtype': 'int8'", ["--dtype", "int8"]),
        ("'--check-determinism': 1", ["--check-determinism", 1]),
        ("exclude each other", ["--check-accuracy", "--check-determinism", 2]),
        ("needs block-quantised weights", ["--activations", "int8_block"]),
        ("threads=100000; legal: 1 to", ["--threads", 100000]),
        ("backend reference has no option threads. Its options: none", ["--backend", "reference", "--threads", 2]),
        ("backend='fpga'", ["--backend", "fpga"]),
        ("computes nothing", ["--backend", "null"]),
        ("dev='npu9': no such device", ["--dev", "npu9"]),
        ("no such tokenizer", ["--tokenizer", "/absent/tokenizer.json"]),
        ("no such file or folder", ["--checkpoint", "/absent.gguf"]),
        ("not a kind of checkpoint any reader recognises", ["--checkpoint", os.devnull]),
        ("takes no --checkpoint", ["--random-weights", 0]),
        ("No such option:? '?--promts", ["--promts", "x"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(line: Line, says: str, argv: list[object]) -> None:
    """It names the flag, the value and what would be legal, before anything is printed or built."""
    line.refused(says, *argv)


def test_a_checkpoint_is_needed(line: Line) -> None:
    """A bare line says what to give."""
    line.refused("a checkpoint is needed: a file or folder", bare=True)


@pytest.mark.parametrize(
    ("says", "change"),
    [
        ("no config.json beside it", lambda c: None),
        ("architecture 'mistral'. This model runs: llama", lambda c: c | {"model_type": "mistral"}),
        (r"layers\.2\..* is missing", lambda c: c | {"num_hidden_layers": 3}),
        (r"is none this model has", lambda c: c | {"num_hidden_layers": 1}),
        (r"not \[96, 64\]", lambda c: c | {"intermediate_size": 96}),
        ("not a JSON object", lambda c: [c]),
    ],
)
def test_a_folder_that_is_no_llama_is_refused(line: Line, tiny: Any, tmp_path: Path, says: str, change: Any) -> None:
    """A config.json that is absent, of another model, or at odds with the tensors."""
    (tmp_path / "model.safetensors").write_bytes((tiny.checkpoint.path / "model.safetensors").read_bytes())
    config = change(json.loads((tiny.checkpoint.path / "config.json").read_text()))
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    line.refused(says, "--checkpoint", tmp_path)


@pytest.mark.parametrize("keep", (3, 40, 0.3, 0.99))
def test_a_file_cut_short_is_refused(line: Line, talking: Path, tiny: Any, tmp_path: Path, keep: float) -> None:
    """GGUF or safetensors, wherever it ends."""
    for name, whole in (("cut.gguf", talking), ("cut.safetensors", tiny.checkpoint.path / "model.safetensors")):
        raw = whole.read_bytes()
        (tmp_path / name).write_bytes(raw[: keep if isinstance(keep, int) else int(keep * len(raw))])
        line.refused(re.escape(str(tmp_path / name)), "--checkpoint", tmp_path / name)


@pytest.mark.parametrize("kind", ("F16", "Q8_0"))
def test_weights_with_nan_are_refused(line: Line, tiny_gguf: Any, tmp_path: Path, kind: str) -> None:
    """Scales that are NaN are named before anything runs; numbers that are, once they make nonsense of the logits."""
    raw = bytearray(tiny_gguf(kind).read_bytes())
    for at in range(len(raw) - 34 * 64, len(raw) - 32, 2):  # in the last tensor
        raw[at : at + 2] = np.float16(np.nan).tobytes()
    (tmp_path / "nan.gguf").write_bytes(raw)
    status, _, err = line("--checkpoint", tmp_path / "nan.gguf", "--num-tokens", 2)
    says = "has scales that are NaN or infinite" if kind == "Q8_0" else "the logits are not finite"
    assert status == 2 and says in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.parametrize("place", ("file", "file/below"))
def test_a_cache_that_cannot_be_written_is_refused(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """NPU_CACHE_HOME through a regular file, which not even root can write below."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / place))
    line.refused("NPU_CACHE_HOME.*Set NPU_CACHE_HOME to a folder", "--num-tokens", 1)


def test_too_little_memory_for_the_caches_says_how_much(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was for, its bytes, what all the caches take, and the option that makes them smaller."""
    import mmap

    class Short(mmap.mmap):
        def __new__(cls, fileno: int, length: int, **options: Any) -> Short:
            if fileno == -1 and length > 300_000:  # a state of 4096 rows, and nothing of 64
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            return super().__new__(cls, fileno, length, **options)

    monkeypatch.setattr("iron_host.anonymous.mmap.mmap", Short)
    says = r"not enough memory for .*states?.* \((\d+) bytes\)\. The caches of --max-seq-len 4096 take (\d+) bytes; "
    says += r"a smaller --max-seq-len takes less\."
    line.refused(says, "--num-tokens", 2, "--backend", "host")
    status, _, err = line("--num-tokens", 2, "--max-seq-len", 64, "--backend", "host")
    assert status == 0, err


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("Unable to allocate 9 GiB"), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_no_memory_is_no_bug(line: Line, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Wherever it ends: while the model is loaded, before it, or in a command that is no model's."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("iron_lm.loading.load", fails)
    line.refused(r"not enough memory\. A smaller model takes less\.")
    monkeypatch.setattr("iron_core.cli.listing.plugins", fails)
    assert main(["plugins", "list"]) == 1
    assert re.fullmatch(r"error: not enough memory(: Unable to allocate 9 GiB)?\.\n", line.capsys.readouterr().err)


# -- from outside ---------------------------------------------------------------------------------


def test_a_closed_pipe_is_no_error(iron_run: Any, talking: Path) -> None:
    """`| head` may leave early: no traceback, nothing but the header on standard error."""
    argv = ["llama", "--checkpoint", str(talking), "--prompt", "a b", "--num-tokens", "4000"]
    program = iron_run.start(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout.read(1)
    program.stdout.close()
    err = program.stderr.read().decode()
    assert program.wait() in (0, 141) and "Traceback" not in err and "error" not in err


#: More tokens than can be generated before a signal comes: each looks at all before it, which takes minutes in all.
ENDLESS = 1 << 18


@pytest.fixture(scope="session")
def endless(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> list[str]:
    """A line whose answer does not end by itself: room for ENDLESS tokens, and none of them ends the turn."""
    metadata = byte_metadata | {"llama.context_length": ENDLESS}
    room = ["--num-tokens", str(ENDLESS - 64), "--max-seq-len", str(ENDLESS)]
    prompt = ["--prompt", "The capital of France is"]
    return ["llama", str(tiny_gguf(metadata=metadata)), *prompt, *room, "--logit-bias", "253=-inf", "--temperature", "1"]


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_ctrl_c_ends_the_answer(iron_run: Any, endless: list[str], backend: str) -> None:
    """SIGINT while tokens come: exit status 130, the text so far ended by a newline, no traceback."""
    program = iron_run.start(*endless, "--backend", backend, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout.read(24 + 8)  # the prompt and some of the answer
    program.send_signal(signal.SIGINT)
    out, err = program.communicate()
    assert program.returncode == 130 and out.endswith(b"\n") and b"Traceback" not in err, err


@pytest.mark.slow
def test_two_starts_fill_one_cache(iron_run: Any, talking: Path, tmp_path: Path) -> None:
    """Both print the same text, and nothing half-built is left; killed while filling, the next start is as good."""
    env = os.environ | {"NPU_CACHE_HOME": str(tmp_path)}
    argv = ["llama", "--checkpoint", str(talking), "--prompt", "a b", "--num-tokens", "4"]
    killed = iron_run.start(*argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = tmp_path / "iron" / "host"
    while killed.poll() is None and not list(folder.glob(".*.tmp-*")):
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    programs = [iron_run.start(*argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    results = [p.communicate() for p in programs]
    assert [p.returncode for p in programs] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert not [p for p in tmp_path.rglob(".*") if p.name.startswith(".") and ".tmp-" in p.name]


def test_progress_shows_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe long work writes nothing; on a terminal it shows what it does and wipes it when done."""
    from iron_core.cli import progress

    monkeypatch.setattr(progress, "_EVERY_S", 0.001)
    monkeypatch.delenv("TERM", raising=False)
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        with progress.working("thinking"):
            deadline = time.monotonic() + 10
            shown = ""
            while terminal and "thinking" not in shown and time.monotonic() < deadline:
                shown += capsys.readouterr().err
        assert ("thinking" in shown) == terminal
        assert capsys.readouterr().err.endswith("\r\033[K") == terminal


def test_a_conversation_has_the_context_asked_for(iron_run, tiny_gguf, byte_metadata):
    """Not the caches' rows, which are whole chunks: an answer ends there, and what is said names the number given."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    program = iron_run.start(
        "llama", str(tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": template})), "--chat", "--max-seq-len", "70",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, err = program.communicate(b"hello\n/stats\n" + b"x" * 69 + b"\n")
    said = err.decode("utf-8")
    assert program.returncode == 0 and " of 70 tokens held" in said and "--max-seq-len 70 leaves" in said, said
