"""`Figures`: what a run took."""

from __future__ import annotations

import attrs

from iron_lm import process


@attrs.define
class Figures:
    """Seconds are wall time; rates are tokens per second; memory is what is the process's own."""

    load_s: float = 0.0
    compile_s: float = 0.0
    first_token_s: float = 0.0
    first_token_cpu_s: float = 0.0
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    peak_memory_mb: float = 0.0

    def sample_memory(self) -> None:
        """Note the memory in use now if it is the most yet."""
        self.peak_memory_mb = max(self.peak_memory_mb, process.own_bytes() / 1e6)

    def as_dict(self) -> dict[str, float]:
        """For `--json`, with the rates."""
        rates = dict(prompt_tok_s=_rate(self.prompt_tokens, self.prompt_s), decode_tok_s=_rate(self.decode_tokens, self.decode_s))
        return attrs.asdict(self) | rates

    def line(self) -> str:
        """For people."""
        decode = f"decode {self.decode_tokens} tok at {_rate(self.decode_tokens, self.decode_s):.1f} tok/s · " if self.decode_tokens else ""
        return (
            f"prompt {self.prompt_tokens} tok in {self.prompt_s * 1e3:.0f} ms ({_rate(self.prompt_tokens, self.prompt_s):.1f} tok/s) · "
            f"{decode}first token {self.first_token_s:.2f} s after start ({self.first_token_cpu_s:.2f} s of CPU) · "
            f"peak {self.peak_memory_mb:.0f} MB of its own"
        )


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0
