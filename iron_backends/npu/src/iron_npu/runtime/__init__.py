"""Running built images on an NPU, through pyxrt."""
