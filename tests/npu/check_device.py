"""Checks of a module and its devices: tiles, fifos, links, buffers, locks, functions."""

from __future__ import annotations

import re

from iron_core.devices import LOCK_VALUE, PACKET_IDS, device
from tests.npu.checker import Device, Fifo, Names, elements
from tests.npu.grammar import items, pairs, whole


class DeviceChecks(Names):
    """Lines in a module or a device."""

    def on_module(self, m: re.Match[str]) -> None:
        pass

    def on_parameter(self, m: re.Match[str]) -> None:
        if m["symbol"] in self.parameters:
            self.wrong(f"{m['symbol']} is defined twice")
        if m["type"] != "i32":
            self.wrong(f"parameter {m['symbol']} is {m['type']}; every word is i32")
        self.parameters.append(m["symbol"])
        there = device(self.device.model).scratchpad_words
        if len(self.parameters) > there:
            self.wrong(f"parameter {len(self.parameters)}; the scratchpad has {there}")

    def on_device(self, m: re.Match[str]) -> None:
        if m["symbol"] in self.devices:
            self.wrong(f"{m['symbol']} is defined twice")
        self.device = self.devices[m["symbol"]] = Device(self.number, m["dev"])

    def on_tile(self, m: re.Match[str]) -> None:
        place = int(m["col"]), int(m["row"])
        model = device(self.device.model)
        if not (0 <= place[0] < model.columns and 0 <= place[1] < model.core_rows + 2):
            self.wrong(f"tile {place} is outside of {model}: {model.columns} columns, {model.core_rows + 2} rows")
        if place in self.device.places:
            self.wrong(f"tile {place} is defined twice")
        self.device.places.add(place)
        self.device.tiles[m["result"]] = {0: "shim", 1: "mem"}.get(place[1], "core"), place[0]
        self.define(m["result"], "tile")

    def on_logical(self, m: re.Match[str]) -> None:
        kind = {"ShimNOCTile": "shim", "MemTile": "mem", "CoreTile": "core"}.get(m["kind"])
        if kind is None:
            self.wrong(f"no kind of tile: {m['kind']}")
        self.device.tiles[m["result"]] = kind or "core", None if m["col"] == "?" else int(m["col"])
        self.define(m["result"], "tile")

    def on_fifo(self, m: re.Match[str]) -> None:
        self.symbol(m["symbol"], "fifo")
        ends = [m["producer"]] + [part.split(" ")[0] for part in items(m["consumers"])]
        for end in ends:
            self.type(end, "tile")
        depths = [whole(part) for part in items(m["depths"].strip("[]"))]
        if not m["depths"].startswith("["):
            depths *= len(ends)
        if len(depths) != len(ends):
            self.wrong(f"{m['symbol']} has {len(ends)} ends and {len(depths)} depths")
        given = pairs(m["attrs"])
        kinds = [self.device.tiles.get(end, ("core", None))[0] for end in ends]
        if kinds[0] == "shim" and (m["order"] or "repeat_count" in given or m["initial"]):
            self.wrong(f"{m['symbol']} comes from a shim, which neither orders, repeats nor starts with objects")
        if any("dimensionsFromStream" in part and kind == "shim" for part, kind in zip(items(m["consumers"]), kinds[1:], strict=True)):
            self.wrong(f"{m['symbol']} ends at a shim, which takes its order from the sequence")
        if "padDimensions" in given and kinds[0] != "mem":
            self.wrong(f"{m['symbol']} pads; only a memory tile's sending end does")
        if "prod_dma_channel" in given:
            self.device.pinned.add(m["symbol"])
        self.device.fifos[m["symbol"]] = Fifo(
            self.number,
            m["type"],
            m["consumer_type"] or m["type"],
            ends[0],
            ends[1:],
            depths,
            [_reach(m["order"])] + [_reach(part) for part in items(m["consumers"])],
            whole(given.get("repeat_count", "1")),
        )

    def on_link(self, m: re.Match[str]) -> None:
        sources, targets = items(m["sources"]), items(m["targets"])
        if not all([self.use(name, "fifo") for name in sources + targets]):
            return
        into = [self.device.fifos[name] for name in sources]
        out = [self.device.fifos[name] for name in targets]
        tiles = {fifo.producer for fifo in out}
        if len(tiles) != 1 or any(not tiles & set(fifo.consumers) for fifo in into):
            self.wrong(f"a link of {m['sources']} to {m['targets']} has no tile in common")
            return
        tile = tiles.pop()
        if self.device.tiles[tile][0] == "shim":
            self.wrong(f"a link of {m['sources']} to {m['targets']} is on a shim")
        if self.device.tiles[tile][0] != "mem" and len(sources) + len(targets) > 2:
            self.wrong("a join or split is not on a memory tile")
        for fifo in into:
            fifo.used.add(fifo.consumers.index(tile))
        for fifo in out:
            fifo.used.add("produce")
        here, there = items(m["here"]), items(m["there"])
        parts = len(sources) if len(sources) > 1 else 0, len(targets) if len(targets) > 1 else 0
        if (len(here), len(there)) != parts:
            self.wrong("a link has as many offsets as parts, on the side of the parts")
        if len(targets) > 1 and len({fifo.repeat for fifo in out}) > 1:
            self.wrong("the parts of a split are sent equally often")
        # An order is each part's, not the whole's.
        parted = into[0].reach[1 + into[0].consumers.index(tile)] if len(targets) > 1 else out[0].reach[0]
        smallest = min(elements(part.type) for part in (out if len(targets) > 1 else into))
        if len(sources) + len(targets) > 2 and parted >= smallest:
            self.wrong(f"the order of a join or split touches element {parted} of parts of {smallest}")
        larger = elements(out[0].type if len(sources) > 1 else into[0].consumer_type)
        for offset, part in zip(here or there, into if here else out, strict=False):
            if int(offset) + elements(part.type) > larger:
                self.wrong(f"a part of {elements(part.type)} at {offset} leaves the object of {larger}")

    def on_channel(self, m: re.Match[str]) -> None:
        self.symbol(m["symbol"], "channel")
        self.type(m["tile"], "tile")
        self.device.channels[m["symbol"]] = m["tile"]
        if self.device.tiles.get(m["tile"], ("", None))[0] != "shim":
            self.wrong(f"{m['symbol']} is not on a shim")

    def on_flow(self, m: re.Match[str]) -> None:
        if not 0 <= int(m["id"]) < PACKET_IDS or int(m["id"]) in self.device.flows:
            self.wrong(f"packet id {m['id']}; each flow has its own, 0 to {PACKET_IDS - 1}")
        self.device.flows.add(int(m["id"]))

    def on_source(self, m: re.Match[str]) -> None:
        self.type(m["tile"], "tile")
        if m["tile"] not in self.device.channels.values():
            self.wrong(f"packets leave {m['tile']}, which no sequence can fill")

    def on_dest(self, m: re.Match[str]) -> None:
        self.type(m["tile"], "tile")
        # What packets start is a fifo's producing end.
        driven = [name for name in self.device.pinned if self.device.fifos[name].producer == m["tile"]]
        if not driven:
            self.wrong(f"packets drive {m['tile']}, which no fifo starts at")
        for name in driven:
            self.device.fifos[name].used.add("produce")

    def on_buffer(self, m: re.Match[str]) -> None:
        self.type(m["tile"], "tile")
        self.symbol(f"@{m['name']}", "buffer")
        self.device.buffers[m["result"]] = f"@{m['name']}"
        self.define(m["result"], m["type"])

    def on_lock(self, m: re.Match[str]) -> None:
        self.type(m["tile"], "tile")
        self.device.locks[m["result"]] = self.number, int(m["init"])
        if int(m["init"]) > LOCK_VALUE:
            self.wrong(f"{m['result']} starts at {m['init']}; a lock holds at most {LOCK_VALUE}")
        self.define(m["result"], "lock")

    def on_function(self, m: re.Match[str]) -> None:
        self.symbol(m["symbol"], "function")
        self.device.functions[m["symbol"]] = items(m["types"])

    def after_device(self, m: re.Match[str]) -> None:
        dev = self.device
        for name, fifo in dev.fifos.items():
            for number, tile in enumerate([fifo.producer, *fifo.consumers]):
                # A shape may have no work for a lane of its array: the sequence then leaves the lane's shim alone.
                alone = self.device.tiles.get(tile, ("", None))[0] == "shim"
                if not alone and ("produce" if number == 0 else number - 1) not in fifo.used:
                    end = "producer" if number == 0 else f"consumer {number - 1}"
                    self.wrong(f"nothing uses the {end} of {name}, on {tile}", fifo.line)
        for name, (kind, line) in dev.symbols.items():
            if kind in ("function", "buffer", "channel") and name not in dev.used:
                self.wrong(f"nothing uses {kind} {name}", line)
        for name, (line, _) in dev.locks.items():
            if name not in dev.locked:
                self.wrong(f"nothing uses lock {name}", line)


def _reach(text: str | None) -> int:
    """The largest element an order of (size, stride) pairs touches."""
    pairs_of = re.findall(r"<size = (\d+), stride = (\d+)>", text or "")
    return sum((int(size) - 1) * int(stride) for size, stride in pairs_of)
