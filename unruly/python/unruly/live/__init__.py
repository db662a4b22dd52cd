"""A run seen while it goes on: a page, metrics for Prometheus, an export over OTLP.

The runner starts ``python -m unruly.live`` and writes a line for each process and second. `tally`
counts, `state` has the figures so far, `page`, `prometheus` and `otlp` show it.
"""
