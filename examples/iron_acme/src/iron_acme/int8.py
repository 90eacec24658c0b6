"""`INT8`: a float16 scale and 64 signed bytes, block after block along a row."""

import numpy as np
from iron_core import BlockQuant

INT8 = BlockQuant("acme.int8", bits=8, group=64, scale=np.float16, signed=True)
