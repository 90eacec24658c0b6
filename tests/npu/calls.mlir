module {
  aiex.scratchpad_parameter @count_core : i32
  aiex.scratchpad_parameter @rows_length : i32
  aiex.scratchpad_parameter @start_offset : i32
  aie.device(npu2) @main {
    %tile_0_0 = aie.tile(0, 0)
    %tile_0_2 = aie.tile(0, 2)
    aie.objectfifo @x0(%tile_0_0, {%tile_0_2}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    aie.objectfifo @y0(%tile_0_2, {%tile_0_0}, 2 : i32) : !aie.objectfifo<memref<64xi32>>
    %words = aie.buffer(%tile_0_2) {sym_name = "words"} : memref<2xi32>
    %ready_worker = aie.lock(%tile_0_2) {init = 0 : i32}
    func.func private @copy64_ff037616(memref<64xi32>, memref<64xi32>) attributes {link_with = "copy64_ff037616.o"}
    %worker = aie.core(%tile_0_2) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c9223372036854775807 = arith.constant 9223372036854775807 : index
      scf.for %turn = %c0 to %c9223372036854775807 step %c1 {
        %c1_i32 = arith.constant 1 : i32
        aie.use_lock(%ready_worker, Acquire, %c1_i32)
        %v0 = memref.load %words[%c0] : memref<2xi32>
        %c2_i32 = arith.constant 2 : i32
        %v0_1 = arith.shrui %v0, %c2_i32 : i32
        aie.use_lock(%ready_worker, Release, %c1_i32)
        %v0_index = arith.index_cast %v0_1 : i32 to index
        scf.for %i1 = %c0 to %v0_index step %c1 {
          %a2 = aie.objectfifo.acquire @x0(Consume, 1) : !aie.objectfifosubview<memref<64xi32>>
          %x0_0 = aie.objectfifo.subview.access %a2[0] : !aie.objectfifosubview<memref<64xi32>> -> memref<64xi32>
          %a3 = aie.objectfifo.acquire @y0(Produce, 1) : !aie.objectfifosubview<memref<64xi32>>
          %y0_0 = aie.objectfifo.subview.access %a3[0] : !aie.objectfifosubview<memref<64xi32>> -> memref<64xi32>
          func.call @copy64_ff037616(%x0_0, %y0_0) : (memref<64xi32>, memref<64xi32>) -> ()
          aie.objectfifo.release @x0(Consume, 1)
          aie.objectfifo.release @y0(Produce, 1)
        }
      }
      aie.end
    } {stack_size = 1024 : i32}
    aie.runtime_sequence @sequence(%x : memref<4096xi32>, %y : memref<1024xi32>) {
      aiex.sync_scratchpad_parameters_from_host
      %c0_i32 = arith.constant 0 : i32
      aiex.npu.write32(%c0_i32, %c0_i32) {buffer = @words} : i32, i32
      aiex.npu.update_from_scratchpad<mul> {state_table_idx = 0 : ui8, func_arg = 1 : ui32, address = 0 : ui32, buffer = @words}
      aiex.set_lock(%ready_worker, 1)
      %y0_task = aiex.dma_configure_task_for @y0 {
        aie.dma_bd(%y : memref<1024xi32> offset = 0 len = 1024) {bd_id = 0 : i32}
        aie.end
      } {issue_token = true}
      %c118784_i32 = arith.constant 118784 : i32
      aiex.npu.write32(%c118784_i32, %c0_i32) {column = 0 : i32, row = 0 : i32} : i32, i32
      aiex.npu.update_from_scratchpad<mul> {state_table_idx = 1 : ui8, func_arg = 16 : ui32, address = 118784 : ui32, column = 0 : i32, row = 0 : i32}
      aiex.dma_start_task(%y0_task)
      %x0_task = aiex.dma_configure_task_for @x0 {
        aie.dma_bd(%x : memref<4096xi32> offset = 0 len = 1024) {bd_id = 1 : i32, offset_parameter = @start_offset}
        aie.end
      }
      %c118816_i32 = arith.constant 118816 : i32
      aiex.npu.write32(%c118816_i32, %c0_i32) {column = 0 : i32, row = 0 : i32} : i32, i32
      aiex.npu.update_from_scratchpad<mul> {state_table_idx = 1 : ui8, func_arg = 16 : ui32, address = 118816 : ui32, column = 0 : i32, row = 0 : i32}
      aiex.dma_start_task(%x0_task)
      aiex.dma_await_task(%y0_task)
      aiex.dma_free_task(%x0_task)
    }
  }
}
