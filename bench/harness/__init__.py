"""What all benchmarks share: how one is found, run, measured and reported."""
