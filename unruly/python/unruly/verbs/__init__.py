"""The verbs: each module runs one; ``options.toml`` declares what each accepts.

A verb imports what it needs only when it runs: ``--help`` stays quick.
"""

from unruly.verbs import (
    advise,
    auditing,
    compare,
    exporting,
    gate,
    history,
    importing,
    listing,
    papers,
    report,
    verdict,
)

RUNS = {
    "verdict": verdict.run,
    "report": report.run,
    "runs": listing.run,
    "history": history.run,
    "gate": gate.run,
    "advise": advise.run,
    "compare": compare.run,
    "audit": auditing.run,
    "import": importing.run,
    "export": exporting.run,
    "papers": papers.run,
}
"""The function of each verb, in the order in which ``--help`` lists them."""
