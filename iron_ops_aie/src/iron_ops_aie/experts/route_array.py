"""The array of `Route`: a core per column, which a row at a time goes through."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    In,
    Kernel,
    KernelContract,
    Loop,
    ObjectFifo,
    Out,
    Param,
    Pattern,
    Tolerance,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_npu,
    require_whole,
)
from iron_core.array.derive import derive
from iron_core.devices import LENGTH_UNIT, WORD
from iron_ops_aie.experts.routes import route
from iron_ops_aie.tokens import exp64

#: Experts that a core takes at most, and chosen ones: it keeps what it has of them on its stack.
MOST, MOST_CHOSEN = 1024, 64
#: What the kernel's stack needs beside a value and an id per chosen expert; float64 is done by functions.
STACK = 2048

_ROUTE = """
#if WIDE
static float value_of(const float *x) { return *x; }
typedef float logit;
#else
typedef uint16_t logit;  // a bfloat16 is the upper half of a float
static float value_of(const uint16_t *x) { uint32_t bits = (uint32_t)*x << 16; float f; memcpy(&f, &bits, 4); return f; }
#endif
extern "C" void KERNEL(const logit *x, int32_t *ids, float *weights, float scale) {
  float kept[K];
  int32_t held = 0, lost = 0;
  for (int32_t i = 0; i < EXPERTS; i++) {
    float v = value_of(x + i);
    lost |= v != v || v > 3.402823466e38f;
    if (held == K && !(v > kept[K - 1]))
      continue;
    int32_t at = held < K ? held++ : K - 1;
    for (; at > 0 && v > kept[at - 1]; at--) {
      kept[at] = kept[at - 1];
      ids[at] = ids[at - 1];
    }
    kept[at] = v;
    ids[at] = i;
  }
  if (lost || kept[0] < -3.402823466e38f) {
    uint32_t bits = 0x7FC00000;
    for (int32_t i = 0; i < K; i++) {
      ids[i] = i;
      memcpy(weights + i, &bits, 4);
    }
    return;
  }
  double top = kept[0], total = 0;
#if RENORMALISE
  for (int32_t i = 0; i < K; i++)
    total += exp64((double)kept[i] - top);
#else
  for (int32_t i = 0; i < EXPERTS; i++)
    total += exp64((double)value_of(x + i) - top);
#endif
  for (int32_t i = 0; i < K; i++)
    weights[i] = (float)product(exp64((double)kept[i] - top) / total, (double)scale);
}
"""


class RouteArray:
    """How a `Route` is computed on an array."""

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        fits = (columns for columns in range(dev.columns, 0, -1) if self.rows % columns == 0)
        return self.evolve(num_aie_columns=self.num_aie_columns or next(fits, 1))

    def compatible(self: Any, dev: Any) -> None:
        require(
            self.T in (bfloat16, np.float32),
            f"Route: T={np.dtype(self.T).name}; an array takes bfloat16 and float32. Legal: T=bfloat16 or T=float32.",
        )
        require(self.experts <= MOST, f"Route: experts={self.experts}; a core takes at most {MOST}. Nearest legal: experts={MOST}.")
        require(self.k <= MOST_CHOSEN, f"Route: k={self.k}; a core keeps at most {MOST_CHOSEN}. Nearest legal: k={MOST_CHOSEN}.")
        unit = WORD // np.dtype(self.T).itemsize
        require(
            self.experts % unit == 0,
            f"Route: experts={self.experts} of {np.dtype(self.T).name} is no whole number of {WORD}-byte words. Nearest legal: "
            f"experts={nearest(self.experts, unit)}.",
        )
        columns = self.num_aie_columns
        if dev is not None and dev.is_npu:
            require(columns <= dev.columns, f"Route: num_aie_columns={columns}; {dev} has {dev.columns}. Legal: {dev.columns}.")
        require_whole(self, "rows", columns, f"rows of num_aie_columns={columns}", "give num_aie_columns=1" if columns > 1 else "")

    @property
    def counted(self: Any) -> bool:
        """Can transfers be cut to a call's rows: are those of all operands whole units of what a length counts in?"""
        return bool(4 * self.k % LENGTH_UNIT == 0 and self.experts * np.dtype(self.T).itemsize % LENGTH_UNIT == 0)

    def sequence(self: Any, rt: Any) -> None:
        """The derived one; or, where no length can be given per call, all rows, whatever bounds them."""
        if self.counted:
            derive(self, rt)
            return
        rt.preamble()
        for way, name, each in (("drain", "ids", self.k), ("drain", "weights", self.k), ("fill", "logits", self.experts)):
            share = self.rows // self.num_aie_columns * each
            for lane in range(self.num_aie_columns):
                rt.transfer(way, name, lane, Pattern(lane * share, (share,), (1,)), wait=way == "drain")

    def kernel(self: Any) -> Kernel:
        """The `Kernel` of one row."""
        k, renormalise = self.k, self.renormalise

        def reference(x: Any, scale: float) -> tuple[np.ndarray, np.ndarray]:
            ids, weights = route(np.asarray(x).reshape(1, -1), k, renormalise, scale)
            return ids[0], weights[0]

        # A logit is compared with the least that is kept; an exponential is some fifty operations of float64 in software.
        exponentials = k if renormalise else self.experts + k
        loops = (
            Loop(times=self.experts, reads=1, chain=0, scalar=8),
            Loop(times=exponentials, reads=1, chain=0, scalar=2500),
        )
        contract = KernelContract(
            roles=(In, Out, Out, Param),
            bindings=((3, self.scale),),
            reference=reference,
            tolerance=Tolerance(exact=True),
            stack=STACK + 8 * k,
            loops=loops,
        )
        macros = dict(EXPERTS=self.experts, K=k, RENORMALISE=int(renormalise), WIDE=int(self.T != bfloat16))
        kinds = (self.logits.tile, self.ids.tile, self.weights.tile, np.float32)
        return Kernel.inline("route", exp64.SOURCE + _ROUTE, kinds, contract, macros)

    def array(self: Any, target: Any) -> None:
        def core(logits: Any, ids: Any, weights: Any, kernel: Any, count: Any) -> None:
            ends = (logits, ids, weights)
            for _ in range_(count):
                kernel(*[end.acquire() for end in ends])
                for end in ends:
                    end.release()

        for lane in range(self.num_aie_columns):
            logits = ObjectFifo(self.logits.tile, name=f"logits{lane}")
            logits.prod(tile=self.logits.lane(lane))
            ends: list[Any] = [logits.cons()]
            for name in ("ids", "weights"):
                fifo = ObjectFifo(getattr(self, name).tile, name=f"{name}{lane}")
                fifo.cons(tile=getattr(self, name).lane(lane))
                ends.append(fifo.prod())
            Worker(core, [*ends, self.kernel()], values=[self.count], name=f"core{lane}")

    def composed(self: Any, logits: Any) -> Any:
        """Row by row."""
        kernel = self.kernel()
        made = [kernel.reference(row) for row in np.asarray(logits)]
        if not made:
            return np.empty((0, self.k), np.int32), np.empty((0, self.k), np.float32)
        ids, weights = zip(*made, strict=True)
        return np.stack(ids), np.stack(weights)
