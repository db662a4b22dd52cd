"""Benchmarks of Flurry beside its peers, in rounds that interleave.

One driver sends the operations to all stores (``flurry/crates/node/benches/peers``). The driver is
on core 0; every server, replica and controller of both sides is on core 1. Replicas therefore share
a core, which no real cluster does. Planted pauses and losses show the gain of the first answer in
the tail.
"""
