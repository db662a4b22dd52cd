"""Benchmarks of unruly beside its peers, in interleaved pairs.

``python -m bench`` runs all benchmarks, or the named ones. It keeps the results in
``unruly/bench/runs/<date>-<host>/`` and writes the page ``unruly/bench/README.md`` from them.
"""
