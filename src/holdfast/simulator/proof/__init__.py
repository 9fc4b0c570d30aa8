"""Seeded runs of the program under faults: crashes, lost answers, late events; and checkers that watch."""
