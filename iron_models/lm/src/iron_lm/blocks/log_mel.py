"""`LogMel`: sound as the logarithm of its energy in bands of frequency, frame by frame."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_lm.fields import counted, positive
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import AXPY, GEMM, Copy, ElementwiseAdd, Limbs, Log, Magnitude, RowwiseAdd, RowwiseMul

#: Frequencies come in as many as a row of magnitudes is made of on an array.
UNIT = 32
#: Bits behind the point of a sample's coarse part, and of a transform's number, which has as many again of what is left: products of
#: either add up in float32 without a rounding, as many as a frame has of samples up to 1.6.
SAMPLES, NUMBERS = 10, 6


@attrs.frozen(kw_only=True)
class LogMelConfig:
    """frames: those that it is built for, `frame` samples each, `hop` samples from one to the next, under a periodic Hann window and
    then zeros up to `fft`. mels: triangles, evenly on the HTK scale from `low` to `high` Hz, not made equal in area. floor: is added
    before the logarithm. before: zeros before a clip's first sample."""

    frames: int = attrs.field(validator=counted)
    sample_rate: int = attrs.field(default=16000, validator=counted)
    frame: int = attrs.field(default=320, validator=counted)
    hop: int = attrs.field(default=160, validator=counted)
    fft: int = attrs.field(default=512, validator=counted)
    mels: int = attrs.field(default=128, validator=counted)
    low: float = 0.0
    high: float = attrs.field(default=8000.0, validator=positive)
    floor: float = attrs.field(default=1e-3, validator=positive)
    before: int = 160

    def __attrs_post_init__(self) -> None:
        if self.frame > self.fft:
            raise ParamError(f"LogMelConfig: frame={self.frame} samples in fft={self.fft}; legal: as many at most.")
        if not 0 <= self.low < self.high <= self.sample_rate / 2:
            legal = f"0 <= low < high <= {self.sample_rate / 2:g}, half of sample_rate={self.sample_rate}"
            raise ParamError(f"LogMelConfig: low={self.low}, high={self.high}; legal: {legal}.")
        if self.before < 0:
            raise ParamError(f"LogMelConfig: before={self.before}; legal: 0 or more.")

    @property
    def samples(self) -> int:
        """Those of all frames."""
        return (self.frames - 1) * self.hop + self.frame

    def frames_of(self, samples: int) -> int:
        """Frames that a clip of so many samples fills, and the sample behind each is the clip's too."""
        return max(0, (samples + self.before - self.frame - 1) // self.hop + 1)

    def laid(self, clip: Any) -> np.ndarray:
        """A clip as the block takes it: float32 (samples,), zeros before it and behind. ParamError for more than the frames hold."""
        clip = np.asarray(clip, np.float32)
        most = self.samples - self.before
        if clip.ndim != 1 or self.frames_of(len(clip)) > self.frames:
            raise ParamError(f"LogMel: a clip of shape {list(clip.shape)}; legal: (n,), n up to {most} for frames={self.frames}.")
        out = np.zeros(self.samples, np.float32)
        clip = clip[:most]
        out[self.before : self.before + len(clip)] = clip
        return out

    def window(self) -> np.ndarray:
        """float64 (frame,)."""
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.frame) / self.frame)

    def filters(self) -> np.ndarray:
        """float64 (fft / 2 + 1, mels): what each frequency counts in each band."""
        low, high = (2595 * np.log10(1 + f / 700) for f in (self.low, self.high))
        edges = 700 * (10 ** (np.linspace(low, high, self.mels + 2) / 2595) - 1)
        at = np.linspace(0, self.sample_rate / 2, self.fft // 2 + 1)[:, None]
        up = (at - edges[:-2]) / np.diff(edges)[:-1]
        down = (edges[2:] - at) / np.diff(edges)[1:]
        return np.maximum(0, np.minimum(up, down))


class LogMel(Part):
    """log(|spectrum| @ filters + floor). samples: float32 (config.samples,) -> (frames, mels) of the run's dtype, the first `frames`.

    Frames go through a transform that is a matrix. Of a loud clean tone, sums in float32 would leave some 1e-3 in the bands that it does
    not lie in. So in a run in float32 it is four products: of what frames and matrix have of coarse steps, whose sums are exact, and of
    what is left of either. Else it is multiplied by limbs of bfloat16 (`Limbs`), which add up to float32 and which arrays multiply: 1e-3
    is less than a tenth of what bfloat16 rounds the logarithm of the floor by.
    """

    def __init__(self, config: LogMelConfig, run: Run) -> None:
        c = self.config = config
        self.run, self.whole = run, as_dtype(run.dtype) == np.float32
        filters = c.filters()
        count = -(-(int(np.flatnonzero(filters.any(1)).max(initial=0)) + 1) // UNIT) * UNIT  # those above are in no band
        phase = 2 * np.pi / c.fft * np.outer(np.arange(c.frame), np.arange(count))
        transform = np.concatenate([np.cos(phase), np.sin(phase)], 1)
        bands = np.zeros((count, c.mels))
        bands[: min(count, len(filters))] = filters[:count]
        self.bands = iron.weight(self._stored(bands))
        if not self.whole:
            self.transform = iron.weight(self._stored(c.window()[:, None] * transform))
            return
        coarse = np.round(transform * 2**NUMBERS) / 2**NUMBERS
        fine = np.round((transform - coarse) * 2 ** (2 * NUMBERS)) / 2 ** (2 * NUMBERS)
        self.transform = iron.weight(transform.astype(np.float32))
        self.coarse, self.fine, self.finest = (iron.weight(w.astype(np.float32)) for w in (coarse, fine, transform - coarse - fine))
        self.window = iron.weight(c.window().astype(np.float32))
        # What is added to a number and taken away again leaves it in steps of 1 / 2**SAMPLES.
        self.up, self.down = (iron.weight(np.full(c.frame, sign * 1.5 * 2 ** (23 - SAMPLES), np.float32)) for sign in (1, -1))

    def _stored(self, matrix: np.ndarray) -> np.ndarray:
        if self.whole:
            return matrix.astype(np.float32)
        return Limbs.stacked(matrix.astype(np.float32))  # type: ignore[attr-defined, no-any-return]  # a stub has an operator's call alone

    def _times(self, x: Any, matrix: Any) -> Any:
        return GEMM(x, matrix) if self.whole else GEMM(Limbs(x), matrix, O=np.float32)

    def body(self, samples: Any, *, frames: iron.Scratchpad[np.int32]) -> Any:
        c = self.config
        each = iron.Pattern(0, (c.frames, c.frame), (c.hop, 1))
        x = Copy(samples, src=each).reshape(c.frames, c.frame)[:frames]
        spectrum = self._transformed(RowwiseMul(x, self.window)) if self.whole else self._times(x, self.transform)
        energy = self._times(Magnitude(spectrum), self.bands)
        return Log(energy, offset=c.floor, T=as_dtype(self.run.dtype))

    def _transformed(self, x: Any) -> Any:
        """Frames under the window times the transform, in float32 off by about 1e-9 of a sample of 1."""
        coarse = RowwiseAdd(RowwiseAdd(x, self.up), self.down)
        left = AXPY(coarse, x, scalar_factor=-1.0)
        small = ElementwiseAdd(GEMM(coarse, self.finest), GEMM(left, self.transform))
        return ElementwiseAdd(GEMM(coarse, self.coarse), ElementwiseAdd(GEMM(coarse, self.fine), small))

    def twin(self, weights: Weights, samples: Any) -> np.ndarray:
        """float32 (frames, mels), of all frames that the samples fill. What the window leaves of a sample is rounded to float32, as
        transformers' feature extractor rounds it: of a loud clean tone this is most of what lies in the bands beside it."""
        c = self.config
        cut = np.lib.stride_tricks.sliding_window_view(np.asarray(samples, np.float32), c.frame)[:: c.hop]
        magnitude = np.abs(np.fft.rfft((cut * c.window().astype(np.float32)).astype(np.float64), c.fft))
        return np.log(magnitude @ c.filters() + c.floor).astype(np.float32)
