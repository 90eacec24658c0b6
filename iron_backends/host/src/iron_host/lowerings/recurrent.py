"""What lowerings of operators with a state share: how a call says that a sequence begins."""

from __future__ import annotations

from collections.abc import Mapping

from iron_core.graph.traced import Binding
from iron_host.kernel_call import Member


def past(bindings: Mapping[str, Binding]) -> int | Member:
    """The slot of a step's number `past`; 0, a state that counts as zeros, where calls do not give it."""
    return Member(bindings["past"].expression) if "past" in bindings else 0
