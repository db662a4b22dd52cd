"""The verbs: each module declares its options (``add``) and does it (``run``).

A verb imports what it needs only when it runs: ``--help`` stays quick.
"""

from unruly.verbs import advise, compare, exporting, gate, importing, papers, report, verdict

VERBS = (verdict, report, gate, advise, compare, importing, exporting, papers)
"""In the order in which ``--help`` lists them."""
