"""Which of two classifiers that were judged on the same test samples is better, and whether it could be chance.

McNemar (1947), Note on the sampling error of the difference between correlated proportions or percentages,
Psychometrika 12, 153–157, looks only at the samples on which one is right and the other wrong; Foody (2004), Thematic
map comparison, Photogrammetric Engineering and Remote Sensing 70, 627–633, brought it to maps. It takes the samples
for independent. Pixels are not, so its p-value is far too small for maps. Beside it stands a randomisation test
by unit (block or image): if both were equally good, it would be a coin toss for each unit which of the two got which
result (Edgington and Onghena 2007, Randomization tests, chapter 6).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from landbalance.bootstrap import FEWEST_UNITS, Interval, interval, resampled
from landbalance.errors import UserError

Unit = Literal["block", "tile"]

_EXACT_BELOW = 25
"""Discordant samples below which McNemar's p-value is taken from the binomial distribution, not from chi-squared."""
_TOSSES = 9_999
_MOST_UNITS_IN_FULL = 12
_AT_ONCE = 1 << 22
_SEED = 0


@dataclass(frozen=True)
class Judged:
    """What a classifier got right, sample by sample.

    Parameters
    ----------
    unit : str
        What `units` are: blocks of ground, or single tiles (images).
    tiles, units, valid : ndarray of int64, shape (tiles,)
        Number of each tile, of the unit that it belongs to, and how many samples of it have a label.
    hits : ndarray of bool, shape (sum of valid,)
        Whether each labelled sample is right: tile after tile, row by row.
    """

    unit: Unit
    tiles: NDArray[np.int64]
    units: NDArray[np.int64]
    valid: NDArray[np.int64]
    hits: NDArray[np.bool_]


@dataclass(frozen=True)
class Comparison:
    """How two classifiers compare on the same samples; `first` and `second` as given.

    Parameters
    ----------
    both, first_only, second_only, neither : int
        Samples by who is right.
    difference : float
        Overall accuracy of the first less that of the second.
    interval : tuple of float or None
        Of the difference, by resampling units; None where there is one unit only.
    statistic : float or None
        McNemar's chi-squared with continuity correction; None where the two never differ.
    p_value : float
        McNemar's, by sample: far too small where samples are neighbouring pixels.
    p_value_by_unit : float
        Of the randomisation test by unit. It cannot fall below 2 / 2^units.
    """

    samples: int
    both: int
    first_only: int
    second_only: int
    neither: int
    difference: float
    interval: Interval | None
    statistic: float | None
    p_value: float
    p_value_by_unit: float
    unit: Unit
    units: int

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def read_judged(path: Path) -> Judged:
    """Return what stands in a ``predictions.parquet`` of the evaluate stage.

    Raises
    ------
    UserError
        When the file is missing, damaged, or of an older version.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["tile", "unit", "valid", "hits"])
        unit = (table.schema.metadata or {})[b"unit"].decode()
    except FileNotFoundError as error:
        raise UserError(f"{path}: not found. Run the evaluate stage first.") from error
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UserError(f"{path}: damaged or of an older version ({error}). Run the evaluate stage again.") from error
    valid = np.asarray(table["valid"].to_numpy(), np.int64)
    hits = [unpacked(packed, count) for packed, count in zip(table["hits"].to_pylist(), valid.tolist(), strict=True)]
    return Judged(
        unit="block" if unit == "block" else "tile",
        tiles=np.asarray(table["tile"].to_numpy(), np.int64),
        units=np.asarray(table["unit"].to_numpy(), np.int64),
        valid=valid,
        hits=np.concatenate([np.empty(0, np.bool_), *hits]),
    )


def packed(hits: NDArray[np.bool_]) -> bytes:
    """Return a tile's hits, shape (n,), as bits."""
    return np.packbits(hits).tobytes()


def unpacked(bits: bytes, count: int) -> NDArray[np.bool_]:
    """Return the first `count` bits as booleans."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count).astype(np.bool_)


def require_same_samples(first: Judged, second: Judged, names: Sequence[str]) -> None:
    """Refuse to compare classifiers that were judged on other samples.

    Raises
    ------
    UserError
        It names the two.
    """
    same = first.unit == second.unit and all(
        np.array_equal(getattr(first, part), getattr(second, part)) for part in ("tiles", "units", "valid")
    )
    if not same:
        raise UserError(
            f"{names[0]} and {names[1]} were not judged on the same test samples ({len(first.hits):,} and "
            f"{len(second.hits):,}). Run the evaluate stage again for both."
        )


def compared(first: Judged, second: Judged, resamples: int = 2_000, level: float = 0.95) -> Comparison:
    """Return how two classifiers compare that were judged on the same samples (see `require_same_samples`)."""
    each = np.repeat(np.unique(first.units, return_inverse=True)[1], first.valid)
    units = int(each.max(initial=-1)) + 1
    ahead = first.hits.astype(np.int64) - second.hits
    leads = np.bincount(each, ahead, units).astype(np.float64)
    samples = np.bincount(each, minlength=units)
    first_only, second_only = int((ahead > 0).sum()), int((ahead < 0).sum())
    both = int((first.hits & second.hits).sum())
    total = len(ahead)
    limits = None
    if units >= FEWEST_UNITS:
        sums = np.concatenate(list(resampled(np.stack([leads, samples], axis=1), resamples)))
        limits = interval(sums[:, 0] / sums[:, 1], level)
    return Comparison(
        samples=total,
        both=both,
        first_only=first_only,
        second_only=second_only,
        neither=total - both - first_only - second_only,
        difference=(first_only - second_only) / total,
        interval=limits,
        statistic=chi_squared(first_only, second_only),
        p_value=mcnemar(first_only, second_only),
        p_value_by_unit=coin_toss(leads),
        unit=first.unit,
        units=units,
    )


def chi_squared(first_only: int, second_only: int) -> float | None:
    """Return McNemar's statistic with Edwards' (1948) continuity correction; None where the two never differ."""
    differing = first_only + second_only
    return max(abs(first_only - second_only) - 1, 0) ** 2 / differing if differing else None


def mcnemar(first_only: int, second_only: int) -> float:
    """Return the two-sided p-value of McNemar's test; the exact one where few samples differ."""
    differing = first_only + second_only
    statistic = chi_squared(first_only, second_only)
    if statistic is None:
        return 1.0
    if differing < _EXACT_BELOW:
        tail = sum(math.comb(differing, k) for k in range(min(first_only, second_only) + 1))
        return min(1.0, tail / 2.0 ** (differing - 1))
    return math.erfc(math.sqrt(statistic / 2))  # the upper tail of chi-squared with one degree of freedom


def coin_toss(leads: NDArray[np.float64]) -> float:
    """Return how often a lead as large comes about when a fair coin decides the sign of each unit's lead.

    All signs are tried for up to 12 units, else 9,999 tosses are drawn with a fixed seed.

    Parameters
    ----------
    leads : ndarray of float64, shape (units,)
        Samples that only the first has right, less those that only the second has right, in each unit.
    """
    differing = leads[leads != 0]
    observed = abs(differing.sum())
    full = len(differing) <= _MOST_UNITS_IN_FULL
    tosses = 2 ** len(differing) if full else _TOSSES
    as_large = 0
    for signs in _signs(len(differing), tosses, full):
        as_large += int((np.abs(signs @ differing) >= observed).sum())
    return as_large / tosses if full else (as_large + 1) / (tosses + 1)


def _signs(units: int, tosses: int, full: bool) -> Iterator[NDArray[np.float64]]:
    """Yield rows of -1 and 1: every pattern there is, or drawn ones."""
    if full:
        patterns = np.arange(tosses)[:, None] >> np.arange(units) & 1
        yield (2 * patterns - 1).astype(np.float64)
        return
    generator = np.random.default_rng(_SEED)
    at_once = max(1, _AT_ONCE // units)
    for first in range(0, tosses, at_once):
        yield (2 * generator.integers(0, 2, (min(at_once, tosses - first), units)) - 1).astype(np.float64)
