"""The benchmarks: `python -m bench list`.

Every module in this folder is a benchmark: its docstring says what it measures, its `measure` measures it. Shared code
is in `harness`; the implementations that they compare are in `contenders`.
"""
