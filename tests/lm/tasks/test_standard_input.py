"""What is piped into `iron-run`: a prompt, or several; and a line without any prompt."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from iron_lm import runner


@pytest.fixture
def piped(line: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `line`, with some bytes on standard input."""

    def run(given: bytes, *argv: object, **options: Any) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        return line(*argv, "--backend", "reference", "--num-tokens", 2, **options)

    return run


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_what_is_piped_in_is_the_prompt(piped: Any, end: bytes) -> None:
    """It is the same as --prompt, lines and all, without the line end that a file has at its end."""
    status, out, err = piped("tea,\n\n wört".encode() + end)
    assert status == 0 and out == piped(b"", "--prompt", "tea,\n\n wört")[1] and out.startswith("tea,\n\n wört"), err


def test_a_prompt_on_the_line_leaves_standard_input_alone(piped: Any) -> None:
    """As do a prompt that is made, and tasks that want none."""
    assert piped(b"coffee", "--prompt", "tea")[1].startswith("tea")
    for more in (["--prompt-len", 3], ["--check-determinism", 2], ["--embed", "tea"]):
        assert piped(b"\xff", *more)[0] == 0


def test_prompts_are_piped_in_a_line_each(piped: Any) -> None:
    """For --parallel, with `--prompts -` or without; beside those of the line, where it is asked for."""
    alone = piped(b"", "--parallel", 2, "--prompt", "tea", "--prompt", "cup")[1]
    assert piped(b"tea\n\ncup\r\n", "--parallel", 2)[1] == piped(b"tea\ncup", "--parallel", 2, "--prompts", "-")[1] == alone
    assert piped(b"cup\n", "--parallel", 2, "--prompt", "tea", "--prompts", "-")[1] == alone
    assert piped(b"cup\n", "--parallel", 2, "--prompt", "tea")[1] == piped(b"", "--parallel", 2, "--prompt", "tea")[1]


@pytest.mark.parametrize(
    ("given", "argv", "says"),
    [
        (b"", [], r"no prompt: standard input is empty; give --prompt TEXT, or a text on standard input"),
        (b" \n\n", [], "no prompt: standard input is empty"),
        (b"\xff\xfe", [], "standard input: no UTF-8"),
        (b"\n", ["--parallel", 2], "standard input: no line has a prompt"),
        (b"\xff", ["--parallel", 2, "--prompts", "-"], "standard input: no UTF-8"),
    ],
)
def test_no_prompt_is_an_error(piped: Any, given: bytes, argv: list[object], says: str) -> None:
    """There is no usual one. In one line, with what is legal."""
    status, out, err = piped(given, *argv)
    assert (status, out) == (2, "") and re.fullmatch(rf"error: {says}.*\n", err), err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "at_terminal", lambda: True)


def test_somebody_at_a_terminal_is_talked_to(terminal: None, piped: Any, tiny_gguf: Any, byte_metadata: dict[str, Any]) -> None:
    """With no prompt, where the checkpoint has a chat template; where it has none, or --json wants an answer, there is an error."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    talks = tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": template})
    status, out, err = piped(b"tea\n", "--system", "be brief", checkpoint=talks)
    assert status == 0 and out and "/help lists the commands" in err
    assert piped(b"tea", "--json", checkpoint=talks)[0] == 0  # a text that goes on
    assert piped(b"", "--prompt", "tea", checkpoint=talks)[1].startswith("tea")
    status, _, err = piped(b"tea\n")
    assert status == 2 and "no prompt, and a conversation needs a chat template" in err and "--prompt TEXT" in err


def test_a_terminal_is_not_waited_for(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a text goes on and nobody gave one, as with --json, a terminal is not read as if it were a file."""

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

        def read(self, *_: Any) -> str:
            raise AssertionError("it waits for somebody to type")

    monkeypatch.setattr("sys.stdin", Typed())
    status, out, err = line("--json", "--backend", "reference")
    assert (status, out) == (2, "") and err.startswith("error: no prompt; give --prompt TEXT")
    status, _, err = line("--parallel", 2, "--backend", "reference")
    assert status == 2 and "--parallel N needs prompts" in err


def test_the_header_has_the_file_by_its_name(piped: Any, talking: Any) -> None:
    """And --json its path beside."""
    err = piped(b"tea")[2]
    assert f"· {talking.name}\n" in err and str(talking) not in err
    assert f'"path": "{talking}"' in piped(b"tea", "--json")[1]
