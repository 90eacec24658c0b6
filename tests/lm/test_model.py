"""`iron_lm.load()` and `Model`: a language model from Python."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.errors import CallError, CheckpointError, IronError, UsageError
from iron_host.backend import HostBackend
from iron_llama.model import Llama

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def model(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> iron_lm.Model:
    """The tiny Llama, with a tokenizer of bytes and a chat template."""
    path = tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": TEMPLATE})
    return iron_lm.load("llama", path, max_seq_len=256)


def test_the_package_is_light() -> None:
    """`import iron_lm` loads none of its modules and no numpy; the names load when they are used."""
    code = "import iron_lm, sys; print(*sys.modules); iron_lm.load"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "iron_lm" in loaded and not {"numpy", "iron_core"} & set(loaded) and not [m for m in loaded if m.startswith("iron_lm.")]
    assert dir(iron_lm) == iron_lm.__all__ == ["EncoderModel", "Family", "Model", "load", "load_encoder"]
    with pytest.raises(AttributeError, match=r"no_such_name"):
        iron_lm.no_such_name  # noqa: B018


def test_a_family_is_a_name_a_class_or_found(talking: Path) -> None:
    """All the same model."""
    for given in (("llama",), (Llama,), (None,), ()):
        model = iron_lm.load(*given, talking, max_seq_len=64, backend="reference")  # type: ignore[call-overload]
        assert model.family is Llama and model.config.num_layers == 2 and model.loaded.context == 64


def test_options_are_the_command_lines(talking: Path) -> None:
    """dtype, context, backend by name or object; facts() says what became of them."""
    facts = iron_lm.load(talking, dtype="bfloat16", max_seq_len=100, backend="reference").facts()
    assert (facts["dtype"], facts["cache_dtype"], facts["max_seq_len"], facts["backend"]) == ("bfloat16", "bfloat16", 100, "reference")
    model = iron_lm.load(talking, max_seq_len=64, backend=HostBackend(threads=1), dev="host")
    assert model.backend == HostBackend(threads=1) and model.facts()["dev"] == "host"


def test_a_prompts_chunks_are_as_long_as_asked(talking: Path) -> None:
    """64 tokens, or the context, unless told; the logits are those of another length."""
    assert iron_lm.load(talking, max_seq_len=100).loaded.run.prefill_chunk == 64
    models = [iron_lm.load(talking, max_seq_len=96, prefill_chunk=n) for n in (None, 24, 96)]
    assert [model.loaded.run.prefill_chunk for model in models] == [64, 24, 96]
    first, *others = (model.logits(range(70)) for model in models)
    for logits in others:
        np.testing.assert_allclose(logits, first, atol=1e-5)
    with pytest.raises(UsageError, match="prefill_chunk='8'; legal: 1 to max_seq_len=96"):
        iron_lm.load(talking, max_seq_len=96, prefill_chunk="8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rules", [{}, dict(temperature=1.2, seed=3), dict(temperature=0.9, top_p=0.8), dict(logit_bias={65: 2.0}), dict(repetition_penalty=1.3)]
)
def test_pieces_are_what_the_session_generates(model: iron_lm.Model, rules: dict[str, Any]) -> None:
    """Joined, they are the text of the tokens that one call gives, whoever chooses them."""
    from iron_lm.generation.sampler import Sampler

    assert model.tokenizer is not None
    ids = model.tokenizer.encode("the tea")
    said = model.session.generate(ids, 24, Sampler(**rules), stop=model.tokenizer.stop)
    stream = model.tokenizer.stream()
    stream.take(ids)
    want = stream.take(said) + stream.rest()
    model.session.reset()
    pieces = list(model.generate("the tea", 24, **rules))
    assert "".join(pieces) == want and all(pieces) and len(pieces) > 1
    assert "".join(model.generate(ids, 24, **rules)) == want


def test_an_answer_goes_on_where_the_prompt_ends(tiny_gguf: Any) -> None:
    """In a vocabulary where a text's first word has no space, the answer's has one; a conversation's answer is a text of its own."""
    tokens = ["<unk>", "<s>", "</s>", "▁and", "▁a", "▁", *"andx", *(f"<fill{i}>" for i in range(246))]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 253],
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    model = iron_lm.load(tiny_gguf(metadata=metadata), max_seq_len=64, backend="reference")
    assert "".join(model.generate("a", 2, logit_bias={3: 1e6})) == " and and"
    assert "".join(model.chat([{"role": "user", "content": "a"}], 2, logit_bias={3: 1e6})) == "and and"


def test_text_comes_as_it_is_made(model: iron_lm.Model) -> None:
    """The first piece is there when one token, or the few of one character, have been computed."""
    model.session.reset()
    answer = model.generate("the", 60)
    next(answer)
    assert 0 < len(model.session.held) < 20


def test_an_answer_that_is_left_leaves_the_model_usable(model: iron_lm.Model) -> None:
    """Closed, forgotten, or taken in turns with another: every answer is the one it would be alone, bit for bit."""
    alone = {text: "".join(model.generate(text, 20)) for text in ("the tea", "a cup")}
    logits = model.logits([1, 2, 3])
    left = model.generate("the tea", 20)
    next(left)
    left.close()
    next(model.generate("a cup", 20))
    np.testing.assert_array_equal(model.logits([1, 2, 3]).view(np.uint32), logits.view(np.uint32))
    texts = {text: "" for text in alone}
    answers = {text: model.generate(text, 20) for text in alone}
    while answers:
        for text, answer in list(answers.items()):
            piece = next(answer, None)
            if piece is None:
                del answers[text]
            else:
                texts[text] += piece
    assert texts == alone


def test_threads_share_a_model(model: iron_lm.Model) -> None:
    """Each gets the answer it would get alone."""
    texts = ("the tea", "a cup", "2 and 2")
    alone = ["".join(model.generate(text, 16)) for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(lambda text: "".join(model.generate(text, 16)), texts)) == alone


def test_inside_an_answer_of_the_session_another_is_refused(model: iron_lm.Model) -> None:
    """As everywhere: the session is one; after it, it answers again."""
    with pytest.raises(CallError, match=r"inside an answer of the same session"):
        model.session.generate([1, 2], 4, on_token=lambda _: bool(list(model.generate("x", 2))))
    assert list(model.generate("x", 2))


def test_stop_texts_end_an_answer(model: iron_lm.Model) -> None:
    """One, or several; they are no part of it."""
    text = "".join(model.generate("the tea", 30))
    stop = text[3:5]
    for given in (stop, [stop], (stop, "never there")):
        assert "".join(model.generate("the tea", 30, stop=given)) == text[: text.index(stop)]


def test_a_conversation_is_answered_through_the_template(model: iron_lm.Model) -> None:
    """What the template makes of it is what the model sees; the answer is cut where the context ends."""
    messages = [{"role": "user", "content": "hi"}]
    assert model.tokenizer is not None
    ids = model.tokenizer.encode_marked("<user>hi<assistant>")
    want = model.session.generate(ids, 12, stop=model.tokenizer.stop)
    assert "".join(model.chat(messages, 12)) == model.tokenizer.decode(want)
    assert model.session.held[: len(ids)] == ids
    assert len(list(model.chat(messages))) > 0 and len(model.session.held) <= 256


def test_logits_are_those_of_a_prompt(model: iron_lm.Model, tiny: Any) -> None:
    """float32 of the vocabulary's size, transformers' within 1e-4, and no view of what the next call overwrites."""
    first = model.logits(tiny.ids[:20])
    kept = first.copy()
    model.logits(tiny.ids[:7])
    assert first.dtype == np.float32 and first.shape == (model.config.vocab_size,)
    np.testing.assert_array_equal(first, kept)
    assert np.abs(first - tiny.logits[19]).max() < 1e-4


@pytest.mark.parametrize(
    ("says", "call"),
    [
        ("max_tokens=0 after a prompt of 2 tokens; legal: 1 to 254", lambda m: m.generate("x", 0)),
        ("max_tokens=300 after a prompt of 2 tokens; legal: 1 to 254", lambda m: m.generate("x", 300)),
        ("legal: none with this prompt; a larger max_seq_len", lambda m: m.generate("x" * 300)),
        ("the prompt is empty", lambda m: m.generate([])),
        ("token 99999 is outside the vocabulary", lambda m: m.generate([99999])),
        ("token -1 is outside the vocabulary", lambda m: m.generate([-1])),
        (r"token ids \[1.5\]; legal: whole numbers", lambda m: m.generate([1.5])),
        ("token ids None; legal: whole numbers", lambda m: m.generate(None)),
        ("token ids 'abc'; legal: whole numbers", lambda m: m.logits("abc")),
        (r"token ids \[\[1, 2\]\]; legal: whole numbers", lambda m: m.session.generate([[1, 2]], 3)),
        ("generate: max_tokens=2.5 after", lambda m: m.generate("x", 2.5)),
        ("chat: max_tokens=None after", lambda m: m.chat([{"role": "user", "content": "x"}], None)),
        (r"generate: stop=\['a', 5\]; legal: a text", lambda m: m.generate("x", stop=["a", 5])),
        ("chat: stop=None; legal: a text", lambda m: m.chat([{"role": "user", "content": "x"}], stop=None)),
        ("chat: messages='hi'; legal: a sequence of", lambda m: m.chat("hi")),
        ("chat: messages={'role'.*; legal: a sequence of", lambda m: m.chat({"role": "user", "content": "x"})),
        ("chat: messages=5; legal: a sequence of", lambda m: m.chat(5)),
        ("chat: messages=<generator.*; legal: a sequence of", lambda m: m.chat({"role": "user", "content": x} for x in "ab")),
        (r"messages\[0\]: content is a number; legal: a text", lambda m: m.chat([{"role": "user", "content": 5}])),
        ("generate: no keyword temprature; legal: max_tokens, stop, schema, grammar, .*seed", lambda m: m.generate("x", temprature=1)),
        ("temperature=-1; legal", lambda m: m.generate("x", temperature=-1)),
        ("logit_bias of token 99999", lambda m: m.generate("x", logit_bias={99999: 1.0})),
        ("chat: max_tokens=0", lambda m: m.chat([{"role": "user", "content": "x"}], 0)),
        ("a conversation of 3.. tokens", lambda m: m.chat([{"role": "user", "content": "x" * 300}])),
        ("logits of 257 tokens; legal: 1 to max_seq_len=256", lambda m: m.logits([1] * 257)),
        ("a prompt of 0 tokens", lambda m: m.logits([])),
    ],
)
def test_a_mistake_is_one_error_at_the_call(model: iron_lm.Model, says: str, call: Any) -> None:
    """Before anything is computed; the model goes on after it."""
    with pytest.raises(IronError, match=says):
        call(model)
    assert model.logits([1, 2]).size


def test_what_a_checkpoint_lacks_is_said(tiny: Any, talking: Path) -> None:
    """A tokenizer for text, a template for a conversation, a file at all."""
    bare = iron_lm.load(tiny.checkpoint.path, max_seq_len=64, backend="reference")
    assert bare.tokenizer is None and bare.session.generate([1, 2, 3], 4) and bare.logits([1, 2]).size
    for call in (lambda: bare.generate("x"), lambda: bare.chat([])):
        with pytest.raises(UsageError, match=r"has no tokenizer; give load.. tokenizer=FILE, or use model.session"):
            call()
    with pytest.raises(UsageError, match=r"chat: this checkpoint has no chat template; legal: generate"):
        iron_lm.load(talking, max_seq_len=64, backend="reference").chat([])
    with pytest.raises(UsageError, match=r"load\(.*Llama.*\) names no checkpoint; legal: load\(path\)"):
        iron_lm.load(Llama)
    with pytest.raises(UsageError, match=r"load\(<class 'int'>, ...\) names no family; legal: its name, its class"):
        iron_lm.load(int, talking)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"load\(5\) names no checkpoint"):
        iron_lm.load("llama", 5)  # type: ignore[arg-type]
    for nothing in (("",), ("llama", ""), (None,), (None, "")):
        with pytest.raises(UsageError, match=r"load\((''|None)\) names no checkpoint"):
            iron_lm.load(*nothing)  # type: ignore[call-overload]
    for tokenizer in ("", 5):
        with pytest.raises(UsageError, match=f"tokenizer={tokenizer!r}; legal: a file, a folder that one is in, or the name of one"):
            iron_lm.load(talking, tokenizer=tokenizer)  # type: ignore[arg-type]
    for length in ("x", 100.0, 0):
        with pytest.raises(UsageError, match=rf"max_seq_len={length!r}; legal: 1 to "):
            iron_lm.load(talking, max_seq_len=length)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"no such file or folder"):
        iron_lm.load("llama", "/absent.gguf")


def test_a_tokenizer_of_its_own(tiny: Any, talking: Path) -> None:
    """Given apart, it makes text of a checkpoint that has none."""
    model = iron_lm.load("llama", tiny.checkpoint.path, tokenizer=talking, max_seq_len=64, backend="reference")
    assert "".join(model.generate("the", 4))


def test_a_template_stands_beside_the_tokenizer_that_is_given(tiny: Any, talking: Path, tmp_path: Path) -> None:
    """Not beside the checkpoint then."""
    (tmp_path / "vocabulary.gguf").symlink_to(talking)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    model = iron_lm.load("llama", tiny.checkpoint.path, tokenizer=tmp_path / "vocabulary.gguf", max_seq_len=64, backend="reference")
    assert list(model.chat([{"role": "user", "content": "hi"}], 4))
