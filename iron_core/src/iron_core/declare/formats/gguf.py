"""GGUF's block formats of 32 elements (ggml type ids 2, 3, 6, 7 and 8)."""

from __future__ import annotations

import numpy as np

from iron_core.declare.formats.block_quant import BlockQuant

Q4_0 = BlockQuant("q4_0", bits=4, group=32, scale=np.float16, zero=8, runs_as="q4_0")
Q4_1 = BlockQuant("q4_1", bits=4, group=32, scale=np.float16, minimum=True, runs_as="q4_1")
Q5_0 = BlockQuant("q5_0", bits=5, group=32, scale=np.float16, zero=16, runs_as="q5_0")
Q5_1 = BlockQuant("q5_1", bits=5, group=32, scale=np.float16, minimum=True, runs_as="q5_1")
Q8_0 = BlockQuant("q8_0", bits=8, group=32, scale=np.float16, signed=True, runs_as="q8_0")
