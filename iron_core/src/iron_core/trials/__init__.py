"""What is declared, tried: an operator's cases on every backend that is here, and its kernels' own C++ compiled on this machine."""
