"""Benchmarks: side by side with the peers, in interleaved pairs."""
