"""One vocabulary in every form a checkpoint can bring it: the same ids, the same ends of an answer, the same text."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text import vocabulary
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.tokenizer_files import tokenizer_files

SPLIT = vocabulary._SPLITS["llama-bpe"]
MERGED = [b" t", b"he", b" the", b"in", b"ing", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xc3\xa9"]
MERGES = [
    (b" ", b"t"),
    (b"h", b"e"),
    (b" t", b"he"),
    (b"i", b"n"),
    (b"in", b"g"),
    (b"\xf0", b"\x9f"),
    (b"\xf0\x9f", b"\x98"),
    (b"\xc3", b"\xa9"),
]
SPECIAL = vocabulary.LLAMA3_SPECIAL
CORPUS = [f"the {w} in a tree is {v}" for w in ("cat", "capital", "thing", "singing") for v in ("and", "here", "there", "seen")] * 4
TEXTS = st.lists(
    st.sampled_from(["the ", "thing", " in", "é", "😀", "\n", " ", "x", "▁", "\x00", "0", "<|im_end|>", "<s>"]), max_size=8
).map("".join)


def gguf_file(path: Path, **entries: Any) -> Path:
    """A GGUF with a vocabulary and no tensors."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, value in entries.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def added(id: int, content: str, special: bool = True) -> dict[str, Any]:
    return {"id": id, "content": content, "special": special} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def opened(file: Path) -> Tokenizer:
    found = open_tokenizer(file)
    assert found is not None
    return found


def written(gguf: Path) -> Tokenizer:
    """That of the files which a conversion of this GGUF writes."""
    folder = gguf.with_name("written")
    folder.mkdir()
    for name, data in tokenizer_files(Checkpoint.open(gguf)).items():
        (folder / name).write_bytes(data)
    return opened(folder)


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A byte-level vocabulary as a GGUF, as tokenizer.json, as tiktoken's ranks, and as the GGUF's is written."""
    folder = tmp_path_factory.mktemp("bytewise")
    letters = vocabulary.byte_letters()
    order = sorted(range(256), key=lambda b: ord(letters[b]))
    ranks = [bytes([b]) for b in order] + MERGED

    def spelled(token: bytes) -> str:
        return "".join(letters[b] for b in token)

    tokens = [*map(spelled, ranks), *SPECIAL]
    merges = [" ".join(map(spelled, pair)) for pair in MERGES]
    begin = len(ranks)
    gguf = gguf_file(
        folder / "v.gguf", model="gpt2", pre="llama-bpe", tokens=tokens, merges=merges, token_type=[1] * begin + [3] * len(SPECIAL),
        bos_token_id=begin, eos_token_id=begin + 1, add_bos_token=True,
    )  # fmt: skip
    whole = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 5, "pad_type_id": 0,
            "pad_token": "x"},
        "added_tokens": [added(begin + i, text) for i, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": SPECIAL[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {SPECIAL[0]: {"id": SPECIAL[0], "ids": [begin], "tokens": [SPECIAL[0]]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [m.split(" ") for m in merges],
            "ignore_merges": True},
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer.model").write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(t), i) for i, t in enumerate(ranks)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "LLAMA3_RANKS", begin)
        made = {"gguf": opened(gguf), "json": opened(folder / "tokenizer.json"), "ranks": opened(folder / "tokenizer.model")}
        made["written"] = written(gguf)
    return made


def piece_forms(folder: Path, prefix: bool) -> dict[str, Tokenizer]:
    """A sentencepiece vocabulary with byte fallback as its own model, as a GGUF, as tokenizer.json, and as the GGUF's is written."""
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    raw = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=raw, vocab_size=340, model_type="bpe", byte_fallback=True, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix, hard_vocab_limit=False,
        control_symbols=["<|im_start|>", "<|im_end|>"], user_defined_symbols=["<tool>"], num_threads=1,
    )  # fmt: skip
    model = SentencePieceProcessor()
    model.LoadFromSerializedProto(raw.getvalue())
    ids = range(model.get_piece_size())
    tokens, scores = [model.id_to_piece(i) for i in ids], [model.get_score(i) for i in ids]
    types = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 4 if tokens[i] == "<tool>" else 1
        for i in ids
    ]
    (folder / "spm").mkdir()
    (folder / "spm" / "tokenizer.model").write_bytes(raw.getvalue())
    (folder / "spm" / "tokenizer_config.json").write_text('{"legacy": true}', encoding="utf-8")
    gguf = gguf_file(
        folder / "v.gguf", model="llama", tokens=tokens, scores=scores, token_type=types, bos_token_id=1, eos_token_id=2,
        unknown_token_id=0,
        add_space_prefix=prefix,
    )  # fmt: skip
    place = {token: i for i, token in enumerate(tokens) if types[i] == 1}
    merges = [
        (-scores[i], place[t[:n]], place[t[n:]], t[:n], t[n:])
        for t, i in place.items()
        for n in range(1, len(t))
        if t[:n] in place and t[n:] in place
    ]
    prepend = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    whole = {
        "version": "1.0",
        "added_tokens": [added(i, tokens[i], types[i] != 4) for i in ids if types[i] in (2, 3, 4)],
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [m[3:] for m in sorted(merges)], "unk_token": "<unk>",
            "fuse_unk": True, "byte_fallback": True,
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    forms = {"gguf": opened(gguf), "json": opened(folder / "tokenizer.json"), "pieces": opened(folder / "spm")}
    return forms | {"written": written(gguf)}


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """With a space put before every text, as Llama 2's has."""
    return piece_forms(tmp_path_factory.mktemp("prefixed"), True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """Without it, as Gemma's."""
    return piece_forms(tmp_path_factory.mktemp("bare"), False)


@pytest.fixture(params=["bytewise", "prefixed", "bare"], scope="module")
def forms(request: pytest.FixtureRequest) -> dict[str, Tokenizer]:
    """The forms of one vocabulary."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def only(values: dict[str, Any]) -> Any:
    """The value that all forms give."""
    first, *others = values.values()
    assert all(other == first for other in others), values
    return first


def test_the_same_specials(forms: dict[str, Tokenizer]) -> None:
    """First id and the ids that end an answer: those named, and those known by their text."""
    bos = only({name: t.bos for name, t in forms.items()})
    stop = only({name: t.stop for name, t in forms.items()})
    one = next(iter(forms.values()))
    assert one.token(bos) in ("<|begin_of_text|>", "<s>")
    assert {one.token(i) for i in stop} in ({"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"}, {"</s>", "<|im_end|>"})


@settings(max_examples=60, deadline=None)
@given(text=TEXTS | st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
def test_the_same_ids(forms: dict[str, Tokenizer], text: str) -> None:
    """A text is the same ids in every form, special tokens in it found, and comes back where it has none."""
    ids = only({name: t.encode(text) for name, t in forms.items()})
    if "<" not in text and "▁" not in text:
        assert only({name: t.decode(ids) for name, t in forms.items()}) == text


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_same_stream(forms: dict[str, Tokenizer], data: st.DataObject) -> None:
    """Any ids, whatever bytes they spell, give the same pieces in every form; joined they are what decoding at once gives."""
    one = next(iter(forms.values()))
    byte = [i for i in range(300) if len(one.token(i) or "") == 1 or (one.token(i) or "").startswith("<0x")]
    ids = data.draw(st.lists(st.sampled_from(byte) | st.integers(0, one.vocab_size + 3), max_size=24))
    pieces = {}
    for name, tokenizer in forms.items():
        stream = tokenizer.stream()
        pieces[name] = [*map(stream, ids), stream.rest()]
    text = "".join(only(pieces))
    assert all(tokenizer.decode(ids) == text for tokenizer in forms.values())
    library = forms["json"]._library.decode(ids, skip_special_tokens=True)
    if "�" not in text or "ranks" in forms:  # the library has every byte of a run as U+FFFD where one of them is wrong
        assert text == library


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=24))
def test_bytes_that_are_no_text(bytewise: dict[str, Tokenizer], prefixed: dict[str, Tokenizer], data: bytes) -> None:
    """Byte tokens show as UTF-8 does where it can be read, and as U+FFFD where it cannot, characters around it whole."""
    for forms in (bytewise, prefixed):
        one = next(iter(forms.values()))
        letters = vocabulary.byte_letters()
        place = {one.token(i): i for i in range(one.vocab_size)}
        ids = [place.get(letters[b], place.get(f"<0x{b:02X}>")) if forms is bytewise else place[f"<0x{b:02X}>"] for b in data]
        text = data.decode("utf-8", "replace")
        if forms is prefixed and text.startswith(" "):
            text = text[1:]
        assert only({name: t.decode(ids) for name, t in forms.items()}) == text


def test_special_tokens_that_only_their_names_bring(tmp_path: Path) -> None:
    """Named or listed beside a vocabulary that lacks them: the next ids in that order, found whole in a text, not shown."""
    piece_forms(tmp_path, True)
    beside = {
        "legacy": True, "pad_token": "<pad>", "additional_special_tokens": ["<new>", "tree"],
        "extra_special_tokens": {"image_token": "<image>"},
    }  # fmt: skip
    found = {}
    for name, file in (("json", tmp_path / "tokenizer.json"), ("pieces", tmp_path / "spm")):
        own = opened(file).vocab_size
        (file if file.is_dir() else tmp_path).joinpath("tokenizer_config.json").write_text(json.dumps(beside), encoding="utf-8")
        tokenizer = opened(file)
        ids = tokenizer.encode("<pad><new><image>tree")
        assert ids[-4:-1] == [own, own + 1, own + 2 + (tokenizer.vocab_size == own + 4)] and tokenizer.decode(ids) == ""
        found[name] = tokenizer.encode("the<pad> <new>a tree<image>")
    only(found)


def test_a_stream_goes_on_where_a_prompt_ends(prefixed: dict[str, Tokenizer]) -> None:
    """A word behind others keeps its space; the same word at a text's beginning has none."""
    for tokenizer in prefixed.values():
        ids = tokenizer.encode("the tree and")
        stream = tokenizer.stream()
        pieces = [stream(i) for i in ids]
        assert "".join(pieces) == "the tree and"
        (word,) = [i for i in range(tokenizer.vocab_size) if tokenizer.token(i) == "▁and"]
        assert stream(word) == " and" and tokenizer.stream()(word) == "and"


DECODERS = {
    "none": None,
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace without prefix": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "strip": {"type": "Sequence", "decoders": [{"type": "Strip", "content": "▁", "start": 1, "stop": 0}, {"type": "Fuse"}]},
    "words": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "suffix": {"type": "BPEDecoder", "suffix": "</w>"},
}


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, 12), max_size=10))
def test_any_decoder_streams_what_it_decodes(decoder: dict[str, Any] | None, ids: list[int]) -> None:
    """Whatever decoder a tokenizer.json names, the pieces join to the library's own text of all ids."""
    from tokenizers import Tokenizer as Library

    tokens = ["a", "▁b", "▁▁c", "▁", "##d", "e</w>", ".", "n't", "f", "▁g▁", " ", "<end>"]
    model = {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": "a"}
    whole = {"version": "1.0", "added_tokens": [added(11, "<end>")], "decoder": decoder, "model": model}
    library = Library.from_str(json.dumps(whole | dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor"))))
    tokenizer = Tokenizer(library)
    stream = tokenizer.stream()
    assert "".join([*map(stream, ids), stream.rest()]) == tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)
    stream = tokenizer.stream()
    assert stream.take(ids[:4]) + stream.take(ids[4:]) + stream.rest() == tokenizer.decode(ids)
