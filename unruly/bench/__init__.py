"""Benchmarks: side by side with the peers, in interleaved pairs.

``python -m bench`` measures every bar that it knows, or those that are named, keeps what was
measured under ``unruly/bench/runs/<date>-<host>/`` and writes the page
``unruly/bench/README.md`` from it.
"""
