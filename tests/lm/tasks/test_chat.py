"""A conversation: commands, history, what is dropped when the context is full. The model here says what it is told to."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace

import pytest

from iron_core.errors import CheckpointError, UsageError
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.states import Saved
from iron_lm.tasks.chat import Chat
from iron_lm.tasks.chat_task import ChatTask
from iron_lm.text.stopping import StopStrings
from iron_lm.text.template import ChatTemplate

TEMPLATE = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>")


class Letters:
    """A tokenizer of characters."""

    stop = (0,)

    def encode_marked(self, text):
        return [ord(c) for c in text]

    def stream(self):
        return Letterwise()


class Letterwise:
    """A stream of characters."""

    def __call__(self, token):
        return chr(token)

    def rest(self):
        return ""


class Parrot:
    """A session that answers with given texts, and remembers the prompts."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.prompts = []
        self.held = []
        self.resets = 0

    def sample(self, sampler):
        self.sampler = sampler

    def reset(self):
        self.resets += 1
        self.held = []

    def generate(self, ids, count, sampler, on_token, stop):
        self.prompts.append("".join(map(chr, ids)))
        for token in self.answers.pop(0).encode()[:count]:
            if on_token(token):
                break
        self.held = list(ids)


class Talk:
    """A chat and what it showed and said."""

    def __init__(self, *answers, context=200, **options):
        self.shown, self.said = [], []
        self.session = Parrot(answers)
        self.chat = Chat(
            self.session,
            Letters(),
            TEMPLATE,
            Sampler(),
            write=self.shown.append,
            say=self.said.append,
            context=context,
            **{"answer": 40} | options,
        )

    def type(self, *lines):
        return [self.chat.take(line) for line in lines]


def test_a_turn_sees_what_was_said_before():
    talk = Talk("yes", "no")
    talk.type("one", "two")
    assert talk.session.prompts == ["<user>one<assistant>", "<user>one<assistant>yes<user>two<assistant>"]
    assert "".join(talk.shown) == "yes\nno\n"


def test_commands():
    """Each answers, none reaches the model, and an unknown one is said to be so."""
    talk = Talk("yes", "no")
    assert talk.type("hi", "/stats", "/help", "/nope", "/system", "/save", "/reset", "/stats", "/quit") == [True] * 8 + [False]
    text = "\n".join(talk.said)
    for part in ("of 200 tokens held, 2 messages", "/save FILE", "no command /nope", "no system message", "/save needs a file", "0 of 200"):
        assert part in text
    assert talk.session.resets == 1 and len(talk.session.prompts) == 1
    talk.type("//stats")
    assert talk.session.prompts[-1] == "<user>/stats<assistant>"


def test_stats_say_how_states_went_back():
    """Of models that have such: the counts stand behind the tokens held."""
    talk = Talk("yes")
    talk.session.snapshots = SimpleNamespace(line=lambda: "2 checkpoints")
    talk.type("hi", "/stats")
    assert talk.said[0].endswith("2 messages") and talk.said[1] == "2 checkpoints" and talk.said[2].startswith("3 tokens")


def test_a_system_message_comes_first_and_starts_over():
    talk = Talk("yes", "no", system="be brief")
    talk.type("hi", "/system be long", "ho")
    assert talk.session.prompts == ["<system>be brief<user>hi<assistant>", "<system>be long<user>ho<assistant>"]


def test_save_writes_the_conversation(tmp_path):
    """As JSON in UTF-8, over what was there; /save with an accented name too."""
    talk = Talk("yes")
    (tmp_path / "tälk.json").write_text("something longer than nothing" * 9, encoding="utf-8")
    talk.type("grüße €", f"/save {tmp_path}/tälk.json")
    saved = json.loads((tmp_path / "tälk.json").read_bytes().decode("utf-8"))
    assert [(m["role"], m["content"]) for m in saved] == [("user", "grüße €"), ("assistant", "yes")]
    assert talk.said[-1] == f"2 messages in {tmp_path}/tälk.json" and os.listdir(tmp_path) == ["tälk.json"]


def test_a_conversation_that_was_saved_goes_on(tmp_path):
    """With its system message or without one, in the place of what was said; the model sees what it would have seen."""
    for system in (None, "be brief"):
        first = Talk("yes", "no", "so", system=system)
        first.type("one", "two", f"/save {tmp_path}/grüße.json", "three")
        other = Talk("oh", "so", system="another")
        other.type("else", f"/load {tmp_path}/grüße.json", "three")
        assert other.session.prompts[-1] == first.session.prompts[-1] and other.session.resets == 1
        assert other.chat.messages == first.chat.messages and other.chat.system == system
        count = 4 + (system is not None)
        assert other.said == [f"{count} messages of {tmp_path}/grüße.json; the model reads them with the next one"]


def test_a_long_conversation_that_was_saved_loses_its_oldest_exchanges_again(tmp_path):
    """The model sees as much of it as it did."""
    first = Talk(*["x" * 20] * 5, context=150, answer=30)
    first.type("a" * 20, "b" * 20, "c" * 20, f"/save {tmp_path}/t.json", "d" * 20)
    other = Talk("x" * 20, context=150, answer=30)
    other.type(f"/load {tmp_path}/t.json", "d" * 20)
    assert other.session.prompts[-1] == first.session.prompts[-1] and other.chat.first == first.chat.first > 2
    assert other.chat.messages == first.chat.messages and "the oldest 2 exchanges are dropped" in other.said[-1]


def messages(*roles):
    return [{"role": role, "content": "x"} for role in roles]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe\x00\xd8", "not JSON"),
        ({"role": "user", "content": "x"}, "not a conversation; legal: a list of objects with a role and a content"),
        ([["user", "x"]], "not a conversation"),
        ([{"role": "user"}], "not a conversation"),
        ([{"role": "user", "content": "x", "tool": 1}], "not a conversation"),
        ([{"role": "user", "content": ["x"]}], "message 1 is not a text of role user"),
        (messages("assistant", "user"), "message 1 is not a text of role user"),
        (messages("system", "system"), "message 2 is not a text of role user"),
        (messages("system", "user", "user"), "message 3 is not a text of role assistant"),
        (messages("user", "assistant", "user"), "the last message has no answer"),
        ([{"role": "user", "content": "\ud800"}, *messages("assistant")], "surrogates not allowed"),
        (messages("user", "assistant") * 70_000, "more than 4194304 bytes"),
    ],
)
def test_what_is_no_saved_conversation_is_said_and_the_talk_goes_on(tmp_path, content, says):
    """In one line; nothing of the talk is lost."""
    talk = Talk("yes", "no", system="s")
    if content is not None:
        raw = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
        (tmp_path / "t.json").write_bytes(raw)
    talk.type("hi", f"/load {tmp_path}/t.json", "ho")
    (said,) = talk.said
    assert says in said and said.endswith("the conversation is as it was") and said.isprintable() and len(said) < 400
    assert talk.session.prompts[-1] == "<system>s<user>hi<assistant>yes<user>ho<assistant>" and talk.session.resets == 0


def test_what_is_no_file_is_not_waited_for(tmp_path):
    """A folder, a pipe, a name that cannot be."""
    talk = Talk()
    os.mkfifo(tmp_path / "pipe")
    talk.type("/load", f"/load {tmp_path}", f"/load {tmp_path}/pipe", f"/load {tmp_path}/\0", "/load ~nosuch/x")
    assert [any(part in said for part in ("needs a file", "not a file", "null ", "No such")) for said in talk.said] == [True] * 5


def test_a_message_that_the_template_fails_at_is_taken_back(monkeypatch):
    """What the file is to blame for is told in its words; the talk before it stays, and goes on."""
    fails = "{% for m in messages %}{% if m.content == 'odd' %}{{ 1 / 0 }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    talk = Talk("yes", "no")
    monkeypatch.setattr(talk.chat, "template", ChatTemplate(fails, where="model.gguf"))
    talk.type("one", "odd", "two")
    assert [m["content"] for m in talk.chat.messages] == ["one", "yes", "two", "no"]
    assert len(talk.said) == 1 and talk.said[0].startswith("model.gguf: its chat template fails (ZeroDivisionError")


def test_what_was_typed_is_said_again_on_one_short_line():
    """A command that is none, of control characters or of any length."""
    talk = Talk()
    talk.type("/\x1b[2J", "/" + "x" * 10_000)
    assert all(said.startswith("no command /") and said.isprintable() and len(said) < 500 for said in talk.said) and len(talk.said) == 2


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("{}/no/talk.json", "No such file"),
        ("~nosuch/x.json", "No such file"),
        ("{}", "Is a directory"),
        ("{}/talk.json/x", "Not a directory"),
        ("/dev/full", "No space left"),
        ("{}/\0", "Invalid argument"),
        ("{}/" + "x" * 300, "File name too long"),
        ("{}/\ud800", "surrogates not allowed"),
    ],
)
def test_a_place_that_cannot_be_written_is_said_and_the_talk_goes_on(tmp_path, place, says):
    """The program does not end, and nothing is left behind."""
    talk = Talk("yes", "no")
    (tmp_path / "talk.json").write_text("[]", encoding="utf-8")
    talk.type("hi", f"/save {place.format(tmp_path)}", "ho")
    assert says in talk.said[0] and "still here" in talk.said[0] and len(talk.chat.messages) == 4
    assert talk.said[0].isprintable() and len(talk.said[0]) < 300
    assert os.listdir(tmp_path) == ["talk.json"] and (tmp_path / "talk.json").read_text(encoding="utf-8") == "[]"


def test_what_no_longer_fits_is_dropped_from_the_models_view_and_said(tmp_path):
    """The oldest exchanges, as many as it takes, for good; the system message stays, and /save still has everything."""
    talk = Talk(*["x" * 20] * 6, context=150, answer=30, system="s")
    talk.type("a" * 20, "b" * 20, "c" * 20)
    assert "the oldest 1 exchange is dropped" in talk.said[-1] and "/save still writes all" in talk.said[-1]
    assert talk.session.prompts[-1].startswith("<system>s<user>bbb") and len(talk.session.prompts[-1]) + 30 <= 150
    talk.type("d" * 20, f"/save {tmp_path}/all.json", "/stats")
    assert talk.session.prompts[-1].startswith("<system>s<user>ccc")
    saved = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [m["content"][0] for m in saved] == list("saxbxcxdx")
    assert "8 messages, the last 4 of which the model sees" in "\n".join(talk.said)
    talk.type("/reset", "e")
    assert talk.session.prompts[-1] == "<system>s<user>e<assistant>"


def test_a_shift_drops_half_of_the_context_at_once():
    """So that the turns behind it go on from what is held; the message that is asked always stays."""
    talk = Talk(*["x" * 20] * 8, context=240, answer=30, system="s", shift=True)
    talk.type(*(letter * 20 for letter in "abcde"))
    dropped = [said for said in talk.said if "dropped from what the model sees" in said]
    assert len(dropped) == 1 and "the oldest 2 exchanges are dropped" in dropped[0]
    first = next(n for n, prompt in enumerate(talk.session.prompts) if "aaa" not in prompt)
    assert len(talk.session.prompts[first]) <= 120 and talk.session.prompts[first].startswith("<system>s<user>")
    for before, after in zip(talk.session.prompts[first:], talk.session.prompts[first + 1 :], strict=False):
        assert after.startswith(before)


def test_an_answer_goes_on_past_the_context(tmp_path):
    """With a shift: the oldest exchanges go, then the older half of the answer; all of it is shown, and saved."""
    story = "".join(chr(97 + n % 26) for n in range(150))
    talk = Talk("yes", "no", context=100, answer=200, shift=True)
    talk.type("one", "two")
    left = story

    class Storyteller(Parrot):
        def generate(self, ids, count, sampler, on_token, stop):
            nonlocal left
            self.prompts.append("".join(map(chr, ids)))
            assert len(ids) + count <= 100
            said, left = left[:count], left[count:]
            for token in said.encode():
                if on_token(token):
                    break

    talk.chat.session = teller = Storyteller([])
    talk.said.clear()
    talk.type("go", f"/save {tmp_path}/t.json")
    assert "".join(talk.shown).endswith(story + "\n") and talk.chat.messages[-1]["content"] == story
    begins = "<user>one<assistant>yes<user>two<assistant>no<user>go<assistant>"
    assert teller.prompts[0] == begins
    said = 100 - len(begins)
    assert teller.prompts[1] == "<user>go<assistant>" + story[:said]  # both exchanges are gone, no token of the answer
    assert teller.prompts[2].startswith("<user>go<assistant>") and story[: len(story)].find(teller.prompts[2][19:]) > 0
    assert "the oldest 2 exchanges are dropped" in talk.said[0] and "tokens of the answer are dropped" in talk.said[1]
    saved = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert [m["content"] for m in saved] == ["one", "yes", "two", "no", "go", story]


def test_without_a_shift_an_answer_ends_with_the_context():
    """As it did."""
    talk = Talk("x" * 300, context=100, answer=200)
    talk.type("one")
    assert len(talk.shown) == 100 - len("<user>one<assistant>") + 1 and "cut after 80 tokens" in talk.said[-1]


class Kept:
    """What writes states, remembered by name."""

    def __init__(self):
        self.files = {}

    def save(self, place, talk):
        self.files[place] = talk
        return 33

    def load(self, place, accepts):
        if place not in self.files:
            raise CheckpointError("x.safetensors: the state of another model, whose family is another.")
        accepts(self.files[place])
        return Saved(list(range(33)), self.files[place])


def test_a_conversation_goes_on_with_its_states(tmp_path):
    """Saved and loaded by a name that ends so; what the model does not see any more it does not see then."""
    kept, long = Kept(), dict(context=150, answer=30, system="s")
    first = Talk(*["x" * 20] * 5, states=kept, **long)
    first.type("a" * 20, "b" * 20, "c" * 20, f"/save {tmp_path}/t.safetensors", "d" * 20)
    assert f"7 messages, and the states of 33 tokens in {tmp_path}/t.safetensors" in first.said
    other = Talk("x" * 20, states=kept, **long | {"system": "another"})
    other.type(f"/load {tmp_path}/t.safetensors", "d" * 20)
    assert other.said[0] == f"7 messages of {tmp_path}/t.safetensors; the model holds 33 tokens of them"
    assert other.session.prompts[-1] == first.session.prompts[-1] and other.chat.messages == first.chat.messages
    assert other.session.resets == 0 and other.chat.first == first.chat.first > 0


def test_states_that_cannot_be_loaded_leave_the_talk_as_it_was():
    """Another model's, or without a conversation."""
    kept = Kept()
    talk = Talk("yes", "no", states=kept)
    kept.files[b"u.safetensors"] = ""
    talk.type("hi", "/load x.safetensors", "/load u.safetensors", "ho")
    assert talk.said == [
        "x.safetensors: the state of another model, whose family is another; the conversation is as it was",
        "u.safetensors: it has no conversation; the conversation is as it was",
    ]
    assert talk.session.prompts[-1] == "<user>hi<assistant>yes<user>ho<assistant>"


@pytest.mark.parametrize("given", [dict(keep=3), dict(state="x")])
def test_what_is_for_a_prompt_alone_is_refused(given):
    """By what does it in a conversation."""
    options = dict(json=False, profile=None, shift=True, keep=None, state=None) | given
    with pytest.raises(UsageError, match=r"--chat is a conversation; leave out --(keep: its system|state: /save FILE\.safetensors)"):
        ChatTask(options)


def test_a_message_too_long_for_the_context_is_refused_and_the_talk_is_as_it_was():
    """What was said before is still there, and the model still sees it."""
    talk = Talk("yes", "no", context=100, answer=20)
    talk.type("one", "y" * 300, "two")
    (said,) = talk.said
    assert "Say less" in said and "the talk is as it was" in said
    assert talk.session.prompts == ["<user>one<assistant>", "<user>one<assistant>yes<user>two<assistant>"]


def test_a_stop_string_ends_an_answer_and_is_no_part_of_it():
    talk = Talk("one two STOP three", stop=("STOP",))
    talk.type("count")
    assert "".join(talk.shown) == "one two \n" and talk.chat.messages[-1]["content"] == "one two "


@pytest.mark.parametrize("cuts", [1, 2, 3, 100])
def test_stop_strings_however_tokens_cut_them(cuts):
    """What may become one is held back; what does not is shown later."""
    text = "abcabdabX then abcabX!"
    stops, shown = StopStrings(("abcabX", "zz")), ""
    for i in range(0, len(text), cuts):
        shown += stops.feed(text[i : i + cuts])
        assert not shown.endswith("abcab")
    assert stops.ended and shown == "abcabdabX then "
    calm = StopStrings(("end",))
    assert calm.feed("the e") + calm.feed("n") + calm.rest() == "the en"


def test_of_several_stop_strings_the_first_in_the_text_ends_it():
    """Not the first that was given; what comes after it, in this piece or the next, is not shown."""
    stops = StopStrings(("later", "now"))
    assert stops.feed("ends now, not later") == "ends " and stops.ended
    assert stops.feed("more") == stops.rest() == ""


def test_a_command_lines_conversation_says_how_it_is_led_and_begins_with_the_prompt(monkeypatch, capsys):
    """On standard error; on standard output are the answers alone. Lines of standard input follow, until one that leaves."""
    task = ChatTask(
        dict(
            json=False, profile=None, sampler=Sampler(), num_tokens=40, stop=(), system=None, prompt="hello", shift=False, keep=None,
            state=None,
        )
    )
    config = SimpleNamespace(vocab_size=256, encodes=False)
    task.prepare(SimpleNamespace(config=config, tokenizer=Letters(), template=lambda: TEMPLATE, context=200))
    session = Parrot(["one", "two"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("again\n/quit\nnever\n"))
    assert task.run(SimpleNamespace(session=session, states=None, speculation=None), None) == 0
    out, err = capsys.readouterr()
    assert err == "/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves\n> hello\n" and out == "one\ntwo\n"
    assert session.sampler is task.options["sampler"]
    assert session.prompts == ["<user>hello<assistant>", "<user>hello<assistant>one<user>again<assistant>"]
