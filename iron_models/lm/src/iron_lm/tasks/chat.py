"""`--chat`: a conversation in a terminal, with history, commands, and answers that Ctrl-C cuts short."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from iron_core.errors import CheckpointError, UsageError, printable
from iron_core.files import write_whole
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift, after
from iron_lm.tasks import talk
from iron_lm.text.answer import Answer
from iron_lm.text.template import ChatTemplate
from iron_lm.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Grammar
    from iron_lm.generation.speculation import Speculation
    from iron_lm.generation.states import States

HELP = """\
/help           this
/system TEXT    tell the model who it is, and start over; without TEXT, show what it was told
/reset          start over
/save FILE      write the conversation as JSON; FILE.safetensors has what the model holds of it, too
/load FILE      go on with one that was written so
/stats          tokens held, and how fast the last answer was
/quit           leave (so does Ctrl-D)
Ctrl-C stops an answer and keeps the talk."""

#: What the name of a file ends with that has states beside the talk.
STATE = ".safetensors"
#: Characters of what was typed that are shown again.
_SHOWN = 200
NOT_BEGUN = "stopped before there was an answer; the message is taken back"


@attrs.define
class Turn:
    """What the last answer took."""

    prompt_tokens: int = 0
    answer_tokens: int = 0
    first_token_s: float = 0.0
    seconds: float = 0.0

    def line(self) -> str:
        later = self.seconds - self.first_token_s
        rate = f", then {(self.answer_tokens - 1) / later:.1f} tok/s" if self.answer_tokens > 1 and later > 0 else ""
        return f"{self.answer_tokens} tokens, the first after {self.first_token_s:.2f} s{rate}"


class Chat:
    """A conversation with a model.

    write: shows text of the model. say: tells the user something. answer: most tokens of an answer. context: most of the
    conversation, as the user knows it; the session's caches may have more rows. grammar: what each answer may be. shift: an answer goes
    on where the context is full, half of which is then left out. states: what writes a session's states into files, where there is one.
    speculation: what guesses the tokens of answers, where something does.
    """

    def __init__(
        self,
        session: Session,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        sampler: Sampler,
        *,
        answer: int,
        context: int,
        stop: tuple[str, ...] = (),
        system: str | None = None,
        grammar: Grammar | None = None,
        shift: bool = False,
        states: States | None = None,
        speculation: Speculation | None = None,
        write: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self.session = session
        self.tokenizer = tokenizer
        self.template = template
        self.sampler = sampler
        self.answer = answer
        self.context = context
        self.stop = stop
        self.system = system
        self.grammar = grammar
        self.shift = shift
        self.states = states
        self.speculation = speculation
        self.write = write
        self.say = say
        self.messages: list[dict[str, str]] = []
        self.first = 0  # of the messages, the first that the model still sees
        self.last = Turn()

    # -- what the user types -------------------------------------------------------------------------

    def take(self, line: str) -> bool:
        """Act on what was typed; False to leave. A command begins with a slash, `//` writes one."""
        if line.startswith("//"):
            line = line[1:]
        elif line.startswith("/"):
            name, _, rest = line[1:].partition(" ")
            return self._command(name.strip(), rest.strip())
        if line.strip():
            self.turn(line)
        return True

    def _command(self, name: str, rest: str) -> bool:
        if name in ("quit", "exit", "bye"):
            return False
        if name == "help":
            self.say(HELP)
        elif name == "reset":
            self._start_over()
            self.say("a new conversation")
        elif name == "system":
            self._system(rest)
        elif name == "save":
            self._save(rest)
        elif name == "load":
            self._load(rest)
        elif name == "stats":
            seen = f", the last {len(self.messages) - self.first} of which the model sees" if self.first else ""
            self.say(f"{len(self.session.held)} of {self.context} tokens held, {len(self.messages)} messages{seen}")
            if (snapshots := getattr(self.session, "snapshots", None)) is not None:
                self.say(snapshots.line())
            if self.last.answer_tokens:
                self.say(self.last.line())
            if self.speculation is not None:
                self.say(self.speculation.line())
        else:
            name = printable(name, _SHOWN)
            self.say(f"no command /{name}; /help lists them, //{name} says it to the model")
        return True

    def _system(self, text: str) -> None:
        if not text:
            self.say(f"system: {self.system}" if self.system else "no system message; /system TEXT gives one")
            return
        self.system = text
        self._start_over()
        self.say("a new conversation, with this system message")

    def _start_over(self) -> None:
        self.messages.clear()
        self.first = 0
        self.session.reset()

    def _save(self, name: str) -> None:
        if not name:
            self.say("/save needs a file: /save talk.json")
            return
        messages, shown, held = self._conversation(), printable(name, _SHOWN), ""
        try:
            place, text = os.path.expanduser(name.encode("utf-8", "surrogateescape")), talk.written(messages)
            if self.states is not None and name.endswith(STATE):
                # Of those that were said, how many the model does not see any more stands before them.
                held = f", and the states of {self.states.save(place, f'{self.first} {text}')} tokens"
            else:
                write_whole(place, text)
        except (OSError, UnicodeError, UsageError) as error:
            self.say(f"{shown}: {getattr(error, 'strerror', None) or error}; the conversation is still here")
        else:
            self.say(f"{len(messages)} message{'' if len(messages) == 1 else 's'}{held} in {shown}")

    def _load(self, name: str) -> None:
        """Go on with what `_save` wrote, in the place of what is said here. Without states the model reads it with the next message."""
        if not name:
            self.say("/load needs a file: /load talk.json")
            return
        shown = printable(name, _SHOWN)
        try:
            place = os.path.expanduser(name.encode("utf-8", "surrogateescape"))
            if self.states is not None and name.endswith(STATE):
                saved = self.states.load(place, _with_talk)
                first, found = _with_talk(saved.talk)
                reads = f"the model holds {len(saved.ids)} tokens of them"
            else:
                first, found, reads = 0, talk.in_file(place), "the model reads them with the next one"
                self._start_over()
        except CheckpointError as error:  # which names the file
            self.say(f"{str(error).rstrip('.')}; the conversation is as it was")
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or printable(error, _SHOWN)
            self.say(f"{shown}: {reason}; the conversation is as it was")
            return
        self.system = found.pop(0)["content"] if found and found[0]["role"] == "system" else None
        self.messages, self.first = found, first
        self.say(f"{len(self._conversation())} messages of {shown}; {reads}")

    # -- a turn ----------------------------------------------------------------------------------------

    def turn(self, text: str) -> None:
        """Say something to the model, and show what it answers. What does not fit, or the template fails at, is told, and the
        talk goes on."""
        self.messages.append({"role": "user", "content": text})
        seen = self.first
        try:
            ids = self._fitting()
        except (UsageError, CheckpointError, KeyboardInterrupt) as error:  # the template may fail at this message alone
            self.messages.pop()
            self.first = seen
            self.say(str(error) or NOT_BEGUN)
            return
        shown, spoken, said = [], Answer(self.tokenizer.stream(), self.stop), list[int]()
        turn = self.last = Turn(prompt_tokens=len(ids))
        start = time.perf_counter()

        def show(token: int) -> bool:
            if not turn.answer_tokens:
                turn.first_token_s = time.perf_counter() - start
            turn.answer_tokens += 1
            said.append(token)
            piece = spoken(token)
            shown.append(piece)
            self.write(piece)
            return spoken.ended

        room = self.answer if self.shift else min(self.answer, self.context - len(ids))
        stopped, left_out = False, list[str]()
        try:
            held: dict[str, Any] = {} if self.grammar is None else {"constraint": self.grammar.start()}
            guessed: dict[str, Any] = {} if self.speculation is None else {"speculation": self.speculation}
            behind = list[int]()  # of the answer what the model sees
            for shifts in itertools.count():
                before, wanted = len(said), min(room - len(said), self.context - len(ids) - len(behind))
                sampler = after(self.sampler, shifts)
                self.session.generate([*ids, *behind], wanted, sampler, show, self.tokenizer.stop, **held, **guessed)
                if len(said) == room or len(said) < before + wanted or spoken.ended or (held and held["constraint"].ended):
                    break
                ids, behind = self._shifted([*behind, *said[before:]], left_out)
        except KeyboardInterrupt:
            stopped = True
        finally:  # what was said is shown whatever ended it
            rest = spoken.rest()
            self.write(rest + "\n" if turn.answer_tokens or not stopped else "")
        turn.seconds = time.perf_counter() - start
        if stopped and not turn.answer_tokens:
            self.messages.pop()
            self.first = seen
            self.say(NOT_BEGUN)
            return
        self.messages.append({"role": "assistant", "content": "".join(shown) + rest})
        for what in left_out:
            self.say(what)
        if stopped:
            self.say("stopped; the talk goes on")
        elif turn.answer_tokens == room and not spoken.ended:
            self.say(f"cut after {room} tokens; --num-tokens sets how many")

    def _conversation(self, first: int = 0) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return system + self.messages[first:]

    def _fitting(self) -> list[int]:
        """The ids of what the model sees of the conversation; the oldest exchanges are dropped from that, which is said, until
        an answer fits behind them. UsageError where the last message is too long by itself; nothing is dropped then."""
        context = self.context
        need = min(self.answer, max(2 if self.shift else 1, context // 4))
        first = self.first
        while True:
            ids = self._ids(first)
            # A shift leaves room for a while, as what is left runs from its start.
            full = context // 2 if self.shift and first > self.first and len(self.messages) - first >= 3 else context - need
            if len(ids) <= full:
                break
            if len(self.messages) - first < 3:
                raise UsageError(
                    f"the message has {len(ids)} tokens with what belongs to it; --max-seq-len {context} leaves {max(0, context - need)}. "
                    "Say less, or start with a larger --max-seq-len; the talk is as it was."
                )
            first += 2
        if first > self.first:
            self.say(self._dropped(first))
        return ids

    def _shifted(self, answer: list[int], left_out: list[str]) -> tuple[list[int], list[int]]:
        """The ids of the conversation and of its answer so far that the model sees from now on, where these fill the context: without
        the oldest exchanges, or, where there are none, without the older half of the answer. left_out: is told which."""
        first = self.first
        while len(ids := self._ids(first)) + len(answer) > self.context // 2 and len(self.messages) - first >= 3:
            first += 2
        if first > self.first:
            left_out.append(self._dropped(first))
        seen = Shift(self.context, len(ids))([*ids, *answer])[len(ids) :]
        if len(seen) < len(answer):
            gone = f"{len(answer) - len(seen)} tokens of the answer are"
            left_out.append(f"the context is full: {gone} dropped from what the model sees; /save still writes all")
        return ids, seen

    def _dropped(self, first: int) -> str:
        """See no message before this one from now on; the line that says so."""
        dropped, self.first = (first - self.first) // 2, first
        exchanges = f"{dropped} exchange{'s are' if dropped > 1 else ' is'}"
        return f"the context is full: the oldest {exchanges} dropped from what the model sees; /save still writes all"

    def _ids(self, first: int) -> list[int]:
        """Of the messages from this one on, and the system's, as the model sees them."""
        return self.tokenizer.encode_marked(self.template.render(self._conversation(first)))


def _with_talk(text: str) -> tuple[int, list[dict[str, str]]]:
    """What stands beside states: how many messages the model does not see any more, and all of them. ValueError for another text."""
    first, _, rest = text.partition(" ")
    if not first.isdecimal():
        raise ValueError("it has no conversation")
    return int(first), talk.parsed(rest)
