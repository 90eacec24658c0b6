"""The files of an NPU's image, read and written in Python: instruction streams, xclbins, parameter tables, control packets.

Every reader checks each length and offset before it is used; what breaks a rule is an `ImageError` of one line. What is read is
written again bit for bit.
"""
