"""What is built once and kept on the disk: where, under which key, how large, and what is trusted."""
