"""A program that has imported all and loaded nothing: for every line on standard input, the name of a cache folder, a child of
its own answers the same prompt and prints its ids, or what went wrong, as one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import iron_host.executable  # noqa: F401
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_ops_aie import GEMV, MHA, Copy, RMSNorm, RoPE, Sample  # noqa: F401


def answer(file: str, cache: str) -> dict[str, object]:
    """Twelve tokens of a prompt, with everything as a run from the command line has it."""
    os.environ["NPU_CACHE_HOME"] = cache
    warnings.simplefilter("ignore")
    loaded = loading.load(Llama, file, max_seq_len=128)
    assert loaded.tokenizer is not None
    session = Session(loaded.model(), backend="host", cache_key=loaded.cache_key)
    return {"ids": session.generate(loaded.tokenizer.encode("hi there, how are you?"), 12)}


def main(file: str) -> None:
    assert Path(file).is_file()
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            try:
                found = answer(file, line.strip())
            except BaseException as error:
                found = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(found), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"died": status}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
