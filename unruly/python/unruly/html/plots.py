"""The figures of the report, one at a time: for a notebook, or as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from unruly.drawing import distribution
from unruly.drawing.view import views_of
from unruly.errors import PlotError
from unruly.html.figures import correlation, nodes, slow
from unruly.html.figures.groups import group_sizes, kth_of_n
from unruly.html.figures.promise import promises
from unruly.html.figures.trust import send_lag
from unruly.html.javascript import with_licences
from unruly.html.plain import plain_spec
from unruly.topics.causes import figures as causes
from unruly.topics.factors.figures import ratios
from unruly.topics.over_time.figures import timeline
from unruly.topics.over_time.figures_windows import short_windows
from unruly.topics.stores.figures_faults import faults
from unruly.topics.stores.figures_flow import flow
from unruly.topics.stores.figures_tails import tails

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from unruly.base.analysis import Analysis
    from unruly.drawing.document import Figure, Spec
    from unruly.drawing.view import View

PNG_SCALE: Final = 2.0
UNDRAWN: Final = "or the analysis was made with pictures=False"
NO_CAUSE: Final = "no cause was found, or the analysis was made with causes=False"


@dataclass(frozen=True)
class Plot:
    """A figure of the report. A notebook shows it as a picture, which needs no network.

    Attributes
    ----------
    title : str
        What the figure shows of this run, as a sentence.
    caption : str
        How to read it.
    spec : dict
        The chart as plain Vega-Lite, with its data inside.
    """

    title: str
    caption: str
    spec: Spec

    @property
    def chart(self) -> alt.ConcatChart:
        """The figure as an Altair chart, to change it or to show it with tooltips."""
        chart: alt.ConcatChart = alt.ConcatChart.from_dict(self.spec, validate=False)
        return chart

    @cached_property
    def svg(self) -> str:
        """The figure as an SVG picture."""
        return str(vl_convert.vegalite_to_svg(self.spec))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure to a file, and return the file's path.

        Parameters
        ----------
        path : path-like
            Ends in ``.svg``, ``.png``, ``.html`` (opens without a network) or ``.json``
            (Vega-Lite). An older file is replaced.

        Raises
        ------
        PlotError
            The name ends in something else.
        OSError
            The file cannot be written.
        """
        file = Path(path)
        writers: dict[str, Callable[[], str | bytes]] = {
            ".svg": lambda: self.svg,
            ".png": lambda: bytes(vl_convert.svg_to_png(self.svg, scale=PNG_SCALE)),
            ".html": lambda: with_licences(
                str(vl_convert.vegalite_to_html(self.spec, bundle=True))
            ),
            ".json": lambda: json.dumps(self.spec),
        }
        if file.suffix not in writers:
            raise PlotError(
                file, f"ends in {file.suffix!r}", f"one of {', '.join(writers)}", "figure.svg"
            )
        written = writers[file.suffix]()
        file.write_bytes(written if isinstance(written, bytes) else written.encode("utf-8"))
        return file

    def __repr__(self) -> str:
        return f"<Plot {self.title}>"

    def _repr_html_(self) -> str:
        """Return the picture with its caption."""
        return f"<figure>{self.svg}<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Plots:
    """The figures of one analysis, from ``analysis.plot``.

    Every method returns a `Plot`, or raises a `PlotError` that says why there is nothing to draw.
    The page of `unruly.report` holds the same figures.
    """

    analysis: Analysis

    def __repr__(self) -> str:
        names = (name for name in vars(type(self)) if not name.startswith("_"))
        return f"<Plots: {', '.join(names)}>"

    def _draw(self, build: Callable[[View], Figure | None], reason: str) -> Plot:
        """Draw one figure of the report; `reason` is why there is none when it has none."""
        (view,) = views_of([self.analysis])
        # as the page does: checking each datum would take longer than all the rest
        with debug_mode(False):
            figure = build(view)
        if figure is None:
            raise PlotError("plot", f"nothing to draw: {reason}", hint="choose another figure")
        return Plot(figure.title, figure.caption, plain_spec(figure))

    def cdf(self) -> Plot:
        """Draw the share of requests above each latency, with the percentiles marked.

        Raises
        ------
        PlotError
            No request was answered, or the analysis was made with pictures=False.
        """
        return self._draw(
            distribution.distribution,
            f"no request was answered, {UNDRAWN}",
        )

    def percentiles(self) -> Plot:
        """Draw p50, p90, p99 and p99.9 of each operation, response beside service time.

        Raises
        ------
        PlotError
            No request was answered.
        """
        return self._draw(distribution.workloads, "no request was answered")

    def tails(self) -> Plot:
        """Draw the mean, the percentiles up to p99.999 and the maximum of a store.

        Raises
        ------
        PlotError
            The run drives no store.
        """
        return self._draw(tails, "the run drives no store")

    def promises(self) -> Plot:
        """Draw the p99 of each operation with its confidence interval.

        Raises
        ------
        PlotError
            No operation has a p99.
        """
        return self._draw(promises, "no operation has a p99")

    def ratios(self) -> Plot:
        """Draw p99 and maximum over the mean, for each cell of a matrix.

        Raises
        ------
        PlotError
            The run has no matrix of cells.
        """
        return self._draw(ratios, "the run has no matrix of cells")

    def timeline(self) -> Plot:
        """Draw latency over time, with the slowest requests and the failures.

        Raises
        ------
        PlotError
            Nothing was measured, or the analysis was made with pictures=False.
        """
        return self._draw(timeline, f"nothing was measured, {UNDRAWN}")

    def windows(self) -> Plot:
        """Draw latency, throughput and requests in flight in windows of 100 ms.

        Raises
        ------
        PlotError
            The run is too short, or the analysis was made with pictures=False.
        """
        return self._draw(short_windows, f"the run is too short, {UNDRAWN}")

    def flow(self) -> Plot:
        """Draw replies, failures and the p99 over time, under lanes of what happened.

        Raises
        ------
        PlotError
            The run drives no store, or the analysis was made with pictures=False.
        """
        return self._draw(flow, f"the run drives no store, {UNDRAWN}")

    def faults(self) -> Plot:
        """Draw the p99 during each injected fault, and the longest silence.

        Raises
        ------
        PlotError
            The run has no injected faults.
        """
        return self._draw(faults, "the run has no injected faults")

    def causes(self) -> Plot:
        """Draw the share of the slow requests that each cause explains.

        Raises
        ------
        PlotError
            No cause was found, or the analysis was made with causes=False.
        """
        return self._draw(causes.explained, NO_CAUSE)

    def causes_over_time(self) -> Plot:
        """Draw the slow requests over time, coloured by cause.

        Raises
        ------
        PlotError
            No cause was found, or the analysis was made with causes=False.
        """
        return self._draw(causes.over_time, NO_CAUSE)

    def nodes(self) -> Plot:
        """Draw the p90 from every sender to every receiver.

        Raises
        ------
        PlotError
            The run has fewer than two senders or receivers.
        """
        return self._draw(nodes.matrix, "the run has fewer than two senders or receivers")

    def members(self) -> Plot:
        """Draw the p90 of each sender and of each receiver.

        Raises
        ------
        PlotError
            The run has fewer than two senders or receivers.
        """
        return self._draw(nodes.members, "the run has fewer than two senders or receivers")

    def slow_nodes(self) -> Plot:
        """Draw how many nodes are slow at a time, and how alike observers see them.

        Raises
        ------
        PlotError
            Too few nodes were observed.
        """
        return self._draw(slow.slow_counts, "too few nodes were observed")

    def groups(self) -> Plot:
        """Draw latency against the number of replies that a request waits for.

        Raises
        ------
        PlotError
            No request was sent to a group.
        """
        return self._draw(kth_of_n, "no request was sent to a group")

    def group_sizes(self) -> Plot:
        """Draw the latency of group requests by the size of the group.

        Raises
        ------
        PlotError
            No request was sent to a group.
        """
        return self._draw(group_sizes, "no request was sent to a group")

    def resources(self) -> Plot:
        """Draw how closely each resource of the receivers moves with latency.

        Raises
        ------
        PlotError
            No resource sample lies near a request.
        """
        return self._draw(correlation.correlations, "no resource sample lies near a request")

    def send_delay(self) -> Plot:
        """Draw how late the load generator sent its requests.

        Raises
        ------
        PlotError
            No request has a send time.
        """
        return self._draw(send_lag, "no request has a send time")
