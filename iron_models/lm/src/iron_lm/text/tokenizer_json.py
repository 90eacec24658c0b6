"""What a tokenizer.json may hold: looked at before the `tokenizers` library loads it, which ends the process where memory runs out."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from iron_core.cache.entry import About
from iron_core.cache.keys import digest, sources_digest
from iron_core.cache.store import Cache, optional
from iron_core.errors import CheckpointError, printable
from iron_lm.text.vocabulary import MOST_ADDED, MOST_LETTERS

#: Bytes of a file; Gemma's has 33 million.
_MOST = 64 << 20
#: Bytes of a file whose check is kept in the cache: it takes a third of the time that the library takes to load it.
_KEPT = 1 << 20
#: Characters that one character of a text, or none, may become: ALBERT's normalizer, say, makes 648 at the very most.
_MOST_GROWTH = 1 << 10
#: Characters that all the added tokens may become; the library normalises them while it loads them.
_MOST_NORMALIZED = 1 << 24
#: Steps of a normalizer, pre-tokenizer, decoder or post-processor; ids that a template adds; characters of an affix.
_MOST_STEPS, _MOST_IDS, _LONGEST_AFFIX = 128, 1 << 12, 256
#: Bytes of a Unigram vocabulary, in all and for each piece: the library's trie takes some 340 for each.
_UNIGRAM_FREE, _UNIGRAM_EACH = 1 << 20, 32
#: The most characters that Unicode makes of one. What comes of one of these steps stays as it is in the next.
_UNICODE = {"NFC": 4, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "BertNormalizer": 12}
#: A letter for each byte, and a space in front; a space in front of each piece.
_SPELLED = {"ByteLevel": 5, "Metaspace": 2}
#: A step with one of these makes characters that no step before it has seen.
_NEW = {"content", "prepend", "precompiled_charsmap"}
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


def read_tokenizer(file: Path) -> bytes:
    """A tokenizer.json that the library can load; CheckpointError for one that would take its memory or time without bounds."""
    size = file.stat().st_size
    if size > _MOST:
        raise CheckpointError(f"{file}: {size} bytes of tokenizer.json; legal: up to {_MOST}.")
    raw = file.read_bytes()
    if len(raw) < _KEPT:
        _check(file, raw)
        return raw
    key = digest(sources_digest("iron_lm.text.tokenizer_json", "iron_lm.text.vocabulary"), raw)
    with optional():
        if Cache("tokenizers").read(key, "checked") is not None:
            return raw
    _check(file, raw)
    with optional():
        Cache("tokenizers").keep(key, "checked", b"1", about=About("tokenizer", str(file)))
    return raw


def _check(file: Path, raw: bytes) -> None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not a tokenizer.json ({printable(error, 120)}).") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{file}: not a tokenizer.json: no JSON object.")
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        if max(growth(file, found.get(name))) > _MOST_GROWTH:
            raise CheckpointError(f"{file}: its {name} makes more than {_MOST_GROWTH} characters of one; no tokenizer does.")
    _check_template(file, found.get("post_processor"))
    tokens, model = _list(found, "added_tokens"), found.get("model")
    if not isinstance(model, dict) or not all(isinstance(token, dict) for token in tokens):
        raise CheckpointError(f"{file}: not a tokenizer.json: its model, or one of its added_tokens, is no object.")
    check_added(file, [(str(token.get("content")), token.get("normalized") is not False) for token in tokens], found.get("normalizer"))
    _check_model(file, model)


def check_added(file: Path, tokens: list[tuple[str, bool]], normalizer: Any) -> None:
    """Tokens beside the vocabulary's own, each with whether it is normalised: as many, and as long, as a text can be searched for."""
    if len(tokens) > MOST_ADDED:
        raise CheckpointError(f"{file}: {len(tokens)} added tokens; legal: up to {MOST_ADDED}.")
    if sum(len(content) for content, _ in tokens) > MOST_LETTERS:
        raise CheckpointError(f"{file}: added tokens of more than {MOST_LETTERS} characters together; it is damaged.")
    times, more = growth(file, normalizer)
    if sum(times * len(content) + more for content, normalized in tokens if normalized) > _MOST_NORMALIZED:
        raise CheckpointError(
            f"{file}: its normalizer makes more than {_MOST_NORMALIZED} characters of its added tokens; no tokenizer does."
        )


def growth(file: Path, part: Any) -> tuple[int, int]:
    """How many characters a normalizer, pre-tokenizer or decoder makes of one at most, and of none, step by step."""
    times, more, unicode = 1, 0, 1
    for step in _steps(file, part):
        kind = step.get("type")
        if kind in _UNICODE:
            last, unicode = unicode, max(unicode, _UNICODE[kind])
            times, more = times * unicode // last, more * unicode // last
            continue
        by, plus = _grown(file, step)
        if not _NEW.isdisjoint(step) or by > 1:
            unicode = 1
        times, more = times * by, more * by + plus
    return times, more


def _grown(file: Path, step: dict[str, Any]) -> tuple[int, int]:
    """What one step makes of a character, and of none, whichever kind the library takes it for."""
    times, more = _SPELLED.get(str(step.get("type")), 1), len(str(step.get("prepend") or ""))
    if "content" in step and "pattern" in step:
        pattern, length = step["pattern"], len(str(step["content"]))
        if not (isinstance(pattern, dict) and pattern.get("String")):  # what matches nothing is found between all characters
            times, more = times + length, more + length
        times = max(times, length)
    if "precompiled_charsmap" in step:
        times = max(times, _longest_replacement(file, step["precompiled_charsmap"]))
    return times, more


def _longest_replacement(file: Path, coded: Any) -> int:
    """Of sentencepiece's table: the length of a trie, the trie, and what it leads to, each with a zero byte behind it."""
    try:
        table = base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        table = b""
    trie = int.from_bytes(table[:4], "little")
    if len(table) < 4 or trie % 4 or trie > len(table) - 4:
        raise CheckpointError(f"{file}: its precompiled_charsmap is no table of characters; it is damaged.")
    return max(1, *map(len, table[4 + trie :].split(b"\0"))) if len(table) > 4 + trie else 1


def _steps(file: Path, part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part, those of sequences in sequences, too."""
    for count, step in enumerate(_flat(part)):
        if not isinstance(step, dict):
            raise CheckpointError(f"{file}: a step of its normalizer, pre_tokenizer, decoder or post_processor is no object with a type.")
        if count == _MOST_STEPS:
            raise CheckpointError(
                f"{file}: a normalizer, pre_tokenizer, decoder or post_processor of more than {_MOST_STEPS} steps; no tokenizer has them."
            )
        yield step


def _flat(part: Any) -> Iterator[Any]:
    if part is not None:
        yield part
    for name in _LISTS:
        for inner in _list(part, name):
            yield from _flat(inner)


def _check_template(file: Path, part: Any) -> None:
    """A post-processor adds ids to a text's own, and may repeat those."""
    times, more = 1, 0
    for step in _steps(file, part):
        pieces = _list(step, "single")
        named = sum(isinstance(piece, dict) and "SpecialToken" in piece for piece in pieces)
        special = step.get("special_tokens")
        longest = max(map(_leaves, special.values() if isinstance(special, dict) else [special]), default=0)
        own = max(1, len(pieces) - named)
        times, more = times * own, more * own + named * longest
    if max(times, more) > _MOST_IDS:
        raise CheckpointError(f"{file}: its post_processor adds more than {_MOST_IDS} ids to a text; no tokenizer does.")


def _leaves(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(_leaves, value.values() if isinstance(value, dict) else value))
    return 1


def _list(entry: Any, name: str) -> list[Any]:
    found = entry.get(name) if isinstance(entry, dict) else None
    return found if isinstance(found, list) else []


def _check_model(file: Path, model: dict[str, Any]) -> None:
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(name) or "")) > _LONGEST_AFFIX:
            raise CheckpointError(f"{file}: its {name} has more than {_LONGEST_AFFIX} characters; no tokenizer's has.")
    prefix, merges = model.get("continuing_subword_prefix"), _list(model, "merges")
    if prefix and not all(_second(merge).startswith(str(prefix)) for merge in merges):
        raise CheckpointError(
            f"{file}: merges whose second token does not begin with {printable(prefix, 40)!r}, its continuing_subword_prefix."
        )
    pieces = _list(model, "vocab")  # a list is Unigram's, with scores
    if sum(_bytes(pieces)) > _UNIGRAM_FREE + _UNIGRAM_EACH * len(pieces):
        raise CheckpointError(f"{file}: pieces of more than {_UNIGRAM_FREE} bytes and {_UNIGRAM_EACH} for each; no vocabulary has them.")


def _second(merge: Any) -> str:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return str(parts[1]) if isinstance(parts, list) and len(parts) == 2 else ""


def _bytes(pieces: Iterable[Any]) -> Iterator[int]:
    return (len(piece[0].encode(errors="replace")) for piece in pieces if isinstance(piece, list) and piece and isinstance(piece[0], str))
