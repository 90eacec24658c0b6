"""Ctrl-C in a language model's program: what is under way ends at once, what was done stands, and nothing is broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.compiled.graph import CompiledGraph
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session

#: A program that sends itself SIGINT as it makes its nth call of a compiled graph: just before, inside or after it.
AT_A_CALL = """
import signal, sys
from iron_core.compiled.graph import CompiledGraph

calls, call = [], CompiledGraph.__call__

def counted(self, *tensors, **values):
    calls.append(1)
    if len(calls) == {n}:
        signal.raise_signal(signal.SIGINT)
    return call(self, *tensors, **values)

CompiledGraph.__call__ = counted
import _iron_start

_iron_start.iron_run()
"""


def run(code: str, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=300, **options)


@pytest.mark.parametrize(("held", "chunk"), [(0, 0), (0, 1), (0, 2), (40, 1), (40, 2)])
def test_a_session_keeps_the_chunks_that_it_read(tiny: Any, monkeypatch: Any, held: int, chunk: int) -> None:
    """Up to the one that was interrupted; what comes next is as if nothing had been, bit for bit."""
    session, fresh = (Session(tiny.model(), backend="host") for _ in range(2))
    if held:
        session.logits(tiny.ids[:held])
    call, calls = CompiledGraph.__call__, []

    def counted(self: Any, *tensors: Any, **values: Any) -> Any:
        made = call(self, *tensors, **values)
        calls.append(values)
        if values["chunk"] == chunk:
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(CompiledGraph, "__call__", counted)
    with pytest.raises(KeyboardInterrupt):
        session.logits(tiny.ids[:96])
    assert session.held == tiny.ids[: chunk * 32]
    monkeypatch.undo()
    assert np.array_equal(session.logits(tiny.ids[:96]), fresh.logits(tiny.ids[:96]))
    assert session.generate(tiny.ids[:96], 8) == fresh.generate(tiny.ids[:96], 8)


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=0.8, seed=1), Sampler(repetition_penalty=1.2)])
def test_a_session_keeps_what_it_generated(tiny: Any, sampler: Sampler) -> None:
    """Ctrl-C at any token: what is held is what the caches have, so that generating again gives the same."""
    fresh = Session(tiny.model(), backend="host").generate(tiny.ids[:10], 12, sampler)
    session = Session(tiny.model(), backend="host")
    for stop in (1, 2, 5, 11):
        told: list[int] = []

        def on_token(token: int, told: list[int] = told, stop: int = stop) -> bool:
            told.append(token)
            if len(told) == stop:
                signal.raise_signal(signal.SIGINT)
            return False

        with pytest.raises(KeyboardInterrupt):
            session.generate(tiny.ids[:10], 12, sampler, on_token)
        assert told == fresh[:stop] and [*tiny.ids[:10], *fresh][: len(session.held)] == session.held
    assert session.generate(tiny.ids[:10], 12, sampler) == fresh


def test_a_sampler_that_was_half_set_is_set_again(tiny: Any, monkeypatch: Any) -> None:
    """Ctrl-C while the draws are written: the next answer has its own, the old ones too."""
    one, two = (Sampler(temperature=0.8, seed=seed) for seed in (1, 2))
    session = Session(tiny.model(), backend="host")
    first = session.generate(tiny.ids[:10], 8, one)
    write = CompiledGraph.write

    def interrupted(self: Any, *given: Any) -> None:
        write(self, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(CompiledGraph, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.generate(tiny.ids[:10], 8, two)
    monkeypatch.undo()
    assert session.generate(tiny.ids[:10], 8, one) == first


@pytest.fixture(scope="module")
def chatting(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> str:
    """The tiny Llama with a tokenizer of bytes and a chat template."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return str(tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": template}))


def test_ctrl_c_ends_the_reading_of_a_chats_message(chatting: str) -> None:
    """The message is taken back and the talk goes on with the next one; the end of the input is no error."""
    talk = "word " * 300 + "\n/stats\nHi\n/stats\n"
    done = run(AT_A_CALL.format(n=3), "llama", chatting, "--chat", "--num-tokens", "8", input=talk)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()
    stopped = said.index("stopped before there was an answer; the message is taken back")
    assert said[stopped + 1].endswith("tokens held, 0 messages") and any(
        text.endswith("tokens held, 2 messages") for text in said[stopped:]
    )
    assert done.stdout.endswith("\n")


@pytest.mark.parametrize(("options", "call"), [(["--prompt", "word " * 300], 3), (["--bench"], 7), (["--check-determinism", "2"], 2)])
def test_ctrl_c_ends_a_run(chatting: str, options: list[str], call: int) -> None:
    """In the prompt, in a bench, in a check: exit status 130 and no traceback."""
    done = run(AT_A_CALL.format(n=call), "llama", chatting, *options)
    assert done.returncode == 130 and "Traceback" not in done.stderr and "error" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="the compiler here is a shell script")
@pytest.mark.parametrize("hears", ["", "trap '' TERM\n"], ids=["", "a compiler that hears of no end"])
def test_ctrl_c_ends_compiling(iron_run: Any, chatting: str, tmp_path: Path, hears: str) -> None:
    """And the compilers, with what they started; nothing half-built is left in the cache."""
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n{hears}echo $$ >> {tmp_path}/started\nsleep 1000\n')
    compiler.chmod(0o755)
    env = os.environ | {"CXX": str(compiler), "NPU_CACHE_HOME": str(tmp_path / "cache"), "IRON_BACKEND": "host", "PYTHONFAULTHANDLER": "1"}
    program = iron_run.start("llama", chatting, "--prompt", "a b", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while program.poll() is None and not (tmp_path / "started").exists():
        time.sleep(0.01)
    program.send_signal(signal.SIGINT)
    try:
        _, err = program.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGABRT)  # says where every thread is
        _, err = program.communicate(timeout=60)
        pytest.fail(err.decode())
    assert program.returncode == 130 and b"Traceback" not in err, err
    for process in (tmp_path / "started").read_text().split():
        assert not alive(int(process))
    assert not list((tmp_path / "cache").rglob("kernel.so")) and not list((tmp_path / "cache").rglob(".*.tmp-*"))


def alive(process: int) -> bool:
    """Does a process run? What ended and waits for nobody to ask does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
