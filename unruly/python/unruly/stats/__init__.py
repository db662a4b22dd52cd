"""Statistics on bare arrays: no DataFrame and no file is known here.

Every estimate is an `Interval`: a value with its uncertainty, level, effective size and method.
"""

from unruly.stats.arrivals import Dispersion, Mmpp2, index_of_dispersion, mmpp2
from unruly.stats.bins import BinQuantile, bin_count_above, bin_quantile, spread
from unruly.stats.blocks import (
    BlockInterval,
    blind_spot,
    block_interval,
    block_intervals,
    block_ladder,
)
from unruly.stats.break_even import BreakEven, break_even_faults, outlier_limit
from unruly.stats.changes import ChangePoint, ChangePoints, change_points
from unruly.stats.coincidence import Coincidence, coincidence
from unruly.stats.comparison import (
    Shift,
    grouped_shift,
    interval_of_ratio,
    paired_shift,
    pairs_needed,
)
from unruly.stats.correlation import Association, benjamini_hochberg, correlation
from unruly.stats.decomposition import TwoWay, two_way
from unruly.stats.detection import (
    Detection,
    accuracy_set,
    failure_detection,
    suspected_from,
    suspicions,
)
from unruly.stats.dip import Dip, dip_test
from unruly.stats.growth import Growth, growth
from unruly.stats.haircut import Haircut, haircut, smallest_haircut, streak_length
from unruly.stats.histogram import bucket_edges, bucket_index
from unruly.stats.interval import (
    Interval,
    promise_iid,
    quantile,
    quantile_interval_iid,
    quantile_ranks_iid,
)
from unruly.stats.kept import kept_share
from unruly.stats.knee import Knee, Step, knee
from unruly.stats.line import Line, line_fit
from unruly.stats.mean import request_mean_interval
from unruly.stats.means import mean_interval
from unruly.stats.members import (
    Replicas,
    SlowMembers,
    crossing,
    replicas_needed,
    slow_members,
    smallest_count,
)
from unruly.stats.profit import (
    DEFAULT_SLA,
    Profit,
    ProfitPeak,
    SlaTable,
    profit,
    profit_of_counts,
    profit_peak,
)
from unruly.stats.repeats import repeats_interval
from unruly.stats.replies import Way, Ways, replies_of
from unruly.stats.settling import Settling, settling
from unruly.stats.share import independent_share, share_interval
from unruly.stats.slow import SLOW_FROM, slow_percentile
from unruly.stats.stability import (
    Recoveries,
    Recovery,
    Throughput,
    recoveries_of,
    recovery,
    stability,
)
from unruly.stats.synchrony import jaccard, kth_of_n, slow_columns, slow_levels, slow_set
from unruly.stats.target import TargetShare, target_share
from unruly.stats.variance import Effect, analysis_of_variance
from unruly.stats.windows import ShortWindows, short_windows, windows_of_sums
from unruly.stats.xft import Nines, partitioned_share, xft

__all__ = [
    "DEFAULT_SLA",
    "SLOW_FROM",
    "Association",
    "BinQuantile",
    "BlockInterval",
    "BreakEven",
    "ChangePoint",
    "ChangePoints",
    "Coincidence",
    "Detection",
    "Dip",
    "Dispersion",
    "Effect",
    "Growth",
    "Haircut",
    "Interval",
    "Knee",
    "Line",
    "Mmpp2",
    "Nines",
    "Profit",
    "ProfitPeak",
    "Recoveries",
    "Recovery",
    "Replicas",
    "Settling",
    "Shift",
    "ShortWindows",
    "SlaTable",
    "SlowMembers",
    "Step",
    "TargetShare",
    "Throughput",
    "TwoWay",
    "Way",
    "Ways",
    "accuracy_set",
    "analysis_of_variance",
    "benjamini_hochberg",
    "bin_count_above",
    "bin_quantile",
    "blind_spot",
    "block_interval",
    "block_intervals",
    "block_ladder",
    "break_even_faults",
    "bucket_edges",
    "bucket_index",
    "change_points",
    "coincidence",
    "correlation",
    "crossing",
    "dip_test",
    "failure_detection",
    "grouped_shift",
    "growth",
    "haircut",
    "independent_share",
    "index_of_dispersion",
    "interval_of_ratio",
    "jaccard",
    "kept_share",
    "knee",
    "kth_of_n",
    "line_fit",
    "mean_interval",
    "mmpp2",
    "outlier_limit",
    "paired_shift",
    "pairs_needed",
    "partitioned_share",
    "profit",
    "profit_of_counts",
    "profit_peak",
    "promise_iid",
    "quantile",
    "quantile_interval_iid",
    "quantile_ranks_iid",
    "recoveries_of",
    "recovery",
    "repeats_interval",
    "replicas_needed",
    "replies_of",
    "request_mean_interval",
    "settling",
    "share_interval",
    "short_windows",
    "slow_columns",
    "slow_levels",
    "slow_members",
    "slow_percentile",
    "slow_set",
    "smallest_count",
    "smallest_haircut",
    "spread",
    "stability",
    "streak_length",
    "suspected_from",
    "suspicions",
    "target_share",
    "two_way",
    "windows_of_sums",
    "xft",
]
