"""Compiled kernels for the CPU: built once by the C compiler of the machine, optional, checked at load."""
