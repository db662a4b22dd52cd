"""Statistics on bare arrays: no DataFrame and no file is known here.

Every estimate is an `Interval`: a value with its uncertainty, level, effective size and method.
"""

from unruly.stats.arrivals import Dispersion, Mmpp2, index_of_dispersion, mmpp2
from unruly.stats.blocks import BlockInterval, blind_spot, block_interval
from unruly.stats.changes import ChangePoint, ChangePoints, change_points
from unruly.stats.correlation import Association, benjamini_hochberg, correlation
from unruly.stats.decomposition import TwoWay, two_way
from unruly.stats.detection import (
    Detection,
    accuracy_set,
    failure_detection,
    suspected_from,
    suspicions,
)
from unruly.stats.histogram import bucket_edges, bucket_index
from unruly.stats.interval import (
    Interval,
    promise_iid,
    quantile,
    quantile_interval_iid,
    quantile_ranks_iid,
)
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
from unruly.stats.replies import Way, Ways, replies_of
from unruly.stats.share import share_interval
from unruly.stats.stability import (
    Recoveries,
    Recovery,
    ShortWindows,
    Throughput,
    recovery,
    short_windows,
    stability,
)
from unruly.stats.synchrony import jaccard, kth_of_n, slow_columns, slow_set
from unruly.stats.xft import Nines, partitioned_share, xft

__all__ = [
    "DEFAULT_SLA",
    "Association",
    "BlockInterval",
    "ChangePoint",
    "ChangePoints",
    "Detection",
    "Dispersion",
    "Interval",
    "Mmpp2",
    "Nines",
    "Profit",
    "ProfitPeak",
    "Recoveries",
    "Recovery",
    "Replicas",
    "ShortWindows",
    "SlaTable",
    "SlowMembers",
    "Throughput",
    "TwoWay",
    "Way",
    "Ways",
    "accuracy_set",
    "benjamini_hochberg",
    "blind_spot",
    "block_interval",
    "bucket_edges",
    "bucket_index",
    "change_points",
    "correlation",
    "crossing",
    "failure_detection",
    "index_of_dispersion",
    "jaccard",
    "kth_of_n",
    "mean_interval",
    "mmpp2",
    "partitioned_share",
    "profit",
    "profit_of_counts",
    "profit_peak",
    "promise_iid",
    "quantile",
    "quantile_interval_iid",
    "quantile_ranks_iid",
    "recovery",
    "replicas_needed",
    "replies_of",
    "share_interval",
    "short_windows",
    "slow_columns",
    "slow_members",
    "slow_set",
    "smallest_count",
    "stability",
    "suspected_from",
    "suspicions",
    "two_way",
    "xft",
]
