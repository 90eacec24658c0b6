"""Whatever the locale, and whatever bytes come in: UTF-8 is read and written, and a conversation goes on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

#: As in a locale that knows no character beyond ASCII.
NARROW = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
WIDE = {"LC_ALL": "C.UTF-8"}
TEMPLATE = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


@pytest.fixture(scope="module")
def chatty(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> Path:
    """The tiny Llama with a chat template."""
    return Path(tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": TEMPLATE}))


@pytest.mark.parametrize("locale", [NARROW, WIDE], ids=["narrow", "wide"])
def test_a_conversation_through_pipes(iron_run: Any, chatty: Path, tmp_path: Path, locale: dict[str, str]) -> None:
    """A stray byte is U+FFFD to the model, /save to a bad place is said, and what is saved is the talk, in UTF-8."""
    (tmp_path / "talk €.json").write_bytes(b"[precious]")
    program = iron_run.start(
        "llama", str(chatty), "--chat", "--num-tokens", "4", "--system", "Say €", cwd=tmp_path, env=os.environ | locale,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    lines = ["grüße €", "/save ~nosuch/x.json", "/save talk €.json"]
    out, err = program.communicate(b"caf\xe9 please\n" + "".join(f"{line}\n" for line in lines).encode())
    said = err.decode("utf-8")
    assert program.returncode == 0, said
    assert "~nosuch/x.json: No such file or directory; the conversation is still here" in said
    assert "5 messages in talk €.json" in said and os.listdir(tmp_path) == ["talk €.json"]
    saved = json.loads((tmp_path / "talk €.json").read_bytes().decode("utf-8"))
    assert [m["content"] for m in saved][:2] == ["Say €", "caf\ufffd please"] and saved[3]["content"] == "grüße €"
    assert "".join(m["content"] + "\n" for m in saved if m["role"] == "assistant") == out.decode("utf-8")


@pytest.mark.parametrize("locale", [NARROW, WIDE], ids=["narrow", "wide"])
def test_a_prompt_is_the_same_ids(iron_run: Any, chatty: Path, locale: dict[str, str]) -> None:
    """The words of a command line are UTF-8, and so is the answer, which begins with them."""
    program = iron_run.start(
        "llama",
        str(chatty),
        "--prompt",
        "grüße €",
        "--num-tokens",
        "4",
        env=os.environ | locale,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = program.communicate()
    assert program.returncode == 0 and out.startswith("grüße €".encode()), err
    assert "·" in err.decode("utf-8")
