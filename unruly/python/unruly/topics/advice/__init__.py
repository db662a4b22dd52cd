"""Advice: timeouts, replicas, profit and hedges, which `unruly.advise` answers by itself."""
