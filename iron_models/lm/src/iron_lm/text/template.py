"""Chat templates: the Jinja text a checkpoint brings, rendered by a process of its own within a budget.

A template is somebody else's program, and what it does inside a filter nobody counts. So it runs in `sandbox.py`, a small
process that is ended where its CPU or memory is used up. It starts with the first template that is compiled, a tenth of a
second, keeps it compiled between turns, and ends with the object that uses it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, UsageError, printable
from iron_lm.checkpoints.reading import reading
from iron_lm.text.special_tokens import Companions

#: What a rendering may take: seconds of CPU, and bytes beyond those of the empty process.
CPU_SECONDS, MEMORY = 2.0, 256 << 20
#: Seconds after which a process that does not answer is ended, where the system counts no CPU.
WALL_SECONDS = 60.0
#: Characters of a template.
SOURCE = 1_000_000
#: Characters of what a template says.
_SAID = 120
#: Imports the module beside this one by its place: its package would bring numpy and much else.
_START = "import sys; sys.path += sys.argv[3:]; import sandbox; sandbox.serve(float(sys.argv[1]), int(sys.argv[2]))"


class _Process:
    """A process that has compiled one template. `pid` is who started it: a fork of that has its pipes and is not its owner."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        libraries = [str(Path(find_spec(name).submodule_search_locations[0]).parent) for name in ("jinja2", "markupsafe")]  # type: ignore[union-attr, index]
        places = dict.fromkeys([str(Path(__file__).parent), *libraries])
        line = [sys.executable, "-I", "-S", "-c", _START, str(CPU_SECONDS), str(MEMORY), *places]
        try:
            # In a session of its own Ctrl-C does not reach it.
            self.process = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"the process that renders chat templates does not start: {error.strerror or error}.") from None
        self.end = weakref.finalize(self, _end, self.process, self.pid)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply to a request; None where the process ended instead, its budget used up. See `sandbox.py`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            line = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"a chat template takes what JSON has: {printable(error, _SAID)}.") from None
        watch = threading.Timer(WALL_SECONDS, self.process.kill)
        watch.daemon = True
        watch.start()
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            reply = json.loads(answer.decode("utf-8", "surrogatepass")) if answer.endswith(b"\n") else None
        except BrokenPipeError:
            reply = None
        except BaseException:  # Ctrl-C: the answer that comes is to a question nobody asks any more
            self.end()
            raise
        finally:
            watch.cancel()
        if reply is None or reply.get("why") == "spent":
            self.end()
        return reply


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """End a process that this one started; a fork of it only lets go of the pipes."""
    if os.getpid() == pid:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()  # type: ignore[union-attr]
        except OSError:  # a request that was not taken
            pass


class ChatTemplate:
    """A conversation as the text a model was trained on.

    source: the Jinja text. tokens: special tokens it names (`bos_token`, `eos_token`, ...). where: the file, for messages.
    CheckpointError for a template that is none. Threads take turns.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, where: str = "the checkpoint") -> None:
        self.where = where
        self.tokens = dict(tokens or {})
        self._source = source
        self._process: _Process | None = None
        if len(source) > SOURCE:
            raise CheckpointError(f"{where}: its chat template has {len(source)} characters; legal: up to {SOURCE}.")
        self._compiled()

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **values: Any) -> str:
        """The text of `messages` (each `role` and `content`), up to where the assistant begins. Values are what JSON has.

        content: a text. A list of parts, `{"type": "text", "text": "..."}`, is for the templates that take one, and none at all
        stands beside an assistant's `tool_calls`. UsageError for a message that is none, and where the template refuses the
        conversation; CheckpointError where it breaks its bounds.
        """
        lists = [i for i, message in enumerate(messages) if _checked(i, message)]
        talk = [dict(message) for message in messages]
        given = dict(self.tokens, messages=talk, add_generation_prompt=add_generation_prompt, tools=None, documents=None)
        return self._text(self._compiled(), {"values": given | values}, lists)

    def _compiled(self) -> _Process:
        """A process that has this template compiled: the one there is, or a new one."""
        process = self._process
        if process is None or process.pid != os.getpid() or not process.end.alive:
            process = _Process()
            self._text(process, {"source": self._source})
            self._process = process
        return process

    def _text(self, process: _Process, request: Mapping[str, Any], lists: Sequence[int] = ()) -> str:
        """What the process renders; its complaint as the error it is. lists: the messages whose content is a list of parts, which
        not every template takes."""
        with process.lock:
            reply = process.ask(request)
        if reply is None:
            reply = {"why": "spent", "said": "its process was ended"}
        why, said = reply.get("why"), printable(reply.get("said"), _SAID)
        if why is None:
            return str(reply["text"])
        if why == "refuses":
            raise UsageError(f"{printable(self.where, _SAID)}: the model's chat template refuses this conversation: {said}.")
        if why == "fails" and lists:
            what = f"messages[{lists[0]}]: content is a list of parts, at which"
            raise UsageError(f"{what} {printable(self.where, _SAID)}: the chat template fails ({said}); legal: a text.")
        words = {
            "syntax": f"does not compile ({said})",
            "unsafe": f"is not safe to run ({said})",
            "spent": f"uses up its budget of {CPU_SECONDS:g} s of CPU and {MEMORY >> 20} MB of memory ({said})",
        }
        raise CheckpointError(f"{self.where}: its chat template {words.get(str(why), f'fails ({said})')}.")


def _checked(i: int, message: Any) -> bool:
    """Is the content of messages[i] a list of parts? UsageError for what is no message."""
    legal = '{"role": "user", "content": "..."}'
    if not isinstance(message, Mapping):
        raise UsageError(f"messages[{i}] is {_kind(message)}; legal: {legal}.")
    if not isinstance(message.get("role"), str):
        said = f": role is {_kind(message['role'])}" if "role" in message else " has no role"
        raise UsageError(f"messages[{i}]{said}; legal: a text, as in {legal}.")
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return False
    if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in content):
        return True
    said = f": content is {_kind(content)}" if "content" in message else " has no content"
    raise UsageError(f'messages[{i}]{said}; legal: a text, or a list of parts, {{"type": "text", "text": "..."}}.')


def _kind(value: Any) -> str:
    """A value's kind in words."""
    if value is None:
        return "None"
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "a number" if number else "a text" if isinstance(value, str) else f"a {type(value).__name__}"


def find_template(checkpoint: Any, tokenizer: Any, beside: Path | None = None) -> ChatTemplate | None:
    """The chat template of a checkpoint: a GGUF's own, or the folder's `chat_template.jinja` or `tokenizer_config.json`.

    beside: the tokenizer's file or folder, where it was given apart. None where there is none; CheckpointError for a bad one.
    """
    place = beside or (checkpoint.path if checkpoint is not None else None)
    if place is None:
        return None
    with reading(place):
        return _found(checkpoint, tokenizer, beside, place)


def _found(checkpoint: Any, tokenizer: Any, beside: Path | None, place: Path) -> ChatTemplate | None:
    if checkpoint is not None and checkpoint.kind == "gguf" and beside is None:
        metadata = checkpoint.metadata
        source = metadata.get("tokenizer.chat_template")
        names = {f"{kind}_token": metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos", "pad", "unk")}
        tokens = {name: tokenizer.token(id) or "" for name, id in names.items() if isinstance(id, int)}
        return _made(source, tokens, checkpoint.path)
    folder = place if place.is_dir() else place.parent
    companions = Companions(folder)
    config, tokens = companions.config, companions.named
    file = folder / "chat_template.jinja"
    if file.is_file():
        with reading(file):
            return _made(_text(file), tokens, file)
    source = config.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {str(entry.get("name")): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default") or next(iter(named.values()), None)
    return _made(source, tokens, folder / "tokenizer_config.json")


def _made(source: Any, tokens: Mapping[str, str], where: Path) -> ChatTemplate | None:
    if source is not None and not isinstance(source, str):
        raise CheckpointError(f"{where}: its chat template is of type {type(source).__name__}; legal: a text.")
    return ChatTemplate(source, tokens, str(where)) if source else None


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(SOURCE + 1)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file}: not UTF-8 at byte {error.start}.") from None
