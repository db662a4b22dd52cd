"""Rules about the measuring host: its CPUs, its samplers, its time stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

STEAL_MEAN_LIMIT: Final = 0.01
STEAL_MAX_LIMIT: Final = 0.10
STAMPED_WANTED: Final = 0.99
SAMPLER_LAG_LIMIT: Final = 0.5
"""Share of a sampling period, at the p99."""


def _steal_high(analysis: Analysis) -> Iterator[Finding]:
    """Other virtual machines used the CPUs of this host.

    Example: other virtual machines took 5 % of the CPU time

    Raised: CPU steal is above {STEAL_MEAN_LIMIT:percent} on average, or above
    {STEAL_MAX_LIMIT:percent} in any sample. Steal is the time that the hypervisor gave to other
    virtual machines.

    Means: Other virtual machines on this hardware cause a part of the tail. The same run tomorrow
    may differ.

    Next: Measure on a dedicated host, or several times, and compare.

    Numbers: `self_distrust.steal_share_mean` and `self_distrust.steal_share_max` in `summary.json`.
    """
    mean, largest = analysis.self_distrust.steal_share_mean, analysis.self_distrust.steal_share_max
    if (mean or 0) <= STEAL_MEAN_LIMIT and (largest or 0) <= STEAL_MAX_LIMIT:
        return
    yield Finding(
        "steal-high",
        "trust",
        "warns",
        6,
        f"other virtual machines took {percent(mean)} of the CPU time",
        f"CPU steal is {percent(mean)} on average and {percent(largest)} in the worst sample. "
        "Part of "
        f"the slow requests is due to other virtual machines on this hardware.",
        {"steal_share_mean": mean, "steal_share_max": largest},
        "Measure on a dedicated host, or at several times of day, and compare.",
    )


def _samples_late(analysis: Analysis) -> Iterator[Finding]:
    """Resource samples were taken late.

    Example: resource samples were taken late

    Raised: The p99 of the samplers' delay is above {SAMPLER_LAG_LIMIT:percent} of a sampling
    period.

    Means: A sample that is paired with a reply may show the host after the event. Correlations are
    then weaker than they should be.

    Next: Sample less often, or give the probe a higher priority.

    Numbers: `self_distrust.sampler_lag_ns` and `self_distrust.sampler_period_ns` in `summary.json`.
    """
    doubt = analysis.self_distrust
    lag, period = doubt.sampler_lag_ns.get("p99"), doubt.sampler_period_ns
    if lag is None or not period or lag <= SAMPLER_LAG_LIMIT * period:
        return
    yield Finding(
        "samples-late",
        "trust",
        "warns",
        7,
        "resource samples were taken late",
        f"One sample in 100 is {duration(lag)} late or later, with a sample every "
        f"{duration(period)}. "
        "So a reply may be paired with the state of the host after the event.",
        {"sampler_lag_ns": doubt.sampler_lag_ns, "period_ns": period},
        "Sample less often, or give the probe a higher priority.",
    )


def _kernel_stamps_missing(analysis: Analysis) -> Iterator[Finding]:
    """Some replies have no kernel time stamp.

    Example: 100 % of the replies have no kernel time stamp

    Raised: Fewer than {STAMPED_WANTED:percent} of the good replies have the kernel's receive time
    stamp. An imported run has no such finding, because rows of another tool never have it.

    Means: The delay between the kernel and user space cannot be separated from the delay of the
    network.

    Next: Do nothing, unless you look for that delay. `unruly doctor` reports which time stamps the
    host supports.

    Numbers: `self_distrust.kernel_stamp_share` and `self_distrust.server_kernel_stamp_share` in
    `summary.json`.
    """
    share = analysis.self_distrust.kernel_stamp_share
    if share is None or share >= STAMPED_WANTED or analysis.run.foreign:
        return
    yield Finding(
        "kernel-stamps-missing",
        "trust",
        "informs",
        8,
        f"{percent(1 - share)} of the replies have no kernel time stamp",
        "Without kernel time stamps the delay between kernel and user space cannot be separated "
        "from the delay of the network.",
        {
            "kernel_stamp_share": share,
            "server_kernel_stamp_share": analysis.self_distrust.server_kernel_stamp_share,
        },
        "Run `unruly doctor`: it reports which time stamps this host supports.",
    )


RULES: Final = (
    Rule("steal-high", "trust", ("warns",), _steal_high),
    Rule("samples-late", "trust", ("warns",), _samples_late),
    Rule("kernel-stamps-missing", "trust", ("informs",), _kernel_stamps_missing),
)
