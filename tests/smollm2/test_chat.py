"""A conversation in a terminal with real weights: streaming, Ctrl-C, commands, a long paste, a character cut by tokens."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys

import pytest

PATIENCE = 60  # seconds without a byte: something hangs


class Terminal:
    """`iron-run llama --chat` behind a pseudo-terminal."""

    def __init__(self, *options):
        self.master, slave = pty.openpty()
        line = [sys.executable, "-c", "from _iron_start import iron_run; iron_run()", "llama", *options]
        env = os.environ | {"TERM": "dumb", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.close(slave)
        self.text = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def until(self, pattern):
        """Read until the pattern shows in what is new; what was read."""
        start = len(self.text)
        while not re.search(pattern, self.text[start:]):
            ready, _, _ = select.select([self.master], [], [], PATIENCE)
            assert ready, f"nothing more comes after {self.text[-400:]!r}"
            try:
                piece = os.read(self.master, 4096)
            except OSError:
                piece = b""
            assert piece, f"the program ended: {self.text[-800:]!r}"
            self.text += piece.decode(errors="replace")
        return self.text[start:]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


#: What the model says differs by machine (each instruction set rounds in its own way), so the tests wait for any answer.
BEGUN = r"\r\r\n\s*\S"  # behind the echo of what was typed
ANSWERED = BEGUN + r"(?s:.*)\r\n> $"


@pytest.fixture
def terminal(smollm2):
    opened = Terminal("--checkpoint", str(smollm2), "--chat", "--max-seq-len", "1024", "--num-tokens", "400")
    opened.until(r"Ctrl-D leaves")
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_conversation_in_a_terminal(terminal):
    """An answer, commands, an answer that Ctrl-C stops, a paste that is too long and one of three lines, all in one talk."""
    terminal.type("What is the capital of France?\r")
    terminal.until(ANSWERED)
    terminal.type("/stats\r")
    terminal.until(r"of 1024 tokens held, 2 messages\r\n[1-9]\d* tokens, the first after")
    terminal.type("Write a long story about a dragon and a lighthouse.\r")
    terminal.until(BEGUN)
    terminal.interrupt()
    terminal.until(r"stopped; the talk goes on")
    terminal.type("/stats\r")
    terminal.until(r"of 1024 tokens held, 4 messages")
    terminal.type("/reset\r")
    terminal.until(r"a new conversation")
    terminal.type("\x1b[200~" + "A long paste\nof 31415926535897932384 lines. " * 60 + "\x1b[201~\r")  # a digit is a token
    terminal.until(r"the message has \d+ tokens.*Say less")
    terminal.type("\x1b[200~What is\nthe capital\nof France?\x1b[201~\r")
    terminal.until(ANSWERED)
    terminal.type("/stats\r")
    terminal.until(r"of 1024 tokens held, 2 messages")  # the paste was one message
    terminal.type("/quit\r")
    assert terminal.process.wait(timeout=PATIENCE) == 0


def test_a_character_cut_by_tokens_is_shown_whole(smollm2):
    """An emoji is several tokens: the stream holds its bytes back until they are a character."""
    from iron_lm.checkpoints.checkpoint import Checkpoint
    from iron_lm.text.opening import open_tokenizer

    tokenizer = open_tokenizer(None, Checkpoint.open(smollm2))
    ids = tokenizer.encode("a 🦙 b")
    stream = tokenizer.stream()
    pieces = [stream(i) for i in ids]
    assert len(ids) > 3 and "".join(pieces) == "a 🦙 b" and not any("\ufffd" in piece for piece in pieces)
