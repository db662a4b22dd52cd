"""Series of latencies whose law is known: the families that an interval is tried on.

Requests are due a millisecond apart. Each family gives a run of its own kind and the share of
requests above a latency in the long run, from which the truth is solved. All latencies in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, signal, stats

RATE_HZ: Final = 1000
BASE_S, BASE_SIGMA = 2e-4, 0.5
BASE: Final = stats.lognorm(s=BASE_SIGMA, scale=BASE_S)
MODULATION_SIGMA, NOISE_SIGMA = 0.5, 0.3
SLOWER: Final = 4.0
DRIFT: Final = 0.4
Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]


@dataclass(frozen=True)
class Family:
    """One kind of run: a function that draws it, and its exact tail."""

    name: str
    words: str
    draw: Draw
    above: Callable[[float], float]
    """Returns the share of requests that are slower than a time in seconds."""
    kind: str = "bound"
    """``bound``: the bar on false promises binds it. ``hold-out``: never used to choose anything in
    the method. ``unseen``: no method can know; published with its warning."""

    def truth(self, p: float) -> float:
        """The p-quantile of the law."""
        return float(optimize.brentq(lambda q: self.above(q) - (1 - p), 1e-9, 1e4, xtol=1e-12))


def _base(rng: np.random.Generator, n: int) -> Array:
    return BASE_S * np.exp(BASE_SIGMA * rng.standard_normal(n))


def _times(seconds: int) -> Array:
    return np.arange(seconds * RATE_HZ) / RATE_HZ


def _waits(times: Array, starts: Array, ends: Array) -> Array:
    """What a request that is due inside a stall waits until its end."""
    if not starts.size:
        return np.zeros_like(times)
    place = np.searchsorted(starts, times, side="right") - 1
    end = np.where(place >= 0, ends[np.maximum(place, 0)], 0.0)
    return np.maximum(end - times, 0.0)


def _renewal(
    rng: np.random.Generator,
    seconds: int,
    up_s: float,
    lengths: Callable[[int], Array],
    first: Callable[[], float],
    mean_s: float,
) -> tuple[Array, Array]:
    """Stalls between exponential calm, begun in its stationary state."""
    many = int(seconds / up_s * 2 + 50)
    ups, downs = rng.exponential(up_s, many), lengths(many)
    if rng.uniform() < mean_s / (up_s + mean_s):
        ups[0], downs[0] = 0.0, first()
    ends = np.cumsum(ups + downs)
    return ends - downs, ends


def _stalled(
    name: str,
    words: str,
    up_s: float,
    mean_s: float,
    draw: Callable[[np.random.Generator, int], Array],
    residual: tuple[Callable[[np.random.Generator], float], Callable[[float], float]],
    kind: str = "bound",
) -> Family:
    first, survival = residual

    def run(rng: np.random.Generator, seconds: int) -> Array:
        times = _times(seconds)
        stalls = _renewal(rng, seconds, up_s, lambda n: draw(rng, n), lambda: first(rng), mean_s)
        return _base(rng, times.size) + _waits(times, *stalls)

    share = mean_s / (up_s + mean_s)
    return Family(name, words, run, _mixed(share, survival), kind)


def _mixed(share: float, survival: Callable[[float], float]) -> Callable[[float], float]:
    """Tail of base + wait, where a share of the requests waits with this survival function."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    bases = BASE_S * np.exp(BASE_SIGMA * points)
    weights = weights / weights.sum()

    def above(q: float) -> float:
        late = sum(w * survival(max(q - b, 0.0)) for w, b in zip(weights, bases, strict=True))
        return float((1 - share) * BASE.sf(q) + share * late)

    return above


def _exponential(mean_s: float) -> tuple[Any, Any, Any]:
    return (
        lambda rng, n: rng.exponential(mean_s, n),
        lambda rng: float(rng.exponential(mean_s)),
        lambda x: float(np.exp(-x / mean_s)),
    )


def _pareto(mean_s: float, shape: float) -> tuple[Any, Any, Any]:
    least = mean_s * (shape - 1) / shape

    def survival(x: float) -> float:
        if x < least:
            return 1 - x / mean_s
        return float(least**shape * x ** (1 - shape) / ((shape - 1) * mean_s))

    def first(rng: np.random.Generator) -> float:
        u = rng.uniform()
        if u > survival(least):
            return float((1 - u) * mean_s)
        return float((u * (shape - 1) * mean_s / least**shape) ** (1 / (1 - shape)))

    return lambda rng, n: least * rng.uniform(size=n) ** (-1 / shape), first, survival


def _lognormal(mean_s: float, sigma: float) -> tuple[Any, Any, Any]:
    law = stats.lognorm(s=sigma, scale=mean_s * np.exp(-(sigma**2) / 2))
    grid = np.linspace(0, law.ppf(1 - 1e-9), 200_001)
    tail = law.sf(grid)
    above = np.maximum(
        1 - np.concatenate([[0], integrate.cumulative_trapezoid(tail, grid)]) / mean_s, 0
    )
    return (
        lambda rng, n: law.rvs(n, random_state=rng),
        lambda rng: float(np.interp(rng.uniform(), above[::-1], grid[::-1])),
        lambda x: float(np.interp(x, grid, above)),
    )


def _modulated(name: str, words: str, memory: float, every: int) -> Family:
    """Log level an AR(1) of this memory, one step each `every` requests, beside fresh noise."""

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = seconds * RATE_HZ
        shocks = MODULATION_SIGMA * np.sqrt(1 - memory**2) * rng.standard_normal(n // every)
        before = [memory * MODULATION_SIGMA * rng.standard_normal()]
        level, _ = signal.lfilter([1.0], [1.0, -memory], shocks, zi=before)
        noise = NOISE_SIGMA * rng.standard_normal(n)
        found: Array = BASE_S * np.exp(np.repeat(level, every) + noise)
        return found

    law = stats.lognorm(s=np.hypot(MODULATION_SIGMA, NOISE_SIGMA), scale=BASE_S)
    return Family(name, words, run, lambda q: float(law.sf(q)))


def _collector(rng: np.random.Generator, seconds: int) -> Array:
    times = _times(seconds)
    gaps = 2.0 * rng.uniform(0.9, 1.1, seconds // 2 + 20)
    starts = np.cumsum(gaps) - rng.uniform(0, 2.2) - gaps[0]
    return _base(rng, times.size) + _waits(times, starts, starts + 0.03)


def _switching(draw: Callable[[np.random.Generator, int, bool], Array]) -> Draw:
    def run(rng: np.random.Generator, seconds: int) -> Array:
        times = _times(seconds)
        many = seconds * 4 + 100
        lengths = np.empty(many)
        lengths[0::2], lengths[1::2] = draw(rng, many // 2, False), draw(rng, many // 2, True)
        # a long way in, both phases have forgotten how it began
        ends = np.cumsum(lengths) - rng.uniform(20.0, 40.0)
        slow = np.searchsorted(ends, times, side="right") % 2 == 1
        return _base(rng, times.size) * np.where(slow, SLOWER, 1.0)

    return run


def _two_levels(share: float) -> Callable[[float], float]:
    return lambda q: float((1 - share) * BASE.sf(q) + share * BASE.sf(q / SLOWER))


def _drifting(rng: np.random.Generator, seconds: int) -> Array:
    n = seconds * RATE_HZ
    return _base(rng, n) * np.exp(np.linspace(-DRIFT, DRIFT, n))


def _drifted_above(q: float) -> float:
    levels = np.exp(np.linspace(-DRIFT, DRIFT, 2001))
    return float(BASE.sf(q / levels).mean())


def _queue(load: float) -> tuple[Draw, Callable[[float], float]]:
    """M/M/1 at this load, arrivals Poisson of the same rate; truth is exponential."""
    service_hz = RATE_HZ / load

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = seconds * RATE_HZ
        served = rng.exponential(1 / service_hz, n)
        gaps = rng.exponential(1 / RATE_HZ, n)
        gap_hz = service_hz - RATE_HZ
        waiting = rng.exponential(1 / gap_hz) if rng.uniform() < load else 0.0
        steps = np.concatenate([[0.0], np.cumsum(served[:-1] - gaps[1:])])
        lowest = np.minimum(np.minimum.accumulate(steps), 0.0)
        found: Array = np.maximum(steps - lowest, waiting + steps) + served
        return found

    return run, lambda q: float(np.exp(-(service_hz - RATE_HZ) * q))


SLOW_SHARE, SLOW_S = 0.03, 4e-3
SLOW: Final = stats.lognorm(s=BASE_SIGMA, scale=SLOW_S)
"""A tail of its own: 3 % of the requests are twenty times slower, whatever the rest does."""
STEP_S: Final = 0.1
"""How often a level that has a memory is drawn anew."""


def _each(values: Array, seconds: int) -> Array:
    """One value of each step, repeated for every request of it."""
    n = seconds * RATE_HZ
    return np.repeat(values, -(-n // values.size))[:n]


def _redrawn(sigma: float, every_s: float) -> Draw:
    """Return a log level that is drawn anew after each ``every_s`` seconds."""
    return lambda rng, s: _each(sigma * rng.standard_normal(-(-s // int(every_s))), s)


def _remembered(sigma: float, memory_s: float) -> Draw:
    """A log level with an exponential memory, stationary from the start."""
    keep = float(np.exp(-STEP_S / memory_s))

    def run(rng: np.random.Generator, seconds: int) -> Array:
        shocks = sigma * np.sqrt(1 - keep**2) * rng.standard_normal(round(seconds / STEP_S))
        before = [keep * sigma * rng.standard_normal()]
        level, _ = signal.lfilter([1.0], [1.0, -keep], shocks, zi=before)
        return _each(level, seconds)

    return run


def _long_range(sigma: float, hurst: float) -> Draw:
    """A log level of fractional Gaussian noise, by circulant embedding (Davies, Harte 1987)."""

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = round(seconds / STEP_S)
        lags = np.arange(n + 1, dtype=float)
        memory = 0.5 * (
            np.abs(lags + 1) ** (2 * hurst)
            - 2 * lags ** (2 * hurst)
            + np.abs(lags - 1) ** (2 * hurst)
        )
        spectrum = np.maximum(np.fft.fft(np.concatenate([memory, memory[-2:0:-1]])).real, 0.0)
        noise = rng.standard_normal(2 * n) + 1j * rng.standard_normal(2 * n)
        level = np.fft.fft(np.sqrt(spectrum / (2 * n)) * noise).real[:n]
        return _each(sigma * level, seconds)

    return run


def _moving(name: str, words: str, level: Draw, sigma: float, kind: str = "bound") -> Family:
    """The whole law moves with a normal log level of this spread."""
    law = stats.lognorm(s=np.hypot(BASE_SIGMA, sigma), scale=BASE_S)

    def run(rng: np.random.Generator, seconds: int) -> Array:
        return _base(rng, seconds * RATE_HZ) * np.exp(level(rng, seconds))

    return Family(name, words, run, lambda q: float(law.sf(q)), kind)


def _stable_tail(name: str, words: str, level: Draw, body: Callable[[float], float]) -> Family:
    """Only the body moves with the level; `body` is its tail in the long run."""

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = seconds * RATE_HZ
        slow = rng.uniform(size=n) < SLOW_SHARE
        return _base(rng, n) * np.where(slow, SLOW_S / BASE_S, np.exp(level(rng, seconds)))

    return Family(name, words, run, lambda q: _with_slow(body(q), q))


def _with_slow(body: float, q: float) -> float:
    return float((1 - SLOW_SHARE) * body + SLOW_SHARE * SLOW.sf(q))


def _slow_share(name: str, words: str, memory_s: float, sigma: float) -> Family:
    """The share of slow requests moves, and keeps its mean."""
    level = _remembered(sigma, memory_s)

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = seconds * RATE_HZ
        share = SLOW_SHARE * np.exp(level(rng, seconds) - sigma**2 / 2)
        return _base(rng, n) * np.where(rng.uniform(size=n) < share, SLOW_S / BASE_S, 1.0)

    return Family(name, words, run, lambda q: _with_slow(float(BASE.sf(q)), q))


def _of_the_run(name: str, words: str, path: Callable[[Array], Array]) -> Family:
    """The whole law follows a path over the run; truth is the mixture of that run."""
    levels = np.exp(path(np.linspace(0, 1, 2001)))

    def run(rng: np.random.Generator, seconds: int) -> Array:
        n = seconds * RATE_HZ
        return _base(rng, n) * np.exp(path(np.linspace(0, 1, n)))

    return Family(name, words, run, lambda q: float(BASE.sf(q / levels).mean()))


def _levels() -> tuple[Family, ...]:
    """Families whose level moves while the tail does or does not follow."""
    moved = stats.lognorm(s=np.hypot(BASE_SIGMA, 0.15), scale=BASE_S)
    drift = np.exp(np.linspace(-0.2, 0.2, 2001))
    return (
        _stable_tail(
            "N1",
            "level anew each 5 s, stable tail",
            _redrawn(0.15, 5.0),
            lambda q: float(moved.sf(q)),
        ),
        _moving("N1w", "whole law anew each 5 s", _redrawn(0.15, 5.0), 0.15),
        _stable_tail(
            "N2",
            "median with 60 s of memory, stable tail",
            _remembered(0.15, 60.0),
            lambda q: float(moved.sf(q)),
        ),
        _stable_tail(
            "N2b",
            "median drifts, stable tail",
            lambda _, s: np.linspace(-0.2, 0.2, s * RATE_HZ),
            lambda q: float(BASE.sf(q / drift).mean()),
        ),
        _of_the_run("N3", "one sine over the run", lambda at: DRIFT * np.sin(2 * np.pi * at)),
        _of_the_run("N4", "one step of 35 %", lambda at: np.where(at < 0.5, 0.0, np.log(1.35))),
        _slow_share("N5", "share of slow requests with 5 s of memory", 5.0, 0.7),
        _moving("N6", "whole law with 3 s of memory", _remembered(0.12, 3.0), 0.12),
        _moving("N7", "level with long-range memory", _long_range(0.3, 0.9), 0.3, "unseen"),
    )


def _families() -> tuple[Family, ...]:
    exponential, first, survival = _exponential(0.04)
    pareto, pareto_first, pareto_survival = _pareto(0.04, 1.5)
    rare, rare_first, rare_survival = _exponential(1.0)
    lognormal, lognormal_first, lognormal_survival = _lognormal(0.02, 1.0)
    queue, queue_above = _queue(0.9)
    return (
        Family(
            "F1",
            "independent",
            lambda rng, s: _base(rng, s * RATE_HZ),
            lambda q: float(BASE.sf(q)),
        ),
        _stalled("F2", "stalls, 0.5/s of mean 40 ms", 2.0, 0.04, exponential, (first, survival)),
        _modulated("F3a", "AR(1) 0.9 a request", 0.9, 1),
        _modulated("F3b", "AR(1) 0.999 a request", 0.999, 1),
        _modulated("F3c", "AR(1) 0.9 each 100 ms", 0.9, 100),
        _modulated("F3d", "AR(1) 0.99 each 100 ms", 0.99, 100),
        _modulated("F3e", "AR(1) 0.999 each 100 ms", 0.999, 100),
        Family(
            "F4",
            "collector, 30 ms every 2 s",
            _collector,
            _mixed(0.015, lambda x: max(0.0, 1 - x / 0.03)),
        ),
        Family(
            "F5a",
            "two levels, half and half",
            _switching(lambda rng, n, _: rng.uniform(0.5, 5.0, n)),
            _two_levels(0.5),
        ),
        Family(
            "F5b",
            "two levels, a tenth slow",
            _switching(lambda rng, n, slow: rng.exponential(0.5 if slow else 5.0, n)),
            _two_levels(1 / 11),
        ),
        Family("F6", "drift", _drifting, _drifted_above),
        _stalled(
            "F7",
            "stalls of infinite variance",
            2.0,
            0.04,
            pareto,
            (pareto_first, pareto_survival),
            "unseen",
        ),
        _stalled(
            "F8",
            "rare stalls, 1 s every 50 s",
            50.0,
            1.0,
            rare,
            (rare_first, rare_survival),
            "unseen",
        ),
        Family("M/M/1", "a queue at 90 % load", queue, queue_above, "hold-out"),
        _stalled(
            "LN",
            "lognormal stalls, 1/s of mean 20 ms",
            1.0,
            0.02,
            lognormal,
            (lognormal_first, lognormal_survival),
            "hold-out",
        ),
    )


FAMILIES: Final = (*_families(), *_levels())
