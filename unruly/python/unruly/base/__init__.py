"""What every topic shares: cells, tails, trust, the findings, and the analysis of one run."""
