"""The lines the printer may write, as patterns: a line that matches none of them is a mistake.

One operation is one line, or one head line of a region. Every form here is one that mlir-aie's own tests use.
"""

from __future__ import annotations

import re

import attrs

_MACROS = {
    "V": r"%\w+",
    "S": r"@\w+",
    "N": r"-?\d+",
    "T": r"[\w.]+",
    "M": r"memref<[\dx]+x\w+>",
    "DIMS": r"\[(?:<size = \d+, stride = \d+>(?:, )?)+\]",
    "ATTRS": r"(?: \{(?P<attrs>.*)\})?",
}


def _compile(form: str) -> re.Pattern[str]:
    """A form as a regular expression: `<name:MACRO>` captures, `<MACRO>` does not, the rest is literal but for `~ ... ~`."""
    parts = re.split(r"(<\w+(?::[^<>]+)?>|~[^~]*~)", form)
    out = []
    for part in parts:
        named = re.fullmatch(r"<(\w+):([^<>]+)>", part)
        if named:
            out.append(f"(?P<{named[1]}>{_MACROS.get(named[2], named[2])})")
        elif re.fullmatch(r"<\w+>", part) and part[1:-1] in _MACROS:
            out.append(_MACROS[part[1:-1]])
        elif part.startswith("~"):
            out.append(part[1:-1])
        else:
            out.append(re.escape(part))
    return re.compile("".join(out))


@attrs.frozen
class Form:
    """A kind of line. opens: it begins a region. inside: the regions it may stand in, by their kinds."""

    name: str
    pattern: re.Pattern[str]
    inside: tuple[str, ...]
    opens: str | None = None


def _form(name: str, inside: str, text: str, opens: str | None = None) -> Form:
    return Form(name, _compile(text), tuple(inside.split()), opens)


_CODE = "core for if else"
_ARITHMETIC = "~(?:addi|subi|muli|divsi|remsi|minsi|maxsi|shrui|shli|addf|mulf)~"

FORMS = (
    _form("module", "", "module {", "module"),
    _form("parameter", "module", "aiex.scratchpad_parameter <symbol:S> : <type:T>"),
    _form("device", "module", "aie.device(<dev:T>) <symbol:S> {", "device"),
    _form("tile", "device", "<result:V> = aie.tile(<col:N>, <row:N>)"),
    _form("logical", "device", r"<result:V> = aie.logical_tile~<(?P<kind>\w+)>~(<col:\d+|\?>, <row:\d+|\?>)"),
    _form(
        "fifo",
        "device",
        r"aie.objectfifo <symbol:S>(<producer:V>~(?: dimensionsToStream (?P<order>\[[^\]]*\]))?~, {~(?P<consumers>[^}]*)~}, "
        r"~(?P<depths>\[[^\]]*\]|\d+ : i32)~)<ATTRS> : !aie.objectfifo~<(?P<type>memref<[^>]*>)>"
        r"(?: -> !aie\.objectfifo<(?P<consumer_type>memref<[^>]*>)>)?(?: = \[(?P<initial>.*)\])?~",
    ),
    _form(
        "link",
        "device",
        r"aie.objectfifo.link [~(?P<sources>[^\]]*)~] -> [~(?P<targets>[^\]]*)~]"
        r"([~(?P<here>[^\]]*)~] [~(?P<there>[^\]]*)~])",
    ),
    _form("channel", "device", "aie.shim_dma_allocation <symbol:S>(<tile:V>, MM2S, <channel:N>)"),
    _form("flow", "device", r"aie.packet_flow(<id:\d+>) {", "flow"),
    _form("source", "flow", "aie.packet_source~<~<tile:V>, DMA : <channel:N>~>~"),
    _form("dest", "flow", "aie.packet_dest~<~<tile:V>, TileControl : 0~>~"),
    _form("buffer", "device", r'<result:V> = aie.buffer(<tile:V>) {sym_name = "<name:\w+>"} : <type:M>~(?: = (?P<initial>dense<.*>))?~'),
    _form("lock", "device", r"<result:V> = aie.lock(<tile:V>) {init = <init:\d+> : i32}"),
    _form("function", "device", r'func.func private <symbol:S>(~(?P<types>.*)~) attributes {link_with = "<file:[\w.]+>"}'),
    _form("core", "device", "<result:V> = aie.core(<tile:V>) {", "core"),
    _form("sequence", "device", "aie.runtime_sequence <symbol:S>(~(?P<arguments>.*)~) {", "sequence"),
    # Core programs.
    _form("for", _CODE, "scf.for <result:V> = <start:V> to <stop:V> step <step:V> {", "for"),
    _form("if", _CODE, "scf.if <flag:V> {", "if"),
    _form(
        "acquire",
        _CODE,
        "<result:V> = aie.objectfifo.acquire <symbol:S>(<port:Produce|Consume>, <count:N>) : "
        "!aie.objectfifosubview~<(?P<type>memref<[^>]*>)>~",
    ),
    _form(
        "access",
        _CODE,
        "<result:V> = aie.objectfifo.subview.access <held:V>[<index:N>] : !aie.objectfifosubview~<(?P<type>memref<[^>]*>)>~ -> <into:M>",
    ),
    _form("release", _CODE, "aie.objectfifo.release <symbol:S>(<port:Produce|Consume>, <count:N>)"),
    _form("load", _CODE, "<result:V> = memref.load <memory:V>[<index:V>] : <type:M>"),
    _form("store", _CODE, "memref.store <value:V>, <memory:V>[<index:V>] : <type:M>"),
    _form("call", _CODE, "func.call <symbol:S>(~(?P<values>.*)~) : (~(?P<types>.*)~) -> ()"),
    _form("use_lock", _CODE, "aie.use_lock(<lock:V>, <action:Acquire|AcquireGreaterEqual|Release>, <value:V>)"),
    _form("core_end", "core", "aie.end"),
    # Numbers, anywhere.
    _form("constant", f"{_CODE} sequence configure", r"<result:V> = arith.constant <value:-?[\d.e+-]+> : <type:T>"),
    _form("arithmetic", f"{_CODE} sequence", f"<result:V> = arith.{_ARITHMETIC} <left:V>, <right:V> : <type:T>"),
    _form("compare", _CODE, "<result:V> = arith.cmpi <how:eq|ne|slt|sle|sgt|sge>, <left:V>, <right:V> : <type:T>"),
    _form(
        "cast",
        f"{_CODE} sequence",
        "<result:V> = arith.<how:index_cast|index_castui|extui|extsi|trunci> <value:V> : <type:T> to <into:T>",
    ),
    # Sequences.
    _form("sync", "sequence", "aiex.sync_scratchpad_parameters_from_host"),
    _form("rtp_write", "sequence", "aiex.npu.rtp_write(<symbol:S>, <index:N>, <value:V>) : i32"),
    _form("write32", "sequence", "aiex.npu.write32(<address:V>, <value:V>)<ATTRS> : i32, i32"),
    _form("update", "sequence", "aiex.npu.update_from_scratchpad~<mul>~<ATTRS>"),
    _form("token", "sequence", "aiex.npu.sync(~(?P<values>.*)~) : i32, i32, i32, i32, i32, i32"),
    _form("set_lock", "sequence", "aiex.set_lock(<lock:V>, <value:N>)"),
    _form("task", "sequence", "<result:V> = aiex.dma_configure_task_for <symbol:S> {", "task"),
    _form(
        "descriptor",
        "task",
        r"aie.dma_bd(<memory:V> : <type:M> offset = <offset:\d+|%\w+> len = <length:\d+|%\w+>"
        r"~(?: sizes = \[(?P<sizes>[^\]]*)\] strides = \[(?P<strides>[^\]]*)\])?~)<ATTRS>",
    ),
    _form("next", "task", r"aie.next_bd <label:\^\w+>"),
    _form("label", "task", r"<label:\^\w+>:"),
    _form("task_end", "task", "aie.end"),
    _form("start", "sequence", "aiex.dma_start_task(<task:V>)"),
    _form("await", "sequence", "aiex.dma_await_task(<task:V>)"),
    _form("free", "sequence", "aiex.dma_free_task(<task:V>)"),
    # The main device.
    _form("configure", "sequence", "aiex.configure <symbol:S> {", "configure"),
    _form("view", "configure", "<result:V> = memref.view <memory:V>[<shift:V>][] : <type:M> to <into:M>"),
    _form("run", "configure", "aiex.run <symbol:S>(~(?P<values>.*)~) : (~(?P<types>.*)~)"),
)

#: What closes a region: its kind -> the pattern of its last line.
CLOSES = {
    "core": _compile(r"} {stack_size = <stack:\d+> : i32}"),
    "task": _compile("}<ATTRS>"),
    "if": _compile("}~(?P<other> else \\{)?~"),
}
CLOSE = _compile("}")


def parse(line: str, region: str) -> tuple[Form, re.Match[str]] | None:
    """The form a stripped line has in a region of this kind; None if it has none."""
    for form in FORMS:
        if region in form.inside or (form.name == "module" and region == ""):
            found = form.pattern.fullmatch(line)
            if found:
                return form, found
    return None


def items(text: str | None) -> list[str]:
    """Comma-separated parts; commas in brackets do not part."""
    found: list[str] = []
    depth, start = 0, 0
    for i, letter in enumerate(f"{text or ''},"):
        depth += {"<": 1, "[": 1, "(": 1, ">": -1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append((text or "")[start:i].strip())
            start = i + 1
    return [part for part in found if part]


def pairs(text: str | None) -> dict[str, str]:
    """An attribute dictionary's entries as text."""
    split = (part.partition("=") for part in items(text))
    return {name.strip(): value.strip() for name, _, value in split}


def whole(text: str) -> int:
    """The number of `n : type`."""
    return int(text.split(":")[0])
