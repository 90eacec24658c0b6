"""`Excerpts`: a vocabulary of which a short text's own part is loaded, and the whole where more is asked.

The `tokenizers` library takes a microsecond for each token and merge of a vocabulary before it encodes anything. Of byte-level BPE a text
meets those tokens and merges alone whose letters stand in it one after the other: the others change nothing of its ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from iron_lm.text.vocabulary import byte_letters

#: Characters of a text, and texts, up to which excerpts take less time than the whole.
_LONGEST, _TEXTS = 2048, 8


def listed(made: dict[str, Any]) -> bytes:
    """A tokenizer.json object as `Excerpts` reads it: a line of what is no list, one of each token, and one of each two letters that
    tokens begin with: these, the tokens' ids, the ranks of the merges that give them, and these. b"" for one of another kind than
    byte-level BPE, or with letters that would not come back."""
    model, added = made["model"], made["added_tokens"]
    steps = (made["pre_tokenizer"] or {}).get("pretokenizers", [{}])
    if model["type"] != "BPE" or made["normalizer"] is not None or steps[-1].get("type") != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return b""
    tokens, merges = list(model["vocab"]), list(map(" ".join, model["merges"]))
    in_order = all(id == n for n, id in enumerate(model["vocab"].values()))
    own = all(model["vocab"].get(token["content"]) == token["id"] for token in added)
    letters = "\0".join((*tokens, *merges))
    if not (in_order and own and {"\n", "\t"}.isdisjoint(letters) and all(merge.count(" ") == 1 for merge in merges)):
        return b""
    places = dict[str, tuple[list[str], list[str], list[str]]]()
    for id, token in enumerate(tokens):
        places.setdefault(token[:2], ([], [], []))[0].append(str(id))
    for rank, merge in enumerate(merges):
        _, ranks, those = places[merge.replace(" ", "")[:2]]
        ranks.append(str(rank))
        those.append(merge)
    lines = ("\t".join((two, " ".join(ids), " ".join(ranks), *those)) for two, (ids, ranks, those) in places.items())
    rest = made | {"model": {name: part for name, part in model.items() if name not in ("vocab", "merges")}}
    try:
        return "\n".join((json.dumps([len(tokens), rest]), *tokens, *lines)).encode()
    except UnicodeEncodeError:
        return b""


class Excerpts:
    """What `Tokenizer` asks of the library's own, and its `save`. lists: as `listed` gives them; whole: loads all of it, when a long text
    is encoded, or one after many."""

    def __init__(self, lists: bytes, whole: Callable[[], Any]) -> None:
        head, *lines = lists.decode().split("\n")
        count, self._rest = json.loads(head)
        self._tokens, self._places = lines[:count], dict(line.split("\t", 1) for line in lines[count:])
        self._whole, self._library = whole, None
        self._left = _TEXTS

    def get_vocab_size(self) -> int:
        return len(self._tokens)

    def id_to_token(self, id: int) -> str | None:
        return self._tokens[id] if id < len(self._tokens) else None

    def token_to_id(self, token: str) -> int | None:
        return next((id for id in self._place(token[:2])[0] if self._tokens[id] == token), None)

    @property
    def decoder(self) -> Any:
        return self._excerpt("").decoder

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return dict(self._excerpt("").get_added_tokens_decoder())

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return str(self._all().decode(ids, skip_special_tokens=skip_special_tokens))

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        self._left -= 1
        library = self._all() if self._library is not None or len(text) > _LONGEST or self._left < 0 else self._excerpt(text)
        return library.encode(text, add_special_tokens=add_special_tokens)

    def save(self, path: str) -> None:
        self._all().save(path)

    def _all(self) -> Any:
        if self._library is None:
            self._library = self._whole()
        return self._library

    def _place(self, two: str) -> tuple[list[int], list[tuple[int, str]]]:
        """Of the tokens that begin with these letters the ids, and the merges that give them, with their ranks."""
        ids, ranks, *merges = self._places.get(two, "\t").split("\t")
        return list(map(int, ids.split())), list(zip(map(int, ranks.split()), merges, strict=True))

    def _excerpt(self, text: str) -> Any:
        """The library's tokenizer of what the text may meet; the ids, and which merge comes first, are the whole's."""
        from tokenizers import Tokenizer as Library

        letters = "".join(map(byte_letters().__getitem__, text.encode()))
        vocab = {token["content"]: token["id"] for token in self._rest["added_tokens"]}
        merges = list[tuple[int, str]]()
        for two in {*letters, *map(str.__add__, letters, letters[1:])}:
            ids, ranked = self._place(two)
            vocab |= {self._tokens[id]: id for id in ids if self._tokens[id] in letters}
            merges += [one for one in ranked if one[1].replace(" ", "") in letters]
        model = self._rest["model"] | {"vocab": vocab, "merges": [merge for _, merge in sorted(merges)]}
        return Library.from_buffer(json.dumps(self._rest | {"model": model}, ensure_ascii=False).encode())
