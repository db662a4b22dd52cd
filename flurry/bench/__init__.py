"""Flurry beside its peers: every bar of its design, in rounds that interleave.

One driver does the operations of all stores (``flurry/crates/node/benches/peers``). It is on core
0; every server, replica and controller is on core 1, Flurry's as well as its peers'. So replicas
share a core, which none would in earnest: what answering first gains in the tail is shown with
pauses and losses that are put in on purpose.
"""
