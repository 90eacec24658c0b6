"""Array designs and plans as text of mlir-aie's dialects."""
