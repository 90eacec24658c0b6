"""What a graph becomes for an NPU, as data: how it is made, what is checked of it before anything is built, and how it is written."""
