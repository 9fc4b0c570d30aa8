"""What all benchmarks share: finding, running, measuring and reporting them."""
