"""Statistics on bare arrays: no DataFrame and no file is known here.

Every estimate is an `Interval`: a value with its uncertainty, level, effective size and method.
"""

from unruly.stats.bins import BinQuantile, bin_count_above, bin_quantile, spread
from unruly.stats.blocks import BlockInterval, blind_spot, block_interval
from unruly.stats.comparison import (
    Shift,
    grouped_shift,
    interval_of_ratio,
    paired_shift,
    pairs_needed,
)
from unruly.stats.correlation import Association, benjamini_hochberg, correlation
from unruly.stats.decomposition import TwoWay, two_way
from unruly.stats.dip import Dip, dip_test
from unruly.stats.haircut import Haircut, haircut, smallest_haircut, streak_length
from unruly.stats.histogram import bucket_edges, bucket_index
from unruly.stats.interval import (
    Interval,
    promise_iid,
    quantile,
    quantile_interval_iid,
    quantile_ranks_iid,
)
from unruly.stats.line import Line, line_fit
from unruly.stats.mean import mean_interval
from unruly.stats.share import share_interval
from unruly.stats.synchrony import jaccard, kth_of_n, slow_columns, slow_set
from unruly.stats.variance import Effect, analysis_of_variance

__all__ = [
    "Association",
    "BinQuantile",
    "BlockInterval",
    "Dip",
    "Effect",
    "Haircut",
    "Interval",
    "Line",
    "Shift",
    "TwoWay",
    "analysis_of_variance",
    "benjamini_hochberg",
    "bin_count_above",
    "bin_quantile",
    "blind_spot",
    "block_interval",
    "bucket_edges",
    "bucket_index",
    "correlation",
    "dip_test",
    "grouped_shift",
    "haircut",
    "interval_of_ratio",
    "jaccard",
    "kth_of_n",
    "line_fit",
    "mean_interval",
    "paired_shift",
    "pairs_needed",
    "promise_iid",
    "quantile",
    "quantile_interval_iid",
    "quantile_ranks_iid",
    "share_interval",
    "slow_columns",
    "slow_set",
    "smallest_haircut",
    "spread",
    "streak_length",
    "two_way",
]
