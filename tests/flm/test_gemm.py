"""`flm.GEMM`'s contract: what it computes, how B lies, what it takes up, what it refuses."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

import iron_core as iron
from iron_core import OperatorImage, bfloat16
from iron_core.declare.formats import format_of
from iron_core.declare.rounding import round_to
from iron_core.errors import FormatError, ParamError, ShapeError
from iron_ops_aie import GELU, GEMM, Clamp, ReLU, Sigmoid, SiLU
from iron_ops_flm import GEMM as FlmGEMM
from iron_ops_flm.epilogue import Epilogue
from iron_ops_flm.packed import Packed, known_matrix
from iron_ops_flm.packing import BF16, BFP16, CT_K, SHIPPED, Packing


def drawn(op, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(round_to(rng.standard_normal(shape), bfloat16) for shape in ((op.M, op.K), (op.K, op.N)))


def down(x):
    """The bfloat16 at or below a number."""
    bits = np.array(x, np.float64).astype(bfloat16)
    while float(bits) > x:
        bits = np.nextafter(bits, bfloat16.type(-np.inf))
    return float(bits)


def even(x):
    return float(round_to(np.float64(x), bfloat16))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("rounding", ["conv_even", "floor"])
@pytest.mark.parametrize("epilogue", Epilogue)
@pytest.mark.parametrize("gelu", ["fp32", "bf16_steps"])
def test_a_number_of_the_result(epilogue, rounding, gelu):
    """clamp(act(sum)): rounded before the activation, but for the GELU in float32, and behind it; number by number."""
    op = FlmGEMM(M=3, K=40, N=5, b_col_maj=True, epilogue=epilogue, rounding=rounding, gelu=gelu, clamp=(-0.3, 5.1))
    A, B = drawn(op)
    narrow = even if rounding == "conv_even" else down
    C = op.reference(A, op.pack_B(B))
    for i in range(3):
        for j in range(5):
            x = sum(float(a) * float(b) for a, b in zip(A[i], B[:, j], strict=True))
            if epilogue == Epilogue.GELU and gelu == "fp32":
                y = x * sigmoid(1.702 * x)
            else:
                x = narrow(x)
                y = {
                    Epilogue.NONE: lambda x: x,
                    Epilogue.SILU: lambda x: x * sigmoid(x),
                    Epilogue.SIGMOID: sigmoid,
                    Epilogue.GELU: lambda x: x * narrow(sigmoid(narrow(1.702 * x))),
                }[epilogue](x)
            assert C[i, j] == min(max(narrow(y), even(-0.3)), even(5.1))


def test_the_product_is_rounded_before_the_activation():
    """So it is the product with the activation behind it, bit for bit."""
    op = FlmGEMM(M=64, K=128, N=32, b_col_maj=True, epilogue=Epilogue.SILU)
    A, B = drawn(op)
    both = SiLU(size=64 * 32).reference(round_to(GEMM(M=64, K=128, N=32, b_col_maj=True).reference(A, op.pack_B(B)), bfloat16))
    assert np.array_equal(op.reference(A, op.pack_B(B)), round_to(both, bfloat16))


def test_on_the_host_it_has_the_bits_of_all_steps():
    """In one kernel; which steps that are folded into it become."""
    op = FlmGEMM(M=37, K=100, N=42, b_col_maj=True, epilogue=Epilogue.SILU, clamp=(-0.25, 3.0))

    class Steps(iron.Graph):
        def __init__(self, product):
            self._product = product

        def body(self, x, w):
            return Clamp(SiLU(self._product(x, w, b_col_maj=True)), low=-0.25, high=3.0)

    A, B = drawn(op)
    w = op.pack_B(B)
    one = OperatorImage(op, backend="host")(A, w)
    apart = Steps(GEMM).compile(backend="host", x=A.shape, w=w.shape)
    folded = Steps(FlmGEMM).compile(backend="host", x=A.shape, w=w.shape, fold=True)
    assert "silu0 into the finish of gemm0" in folded.explain() and "no fold" not in folded.explain()
    assert np.array_equal(one, apart(A, w)) and np.array_equal(one, folded(A, w))


# -- how B lies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [dict(), dict(packed_blocks=True), dict(tile_n=32, k_tile=96), dict(b_col_maj=True)], ids=str)
def test_pack_B_makes_what_the_operator_takes(fields):
    """The same numbers whatever their order; blocks are rounded along K."""
    op = FlmGEMM(M=2, K=1536, N=64, **fields)
    _, B = drawn(op)
    packed = op.pack_B(B)
    assert packed.shape == op.shape("B") and format_of(packed) == op.format("B")
    numbers = packed.dequantize() if not op.b_col_maj else packed.T
    if op.packed_blocks:
        eights = iron.BFP16EBS8.quantize(B.T.astype(np.float32)).dequantize().T
        assert np.array_equal(numbers, eights) and packed.nbytes == B.size * 9 // 8
    else:
        assert np.array_equal(numbers, B) and packed.nbytes == B.nbytes


def test_another_order_is_another_format():
    """A B that is packed for other tiles, or not packed, is refused by what it is."""
    op = FlmGEMM(M=2, K=512, N=64)
    A, B = drawn(op)
    image = OperatorImage(op, backend="reference")
    for wrong in (
        FlmGEMM(M=2, K=512, N=64, tile_n=32).pack_B(B),
        FlmGEMM(M=2, K=512, N=64, k_tile=256).pack_B(B),
        FlmGEMM(M=2, K=512, N=64, packed_blocks=True).pack_B(B),
        B,
        np.ascontiguousarray(B.T),
    ):
        with pytest.raises(ShapeError, match=r"B is \[512, 64\] flm_bf16_512x64"):
            image(A, wrong)


def test_a_packed_weight_says_what_the_operator_is():
    """Of a graph: its tiles and its numbers come with it."""
    B = drawn(FlmGEMM(M=2, K=256, N=64, k_tile=128))[1]

    class Packs(iron.Graph):
        def __init__(self):
            self.w = FlmGEMM(M=2, K=256, N=64, k_tile=128, tile_n=32, packed_blocks=True).pack_B(B)

        def body(self, x):
            return FlmGEMM(x, self.w, epilogue=Epilogue.SIGMOID)

    (step,) = Packs().trace(x=(2, 256)).steps
    assert (step.op.tile_n, step.op.k_tile, step.op.packed_blocks, step.op.N) == (32, 128, True, 64)


#: SHA-256, its first 16 digits, of the known matrix (1024, 128) in each order.
DIGESTS = {
    BF16: "5dba939ffefa6d6d",
    BFP16: "c0fb16cff7771ef5",
    SHIPPED: "052e61c87ce705b7",
}


def test_a_packing_of_another_program_is_tried_on_a_known_matrix():
    """Where it walks as this one does it packs; any other order is refused, by name where it is known."""
    op = FlmGEMM(M=2, K=512, N=64)
    _, B = drawn(op)
    assert np.array_equal(op.pack_B(B, by=Packing().pack).data, op.pack_B(B).data)
    for by, why in (
        (Packing(SHIPPED).pack, "the order of flm_shipped_512x64"),
        (lambda B: B, r"the rows of \(K, N\), not packed"),
        (lambda B: np.ascontiguousarray(B.T), r"the rows of \(N, K\), not packed"),
        (lambda B: B[::-1].copy(), "an order unknown here"),
        (Packing(tile_n=32).pack, "an order unknown here"),
    ):
        with pytest.raises(ParamError, match=f"B is packed in {why}; legal: that of flm_bf16_512x64"):
            op.pack_B(B, by=by)


@pytest.mark.parametrize("order", DIGESTS, ids=["bf16", "bfp16", "shipped"])
def test_orders_keep_their_digests(order):
    """A known matrix in each is the same bytes as ever."""
    made = Packed(Packing(order)).quantize(known_matrix(1024, 128))
    assert hashlib.sha256(made.data.tobytes()).hexdigest()[:16] == DIGESTS[order]


def test_blocks_along_n_would_be_far_less_accurate():
    """Eight numbers share an exponent along K, where weights of one output are alike; columns of other sizes are not."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((512, 64)) * np.exp2(rng.integers(-8, 8, 64))  # each output has a size of its own
    own = FlmGEMM(M=1, K=512, N=64, packed_blocks=True)
    error = np.abs(own.pack_B(B).dequantize() - B) / np.abs(B).max(0)
    across = np.abs(iron.BFP16EBS8.quantize(B.astype(np.float32)).dequantize() - B) / np.abs(B).max(0)
    assert error.max() < 2.0**-7 and across.max() > 10 * error.max()


# -- an output that is given --------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "dev"), [("host", None), ("sim", "npu1"), ("sim", "npu2")])
def test_the_output_may_be_given(backend, dev):
    """`OperatorImage(op)(A, op.pack_B(B), C_out)` fills C_out and gives it back."""
    op = FlmGEMM(M=256, K=512, N=64, epilogue=Epilogue.SILU)
    A, B = drawn(op)
    C_out = np.zeros((256, 64), bfloat16)
    image = OperatorImage(op, backend=backend, dev=dev)
    assert image(A, op.pack_B(B), C_out) is C_out
    assert np.array_equal(C_out, image(A, op.pack_B(B))) and np.abs(C_out.astype(np.float32)).max() > 1


# -- what it takes up ---------------------------------------------------------------------------------


def test_activations_and_clamps_become_fields():
    """SiLU, Sigmoid and then a clamp; never a GELU, which is another formula, nor what would be rounded otherwise."""
    plain = FlmGEMM(M=4, K=8, N=2, b_col_maj=True)
    silu, clamp = SiLU(size=8), Clamp(size=8, low=-1.0, high=2.0)
    assert plain.absorbed(silu).epilogue == Epilogue.SILU
    assert plain.absorbed(Sigmoid(size=8)).epilogue == Epilogue.SIGMOID
    both = plain.absorbed(silu).absorbed(clamp)
    assert (both.epilogue, both.clamp) == (Epilogue.SILU, (-1.0, 2.0))
    assert plain.absorbed(GELU(size=8)) is None and plain.absorbed(ReLU(size=8)) is None
    assert plain.absorbed(silu).absorbed(silu) is None and plain.absorbed(clamp).absorbed(silu) is None
    assert both.absorbed(clamp) is None
    down = FlmGEMM(M=4, K=8, N=2, b_col_maj=True, rounding="floor")
    assert down.absorbed(silu) is None and down.absorbed(clamp).clamp == (-1.0, 2.0)


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        (dict(epilogue="silu"), ParamError, "epilogue='silu'; legal: Epilogue.NONE, Epilogue.GELU, Epilogue.SILU, Epilogue.SIGMOID"),
        (dict(rounding="nearest"), ParamError, "rounding='nearest'; legal: 'conv_even', 'floor'"),
        (dict(gelu="tanh"), ParamError, "gelu='tanh'; legal: 'fp32', 'bf16_steps'"),
        (dict(clamp=(2, 1)), ParamError, r"clamp=\(2, 1\); legal: None, or \(min, max\)"),
        (dict(clamp=3.0), ParamError, "clamp=3.0; legal: None"),
        (dict(clamp="12"), ParamError, "clamp='12'; legal: None"),
        (dict(clamp={1, 2}), ParamError, "clamp={1, 2}; legal: None"),
        (dict(clamp=np.array([1, 2])), ParamError, r"clamp=array\(\[1, 2\]\); legal: None"),
        (dict(clamp=(0, 10**400)), ParamError, "clamp=.*; legal: None"),
        (dict(packed_blocks=True, b_col_maj=True), ParamError, "packed_blocks=True with b_col_maj=True.*; legal: one of them"),
        (dict(tile_n=48), ParamError, "tile_n=48; legal: 16, 32, 64, 128"),
        (dict(k_tile=100), ParamError, "k_tile=100; legal with tile_n=64: a multiple of 128"),
        (dict(K=500), FormatError, "a column of 500 is not whole blocks of 512. Nearest: 512"),
        (dict(N=72), FormatError, "a row of 72 is not whole blocks of 64. Nearest: 64, 128"),
        (dict(W=bfloat16), ParamError, "W=bfloat16 with packed_blocks=False, k_tile=512, tile_n=64; legal: W=flm_bf16_512x64"),
        (dict(W=Packed(), b_col_maj=True), ParamError, "W=flm_bf16_512x64 with b_col_maj=True; legal: W=bfloat16"),
    ],
)
def test_what_is_wrong_is_refused_in_words(fields, error, words):
    """The keyword, its value, and what would be legal."""
    with pytest.raises(error, match=words):
        FlmGEMM(**dict(M=4, K=512, N=64) | fields)


def test_pack_B_takes_a_matrix_of_the_operator():
    """Real numbers, of its shape; another's packing only where it packs."""
    op = FlmGEMM(M=1, K=512, N=64)
    with pytest.raises(ParamError, match=r"pack_B\(\) of shape \(64, 512\); legal: \(K, N\), here \(512, 64\)"):
        op.pack_B(np.zeros((64, 512)))
    for pack in (op.pack_B, Packed().quantize):
        with pytest.raises(FormatError, match="of object; legal: real numbers"):
            pack(np.full((512, 64), None))
    with pytest.raises(ParamError, match=r"by= and b_col_maj=True.*; legal: one of them"):
        FlmGEMM(M=1, K=512, N=64, b_col_maj=True).pack_B(np.zeros((512, 64)), by=Packing().pack)


def test_only_verified_tiles():
    """Every width of C has one depth that a core takes at a time."""
    for tile_n, ct_k in CT_K.items():
        assert FlmGEMM(M=1, K=4 * ct_k, N=tile_n, tile_n=tile_n, k_tile=2 * ct_k).packing.ct_k == ct_k
