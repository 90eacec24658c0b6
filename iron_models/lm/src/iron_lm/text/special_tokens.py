"""What the files beside a tokenizer say of its special tokens, as transformers reads them; and what ends an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import read_json

#: Tokens that end an answer, known by their text, as llama.cpp knows them.
ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>",
    "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>",
    "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",  # where a gap is filled, these end what is filled in
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
)  # fmt: skip
#: An end that is none where a vocabulary has all of the others, too.
_NO_END = (
    ("<|end|>", ("<|return|>", "<|call|>")),
    ("<|end|>", ("<|calls|>", "<|flush|>")),
    ("<|end|>", ("<|call|>", "<|flush|>")),
    ("</s>", ("<|tool_response>",)),
)
#: Names of single special tokens in tokenizer_config.json and special_tokens_map.json.
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")
_MOST_ADDED = 1 << 20


def known_ends(find: Callable[[str], int | None]) -> dict[str, int]:
    """The tokens of a vocabulary that end an answer, known by their text. `find` gives a token's id, or None."""
    found = {text: id for text in ENDS if (id := find(text)) is not None}
    spared = {text for text, others in _NO_END if all(other in found for other in others)}
    return {text: id for text, id in found.items() if text not in spared}


@attrs.frozen
class Added:
    """A token beside the vocabulary's own: how it is spelled, and how it is found in a text.

    special: decoding leaves it out. lstrip, rstrip: it takes the spaces before or behind it along. single_word: it is found
    between what are no letters alone. normalized: it is looked for in the text as the tokenizer normalises it.
    """

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


class Companions:
    """tokenizer_config.json, special_tokens_map.json, added_tokens.json and generation_config.json of a folder.

    Each may be missing. CheckpointError names the file and the entry that cannot be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _read(self, name: str) -> dict[str, Any]:
        file = self.folder / name
        return read_json(file) if file.is_file() else {}

    @cached_property
    def config(self) -> dict[str, Any]:
        """tokenizer_config.json."""
        return self._read("tokenizer_config.json")

    @cached_property
    def _legacy(self) -> bool:
        """Were added tokens written to files of their own, as transformers did before it put them into tokenizer_config.json?"""
        return "added_tokens_decoder" not in self.config

    @cached_property
    def named(self) -> dict[str, str]:
        """Special tokens by their names, as in NAMED."""
        entries = self.config | (self._read("special_tokens_map.json") if self._legacy else {})
        return {name: text for name in NAMED if (text := spelled(entries.get(name)))}

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """Special tokens without names."""
        entries = self.config | (self._read("special_tokens_map.json") if self._legacy else {})
        lists = [list(found.values()) if isinstance(found := entries.get(name), dict) else found for name in _LISTED]
        return tuple(text for found in lists if isinstance(found, list) for token in found if (text := spelled(token)))

    @cached_property
    def added(self) -> dict[int, Added]:
        """Added tokens by id: of added_tokens_decoder, or of added_tokens.json in folders from before that."""
        special = {*self.named.values(), *self.listed}
        found: dict[int, Added] = {}
        if self._legacy:
            for content, id in self._read("added_tokens.json").items():
                place = self._place("added_tokens.json", id)
                found[place] = Added(content, special=content in special, normalized=content not in special)
            return found
        entries = self.config["added_tokens_decoder"]
        if not isinstance(entries, dict):
            raise self._error("tokenizer_config.json", "added_tokens_decoder is no object of tokens by id")
        for id, entry in entries.items():
            content = spelled(entry)
            if not isinstance(entry, dict) or not content:
                raise self._error("tokenizer_config.json", f"added_tokens_decoder: token {str(id)[:20]!r} has no content")
            place = self._place("tokenizer_config.json", int(id) if str(id).isascii() and str(id).isdigit() else id)
            flags = {name: entry.get(name) is True for name in ("special", "lstrip", "rstrip", "single_word", "normalized")}
            found[place] = Added(content, **flags | {"special": flags["special"] or content in special})
        return found

    def ends(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        """Ids that end an answer: generation_config.json's, else those of `config`, which is config.json."""
        own = self._read("generation_config.json")
        name, entries = ("generation_config.json", own) if own.get("eos_token_id") is not None else ("config.json", config)
        ids = entries.get("eos_token_id")
        listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if not all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in listed):
            raise self._error(name, f"eos_token_id is {str(ids)[:40]!r}; legal: an id, or a list of ids")
        return tuple(listed)

    def _place(self, name: str, id: Any) -> int:
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < _MOST_ADDED:
            raise self._error(name, f"{str(id)[:20]!r} is no token id; legal: 0 to {_MOST_ADDED - 1}")
        return id

    def _error(self, name: str, what: str) -> CheckpointError:
        return CheckpointError(f"{self.folder / name}: {what}.")


def spelled(token: Any) -> str:
    """A token that is given as its text, or as an object with `content`; "" for none."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def stops(*groups: Iterable[int]) -> tuple[int, ...]:
    """All of these ids, each once, in order."""
    return tuple(sorted({id for group in groups for id in group}))
