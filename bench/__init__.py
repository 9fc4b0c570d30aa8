"""What is measured, against what, and how: `python -m bench list`.

Every module beside this one is a benchmark: its docstring says what it measures, its `measure` does it. What they share
is in `harness`; the sides that they compare are in `contenders`.
"""
