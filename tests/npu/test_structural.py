"""The structural checks: text that is right has no problem, and each way of making it wrong is found and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from iron_core.errors import IronError
from tests.npu.structural import check, require

TEXT = (Path(__file__).parent / "calls.mlir").read_text()

FUSED = """module {
  aie.device(npu2) @copy {
    %tile_0_0 = aie.tile(0, 0)
    %tile_0_1 = aie.tile(0, 1)
    aie.objectfifo @a(%tile_0_0, {%tile_0_1}, [2 : i32, 2 : i32]) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo @b(%tile_0_1, {%tile_0_0}, [2 : i32, 2 : i32]) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo.link [@a] -> [@b]([] [])
    aie.runtime_sequence @sequence0(%x : memref<64xi32>, %y : memref<64xi32>) {
      %b_task = aiex.dma_configure_task_for @b {
        aie.dma_bd(%y : memref<64xi32> offset = 0 len = 64)
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%b_task)
      %a_task = aiex.dma_configure_task_for @a {
        aie.dma_bd(%x : memref<64xi32> offset = 0 len = 32)
        aie.next_bd ^bd1
      ^bd1:
        aie.dma_bd(%x : memref<64xi32> offset = 32 len = 32)
        aie.end
      }
      aiex.dma_start_task(%a_task)
      aiex.dma_await_task(%b_task)
      aiex.dma_free_task(%a_task)
    }
  }
  aie.device(npu2) @reset {
  }
  aie.device(npu2) @main {
    aie.runtime_sequence @sequence(%input : memref<256xi8>, %output : memref<256xi8>) {
      aiex.configure @copy {
        %c0 = arith.constant 0 : index
        %x = memref.view %input[%c0][] : memref<256xi8> to memref<64xi32>
        %y = memref.view %output[%c0][] : memref<256xi8> to memref<64xi32>
        aiex.run @sequence0(%x, %y) : (memref<64xi32>, memref<64xi32>)
      }
      aiex.configure @reset {
      }
    }
  }
}
"""

TASK = """      %x0_task = aiex.dma_configure_task_for @x0 {
        aie.dma_bd(%x : memref<4096xi32> offset = 0 len = 1024) {bd_id = 1 : i32, offset_parameter = @start_offset}
        aie.end
      }
"""

JOIN = """module {
  aie.device(npu2) @main {
    %tile_0_0 = aie.tile(0, 0)
    %tile_0_1 = aie.tile(0, 1)
    %tile_1_0 = aie.tile(1, 0)
    %tile_1_1 = aie.tile(1, 1)
    aie.objectfifo @a(%tile_0_0, {%tile_0_1}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo @b(%tile_0_1 dimensionsToStream [<size = 8, stride = 1>, <size = 4, stride = 8>], {%tile_0_0}, 2 : i32) {repeat_count = 2 : i32} : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo @c(%tile_0_1, {%tile_1_0}, 2 : i32) {repeat_count = 2 : i32} : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo.link [@a] -> [@b, @c]([] [0, 32])
    aie.objectfifo @d(%tile_1_0, {%tile_1_1}, 2 : i32) : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo @e(%tile_1_0, {%tile_1_1}, 2 : i32) : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo @f(%tile_1_1 dimensionsToStream [<size = 4, stride = 8>, <size = 8, stride = 1>], {%tile_1_0}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo.link [@d, @e] -> [@f]([0, 32] [])
  }
}
"""

#: What is replaced in the small design, by what, and words of the problem that must be found.
MUTANTS = [
    ("scf.for %i1 = %c0", "scf.for %i1 = %c5", "%c5 is used before it is defined"),
    ("%x0_0 = aie", "%y0_0 = aie", "%y0_0 is defined twice"),
    ("arith.shrui %v0, %c2_i32 : i32", "arith.shrui %v0, %c0 : i32", "%c0 is index, used as i32"),
    ("memref.load %words[%c0] : memref<2xi32>", "memref.load %words[%c0] : memref<3xi32>", "used as memref<3xi32>"),
    ("@copy64_ff037616(%x0_0, %y0_0)", "@copy64(%x0_0, %y0_0)", "@copy64 is no function"),
    ("(%x0_0, %y0_0) : (memref<64xi32>, memref<64xi32>)", "(%x0_0, %y0_0) : (memref<64xi32>, memref<32xi32>)", "called with"),
    ("%x0_0, %y0_0) : (memref", "%x0_0, %y0_0, %y0_0) : (memref", "3 values and 2 types"),
    ("acquire @x0(Consume, 1)", "acquire @x0(Consume, 3)", "its depth there is 2"),
    ("acquire @x0(Consume, 1)", "acquire @x0(Produce, 1)", "is not where @x0 is produced"),
    ("acquire @x0(Consume, 1)", "acquire @z(Consume, 1)", "@z is no fifo"),
    ("release @x0(Consume, 1)", "release @x0(Consume, 2)", "2 of @x0 are released; 1 are held"),
    (
        "          aie.objectfifo.release @x0(Consume, 1)",
        "          aie.objectfifo.release @x0(Consume, 2)",
        "a loop releases 1 of @x0 more",
    ),
    ("%a2[0]", "%a2[1]", "object 1 of 1 acquired"),
    ("{%tile_0_2}, 2 : i32", "{%tile_0_2}, [2 : i32]", "2 ends and 1 depths"),
    ("(%tile_0_0, {%tile_0_2}", "(%tile_0_0 dimensionsToStream [<size = 64, stride = 1>], {%tile_0_2}", "comes from a shim"),
    ("@x0(%tile_0_0", "@y0(%tile_0_0", "@y0 is defined twice"),
    ("aie.tile(0, 2)", "aie.tile(9, 2)", "is outside of npu2"),
    ("aie.tile(0, 2)", "aie.tile(0, 0)", "is defined twice"),
    ("init = 0", "init = 64", "a lock holds at most 63"),
    ("aiex.set_lock(%ready_worker, 1)", "aiex.set_lock(%words, 1)", "used as lock"),
    ("aiex.sync_scratchpad_parameters_from_host\n", "\n", "read before it is synced"),
    ("state_table_idx = 0 : ui8", "state_table_idx = 3 : ui8", "word 3 of 3 parameters"),
    ("state_table_idx = 0 : ui8", "state_table_idx = 1 : ui8", "nothing uses parameter @count_core"),
    ("buffer = @words}\n      aiex.set", "buffer = @other}\n      aiex.set", "@other is no buffer"),
    ("ui32, address = 0 : ui32", "ui32, address = 1 : ui32", "word 1 and the next of @words"),
    ("parameter @rows_length", "parameter @count_core", "@count_core is defined twice"),
    ("offset_parameter = @start_offset", "offset_parameter = @count_core", "as an address and as a number"),
    ("offset_parameter = @start_offset", "offset_parameter = @rows", "@rows is no parameter"),
    ("offset = 0 len = 1024) {bd_id = 0", "offset = 0 len = 1023) {bd_id = 0", None),
    ("offset = 0 len = 1024) {bd_id = 0", "offset = 16 len = 1024) {bd_id = 0", "element 1039 of memref<1024xi32>"),
    ("len = 1024) {bd_id = 0", "len = 1024 sizes = [4, 4, 64] strides = [256, 0, 1]) {bd_id = 0", "repeats 4 times in place"),
    ("len = 1024) {bd_id = 0", "len = 1024 sizes = [4, 4, 32] strides = [256, 64, 1]) {bd_id = 0", "make 512"),
    ("len = 1024) {bd_id = 0", "len = 256 sizes = [4, 1, 4, 64] strides = [256, 0, 64, 1]) {bd_id = 0", "4 iterations and repeat_count 0"),
    ("{bd_id = 1", "{bd_id = 0", "descriptor 0 of column 0 is in use"),
    ("{bd_id = 1", "{bd_id = 16", "a shim tile has 16"),
    ("{issue_token = true}", "", "issues no token"),
    ("{issue_token = true}", "{issue_token = true, repeat_count = 256 : i32}", "a queue entry holds 0 to 255"),
    ("      aiex.dma_start_task(%x0_task)\n", "", "%x0_task is never started"),
    ("      aiex.dma_free_task(%x0_task)\n", "", "neither awaited nor freed"),
    ("aiex.dma_free_task(%x0_task)", "aiex.dma_free_task(%y0_task)", "awaited or freed twice"),
    (TASK, "", "%x0_task is used before it is defined"),
    ("configure_task_for @x0", "configure_task_for @words", "@words is no fifo"),
    ("%x : memref<4096xi32> offset", "%y : memref<4096xi32> offset", "used as memref<4096xi32>"),
    ("%x : memref<4096xi32>, %y", "%x : memref<4096xi16>, %y", "used as memref<4096xi32>"),
    ("aie.end\n    }", "aie.endd\n    }", "no known operation of a core"),
    ("} {stack_size = 1024 : i32}", "}", "no end of a core"),
    ("npu2) @main", "npu2) main", "no known operation of a module"),
]

FUSED_MUTANTS = [
    ("aiex.configure @reset {\n      }\n", "", "1 devices are configured; an odd number"),
    ("aiex.configure @reset", "aiex.configure @copy", "configured twice in a row"),
    ("aiex.configure @copy", "aiex.configure @other", "no device @other"),
    ("aiex.run @sequence0", "aiex.run @sequence1", "has no sequence @sequence1"),
    ("memref<64xi32>)\n      }", "memref<32xi32>)\n      }", "run with"),
    ("%y = memref.view %output[%c0][] : memref<256xi8>", "%y = memref.view %output[%c0][] : memref<128xi8>", "used as memref<128xi8>"),
    ("arith.constant 0 : index", "arith.constant 4 : index", "256 bytes at 4 of memref<256xi8>"),
    ("arith.constant 0 : index", "arith.constant 2 : index", "a shim starts at multiples of 4"),
    ("aie.next_bd ^bd1", "aie.next_bd ^bd2", "do not follow one another"),
    ("aie.objectfifo.link [@a] -> [@b]([] [])\n", "\n", "nothing uses the consumer 0 of @a"),
    ("[@a] -> [@b]", "[@b] -> [@a]", "is on a shim"),
    ("aie.objectfifo.link [@a] -> [@b]", "aie.objectfifo.link [@a] -> [@a]", "has no tile in common"),
    ("(npu2) @reset", "(npu1) @reset", "@reset is for another device"),
    ("([] [])", "([] [0])", "as many offsets as parts"),
]


def test_text_that_is_right_has_no_problem():
    assert check(TEXT) == () and check(FUSED) == ()
    require(TEXT)


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_a_mutant_of_the_small_design_is_found(number):
    old, new, words = MUTANTS[number]
    assert old in TEXT
    found = [str(problem) for problem in check(TEXT.replace(old, new, 1))]
    if words is None:  # 1023 words are as legal as 1024
        assert found == []
    else:
        assert any(words in problem for problem in found), found


@pytest.mark.parametrize("number", range(len(FUSED_MUTANTS)))
def test_a_mutant_of_the_fused_module_is_found(number):
    old, new, words = FUSED_MUTANTS[number]
    assert old in FUSED
    found = [str(problem) for problem in check(FUSED.replace(old, new, 1))]
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    "old, new, words",
    [
        (
            "<size = 4, stride = 8>, <size = 8, stride = 1>]",
            "<size = 8, stride = 8>, <size = 8, stride = 1>]",
            "touches element 63 of parts of 32",
        ),
        ("%tile_1_0}, 2 : i32) {repeat_count = 2 : i32}", "%tile_1_0}, 2 : i32) {repeat_count = 3 : i32}", "equally often"),
        ("([0, 32] [])", "([0, 33] [])", "leaves the object of 64"),
        ("([] [0, 32])", "([0, 32] [])", "as many offsets as parts"),
    ],
)
def test_a_mutant_of_a_join_or_split_is_found(old, new, words):
    before = {str(problem) for problem in check(JOIN)}
    found = {str(problem) for problem in check(JOIN.replace(old, new, 1))} - before
    assert old in JOIN and any(words in problem for problem in found), found


def test_any_line_left_out_is_noticed():
    """Except those whose absence is another right design."""
    lines = TEXT.splitlines()
    harmless = ("use_lock", "set_lock", "write32", "update_from_scratchpad<mul> {state_table_idx = 1", "func.call", "aie.end", "release")
    for number, line in enumerate(lines):
        if not any(words in line for words in harmless):
            assert check("\n".join(lines[:number] + lines[number + 1 :])), line


def test_require_says_where():
    with pytest.raises(IronError, match=r"line 17: %c9 is used before it is defined"):
        require(TEXT.replace("scf.for %turn = %c0", "scf.for %turn = %c9"))
