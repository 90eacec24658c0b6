"""Vocabularies as the `tokenizers` library's JSON: of a GGUF's own lists, and of tiktoken's ranks."""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.gguf_header import Numbers, Strings
from iron_lm.text.special_tokens import known_ends

#: How text is split before merging: regular expressions, each piece then byte-level. Names are GGUF's `tokenizer.ggml.pre`.
_SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    ),
}
_DIGITS = ("smollm", "starcoder", "refact", "command-r")
_PLAIN = ("gpt-2", "gpt2")
#: What llama.cpp splits by, one after the other, where a GGUF names no `pre`.
_UNNAMED = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
#: A GGUF's `token_type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
#: Tokens a text is searched for before it is split, and their characters together; Gemma has six thousand tokens.
MOST_ADDED, MOST_LETTERS = 1 << 16, 1 << 20
#: Of the ways to make tokens of others: characters looked at and taken for each character of the vocabulary, and ways for
#: each token; and as many on top. Sentencepiece's vocabularies have about two ways for each token.
_TRIED, _LETTERS, _WAYS, _FREE = 64, 16, 6, 1 << 14
#: What stands for a space in sentencepiece's vocabularies.
SPACE = "▁"

#: Ranks of a Llama 3 `tokenizer.model`, and the special tokens that its program numbers from there on.
LLAMA3_RANKS = 128_000
_LLAMA3_NAMED = (
    "begin_of_text end_of_text reserved_special_token_0 reserved_special_token_1 finetune_right_pad_id reserved_special_token_2 "
    "start_header_id end_header_id eom_id eot_id python_tag"
).split()
LLAMA3_SPECIAL = tuple(
    f"<|{name}|>" for name in (*_LLAMA3_NAMED, *(f"reserved_special_token_{i}" for i in range(3, 256 - len(_LLAMA3_NAMED) + 3)))
)
#: A line of ranks is a token of at most this many bytes.
_LONGEST = 4096


def gguf_tokenizer(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    """A tokenizer.json object of a GGUF's vocabulary: kind gpt2 (byte-level BPE), llama (sentencepiece BPE) or gemma4."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens = _strings(metadata, "tokens", where)
    types = _numbers(metadata, "token_type", where, whole=True)
    if len(types) not in (0, len(tokens)):
        raise _unfit(where)
    ends = set(known_ends({token: i for i, token in enumerate(tokens)}.get).values())  # control tokens, whatever their type
    special = {*ends, *(i for i, type in enumerate(types) if type in (CONTROL, UNKNOWN))}
    added = [
        _added(i, token, i in special) for i, token in enumerate(tokens) if i in special or (types and types[i] == USER_DEFINED)
    ]
    if len(added) > MOST_ADDED:
        raise CheckpointError(f"{where}: {len(added)} control and user-defined tokens; legal: up to {MOST_ADDED}.")
    if sum(len(token["content"]) for token in added) > MOST_LETTERS:
        raise CheckpointError(f"{where}: control and user-defined tokens of more than {MOST_LETTERS} characters together; it is damaged.")
    if kind == "gpt2":
        pre = metadata.get("tokenizer.ggml.pre", "default")
        merges = _merges(metadata, where)
        return _byte_level(tokens, merges, added, _steps(pre, where), ignore_merges=pre == "llama-bpe")
    if kind == "gemma4":
        return _spaced(tokens, _merges(metadata, where), added, _unknown(metadata, tokens), prefix=False)
    if kind == "llama":
        scores = _numbers(metadata, "scores", where)
        if len(scores) != len(tokens):
            raise _unfit(where)
        kept = [not types or types[i] in (NORMAL, USER_DEFINED, UNUSED) for i in range(len(tokens))]
        pairs = merges_of_scores(
            [t for t, k in zip(tokens, kept, strict=True) if k], [s for s, k in zip(scores, kept, strict=True) if k], where
        )
        prefix = flag(metadata, "tokenizer.ggml.add_space_prefix", True, where)
        return _spaced(tokens, pairs, added, _unknown(metadata, tokens), prefix=prefix)
    shown = repr(kind[:40]) if isinstance(kind, str) else f"a {type(kind).__name__}"
    raise CheckpointError(f"{where}: tokenizer kind {shown}. Legal: 'gpt2', 'llama', 'gemma4'; or give a tokenizer with --tokenizer.")


def _strings(metadata: dict[str, Any], name: str, where: str) -> list[str]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, Strings):
        raise _unfit(where)
    return list(found.decode())


def _merges(metadata: dict[str, Any], where: str) -> list[list[str]]:
    """Pairs of tokens that merge, the first to merge first."""
    merges = [merge.split(" ", 1) for merge in _strings(metadata, "merges", where)]
    bad = next((i for i, pair in enumerate(merges) if len(pair) != 2 or not all(pair)), None)
    if bad is not None:
        raise CheckpointError(
            f"{where}: the vocabulary makes no tokenizer: merge {bad} is {' '.join(merges[bad])[:40]!r}; legal: two "
            "tokens and a space between."
        )
    return merges


def _numbers(metadata: dict[str, Any], name: str, where: str, whole: bool = False) -> list[Any]:
    """An array of numbers, one a token; [] where there is none."""
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is None:
        return []
    values = np.asarray(found) if isinstance(found, Numbers) else None
    if values is None or values.dtype.kind not in ("iu" if whole else "iuf") or np.isnan(values).any():
        legal = "an array of whole numbers" if whole else "an array of numbers"
        raise CheckpointError(f"{where}: tokenizer.ggml.{name} holds what is no {'token type' if whole else 'score'}; legal: {legal}.")
    return values.tolist()


def flag(metadata: dict[str, Any], key: str, default: bool, where: str) -> bool:
    """An entry that is true or false."""
    found = metadata.get(key, default)
    if not isinstance(found, bool):
        raise CheckpointError(
            f"{where}: {key} is {printable(repr(found), 40) if isinstance(found, (str, int, float)) else 'an array'}; legal: true, false."
        )
    return found


def _unfit(where: str) -> CheckpointError:
    return CheckpointError(f"{where}: the tokenizer's tokens, merges, scores and types do not fit together; give one with --tokenizer.")


def _unknown(metadata: dict[str, Any], tokens: Sequence[str]) -> str | None:
    id = metadata.get("tokenizer.ggml.unknown_token_id", 0 if metadata.get("tokenizer.ggml.model") == "llama" else None)
    return tokens[id] if isinstance(id, int) and 0 <= id < len(tokens) else None


def _steps(pre: Any, where: str) -> list[dict[str, Any]]:
    """Pre-tokenizers of a GGUF's `pre`."""
    if pre in _DIGITS:
        return [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]
    if pre in _PLAIN:
        return [_BYTE_LEVEL]
    if pre == "default" or (isinstance(pre, str) and pre in _SPLITS):
        patterns = _UNNAMED if pre == "default" else (_SPLITS[pre],)
        splits = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in patterns]
        return [*splits, _BYTE_LEVEL | {"use_regex": False}]
    legal = ", ".join(["default", *_DIGITS, *_PLAIN, *_SPLITS])
    shown = repr(pre[:40]) if isinstance(pre, str) else f"a {type(pre).__name__}"
    raise CheckpointError(f"{where}: pre-tokenizer {shown}. Legal: {legal}; or give a tokenizer.json with --tokenizer.")


def _added(id: int, content: str, special: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, "special": special, **plain}


def _byte_level(
    tokens: Iterable[str], merges: Any, added: list[dict[str, Any]], steps: list[dict[str, Any]], *, ignore_merges: bool
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, "ignore_merges": ignore_merges},
    }


def _spaced(tokens: Sequence[str], merges: Any, added: list[dict[str, Any]], unknown: str | None, *, prefix: bool) -> dict[str, Any]:
    """A sentencepiece vocabulary: spaces are letters, and what no token spells falls back to bytes."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, "unk_token": unknown,
            "fuse_unk": True, "byte_fallback": True,
        },
    }  # fmt: skip


def merges_of_scores(tokens: Sequence[str], scores: Sequence[float], where: str = "the vocabulary") -> list[tuple[str, str]]:
    """The merges sentencepiece's BPE makes: every way to make a token of two others, the best-scored tokens first.

    CheckpointError where there are many times the ways that any vocabulary has: n prefixes of one word have n * n / 2.
    """
    rank = {token: i for i, token in enumerate(tokens)}
    lengths = {len(token) for token in rank}
    total = sum(map(len, rank))
    tries, ways, letters = _TRIED * total + _FREE, _WAYS * len(rank) + _FREE, _LETTERS * total + _FREE
    whole, first, second = array("i"), array("i"), array("i")
    for i, token in enumerate(tokens):
        length = len(token)
        shorter = lengths if len(lengths) < length else range(1, length)
        cuts = [n for n in shorter if n < length and n in lengths and length - n in lengths]
        tries -= length * len(cuts)
        for n in cuts if tries >= 0 else ():
            a, b = rank.get(token[:n]), rank.get(token[n:])
            if a is not None and b is not None:
                whole.append(i)
                first.append(a)
                second.append(b)
                letters -= length
        if tries < 0 or letters < 0 or len(whole) > ways:
            raise CheckpointError(f"{where}: its tokens are made of each other in more ways than any vocabulary's; it is damaged.")
    worst = -np.asarray(scores, np.float64)[np.asarray(whole, np.intp)]
    return [(tokens[first[k]], tokens[second[k]]) for k in np.lexsort((np.asarray(second), np.asarray(first), worst))]


# -- tiktoken ------------------------------------------------------------------------------------------


def is_ranks(head: bytes) -> bool:
    """Does a file begin as tiktoken's ranks do: a token in base64, a space, its rank?"""
    line = head.split(b"\n", 1)[0].split(b" ")
    return len(line) == 2 and line[1].strip().isdigit() and _decoded(line[0]) is not None


def _decoded(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def ranks_tokenizer(path: Path) -> dict[str, Any]:
    """A tokenizer.json object of Llama 3's `tokenizer.model`: ranks and the special tokens its program adds."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines()):
        parts = line.split()
        token = _decoded(parts[0]) if len(parts) == 2 and parts[1].isdigit() and len(line) < _LONGEST else None
        if token is None or int(parts[1]) != number:
            raise CheckpointError(f"{path}, line {number + 1}: not a token in base64 and its rank {number}.")
        ranks[token] = number
    if len(ranks) != LLAMA3_RANKS:
        raise CheckpointError(
            f"{path}: {len(ranks)} ranks. Legal: Llama 3's {LLAMA3_RANKS}, whose special tokens are known; or give a tokenizer.json."
        )
    spelled = byte_letters()
    tokens = ["".join(spelled[b] for b in token) for token in ranks]
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            parts = _parts(ranks, token, rank)
            if len(parts) == 2:
                merges.append(tuple("".join(spelled[b] for b in part) for part in parts))
    added = [_added(LLAMA3_RANKS + i, name, True) for i, name in enumerate(LLAMA3_SPECIAL)]
    return _byte_level([*tokens, *LLAMA3_SPECIAL], merges, added, _steps("llama-bpe", str(path)), ignore_merges=True)


def _parts(ranks: dict[bytes, int], token: bytes, below: int) -> list[bytes]:
    """A token as what lower ranks merge it into."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(
            ((ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if ranks.get(a + b, below) < below),
            default=None,
        )
        if best is None:
            return parts
        at = best[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


@cache
def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level vocabularies: itself where it prints, else one past the bytes."""
    prints = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in prints else chr(next(others)) for b in range(256)]
