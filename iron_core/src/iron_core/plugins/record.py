"""What is known of one entry point: whose it is, and what happened when it was loaded."""

from __future__ import annotations

import re
import threading
import time
import traceback
import warnings
from functools import lru_cache
from typing import Any

import attrs

from iron_core.errors import PluginWarning
from iron_core.plugins import foreign, kinds
from iron_core.plugins.pins import refusal

#: The groups this iron reads, and the API level it reads of each.
LEVELS = {
    "operators": 1,
    "backends": 1,
    "lowerings": 1,
    "models": 1,
    "checkpoints": 1,
    "tokenizers": 1,
    "devices": 1,
    "formats": 1,
    "commands": 1,
    "tuners": 1,
    "plugins": 1,
}
#: Distributions of this project; an allow-list never hides them, and a name that one of them claims is its own.
OWN = frozenset(
    f"iron-{name}"
    for name in (
        *("core", "ops-aie", "ops-flm", "host", "sim", "npu", "tuner"),
        *("lm", "llama", "mistral", "qwen2", "qwen2-moe", "qwen3", "qwen3-moe", "qwen3-5", "gemma3", "olmo2", "phi3", "gpt2"),
        *("bert", "embedding-gemma2", "q4nx", "onnx"),
    )
)
#: Those of them whose operators' names begin with a word of their own, by that word.
PREFIXES = {"flm": "iron-ops-flm"}

#: Names that are another of ours' than theirs who is called so, in its group.
MORE = {
    **{("commands", name): whose for name, whose in (("compile", "iron-npu"), ("image", "iron-npu"), ("tune", "iron-tuner"))},
    **{("commands", name): "iron-lm" for name in ("checkpoints", "embed")},
    **{("checkpoints", name): "iron-lm" for name in ("safetensors", "gguf", "meta", "pytorch")},
    ("models", "auto"): "iron-lm",
}
#: Seconds that an import may take before it is told of.
SLOW = 1.0


def clock() -> float:
    """What imports are timed by: seconds in which this thread ran, slept or waited for a disk, not those in which others had its CPU."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            waited = int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):  # another system, or a kernel that does not count
        waited = 0.0
    return time.perf_counter() - waited


_UNSET: Any = object()


@lru_cache(maxsize=1024)
def normal(name: str) -> str:
    """A distribution's name as names are compared."""
    return re.sub(r"[\W_]+", "-", name).strip("-").lower()


@attrs.define(eq=False)
class Record:
    """One entry point. `group` is short ("operators"); `level` is the one its distribution was built for.

    status: "not loaded", "ok", "failed", "ambiguous", "shadowed", "denied" or "incompatible"; `detail` says why. seconds: what its import
    took, that of all it imported first included; None before it was tried. threads: those that it began, which Python
    waits for. strange: what is wrong with its group, where that is none.
    cure: what to do about it, if that is something else than `fix` says of others.
    """

    group: str
    level: int
    name: str
    value: str
    distribution: str
    version: str
    entry: Any
    status: str = "not loaded"
    detail: str = ""
    traceback: str = ""
    seconds: float | None = None
    threads: tuple[threading.Thread, ...] = ()
    strange: str = ""
    cure: str = ""
    _loaded: Any = attrs.field(default=_UNSET, repr=False)

    @property
    def owner(self) -> str:
        """Distribution and version, as shown."""
        return f"{self.distribution} {self.version}"

    @property
    def line(self) -> str:
        """Its line of entry_points.txt, as shown."""
        return f"entry point `{self.name} = {self.value}`"

    @property
    def origin(self) -> str:
        """Whose it is, and which of theirs: what an error names that came out of its code."""
        return f"{self.owner} ({self.line})"

    @property
    def package(self) -> str:
        """The top-level package its code is in."""
        return self.value.partition(":")[0].partition(".")[0].strip()

    @property
    def own(self) -> bool:
        """Is it Iron's: of a distribution of ours, and in that one's package? A name alone anybody can take."""
        name = normal(self.distribution)
        return name in OWN and self.package == name.replace("-", "_")

    @property
    def fix(self) -> str:
        """What to do about one that fails. Nobody is told to hide what is Iron's."""
        if self.cure:
            return self.cure
        return "Install it again" if self.own else f"Fix it or hide it: {self.hidden}"

    @property
    def hidden(self) -> str:
        """What hides its distribution."""
        name = self.distribution
        return f"IRON_PLUGINS=-{name if re.fullmatch(r'[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?', name) else normal(name)}"

    @property
    def slow(self) -> str:
        """What to say of an import that took long; "" of others."""
        if self.seconds is None or self.seconds <= SLOW:
            return ""
        return f"importing {self.group.removesuffix('s')} `{self.name}` of {self.origin} took {self.seconds:.1f} s"

    def load(self, *, debug: bool = False, telling: bool = True) -> bool:
        """Import what it names, once, and see that it is of its group's kind. False if not (`detail` then says why). telling: warn of
        somebody else's that took long."""
        if self.entry is None or self.status in ("failed", "denied", "incompatible"):
            return False
        if self._loaded is _UNSET:
            if not self.own and (why := refusal(self.distribution)):
                self.status, self.detail, self.cure = "incompatible", why, "Upgrade one of the two"
                return False
            start, before = clock(), set(threading.enumerate())
            try:
                with foreign.guarded(), foreign.unchanged():
                    loaded = self.entry.load()
                    self.seconds = clock() - start
                    wrong = kinds.wrong(self.group, loaded)
            except foreign.Raised as raised:
                self.seconds = clock() - start
                self.threads = self._began(before)
                if debug:
                    raise raised.error from None
                self.fail(f"{raised} (from {self.value.partition(':')[0]})", raised.error)
                return False
            self.threads = self._began(before)
            if wrong:
                self.fail(wrong)
                return False
            self._loaded = loaded
            if self.status == "not loaded":
                self.status = "ok"
            if telling and self.slow and not self.own:
                advice = f"Its author can have it import late what it needs; {self.hidden} does without it."
                warnings.warn(f"{self.slow}. {advice}", PluginWarning, stacklevel=2)
        return True

    def _began(self, before: set[threading.Thread]) -> tuple[threading.Thread, ...]:
        """Threads that its import began, of those that Python would wait for."""
        return () if self.own else tuple(t for t in threading.enumerate() if t not in before and not t.daemon)

    def fail(self, why: str, error: BaseException | None = None) -> None:
        """From here on it is of no use."""
        self.status, self.detail = "failed", why
        self.traceback = "".join(traceback.format_exception(error)) if error is not None else ""

    @property
    def object(self) -> Any:
        """What it names; load() first."""
        return self._loaded

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "group": self.group,
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "api": f"v{self.level}",
            "value": self.value,
            "status": self.status,
            "detail": self.detail,
            "seconds": None if self.seconds is None else round(self.seconds, 6),
        }
