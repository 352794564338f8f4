"""Numbers as the report writes them; what is not defined is ``n/a``."""

from collections.abc import Sequence
from datetime import datetime

NOT_AVAILABLE = "n/a"
_SPACE = "\u00a0"


def percent(value: float | None) -> str:
    r"""Return a share as per cent with one decimal.

    >>> percent(0.5468)
    '54.7\xa0%'
    """
    return NOT_AVAILABLE if value is None else f"{100 * value:.1f}{_SPACE}%"


def interval(limits: Sequence[float] | None) -> str:
    r"""Return an interval of shares as per cent.

    >>> interval((0.512, 0.6))
    '51.2\u201360.0\xa0%'
    """
    return NOT_AVAILABLE if limits is None else f"{100 * limits[0]:.1f}–{100 * limits[1]:.1f}{_SPACE}%"


def decimal_interval(limits: Sequence[float] | None) -> str:
    """Return an interval of coefficients such as kappa."""
    return NOT_AVAILABLE if limits is None else f"{decimal(limits[0])} to {decimal(limits[1])}"


def points(value: float) -> str:
    """Return the size of a difference of two shares, in percentage points without a sign."""
    return f"{abs(100 * value):.1f}{_SPACE}percentage points"


def signed_points(value: float | None) -> str:
    """Return a difference of two shares in percentage points, with its sign."""
    return NOT_AVAILABLE if value is None else f"{100 * value:+.1f}{_SPACE}percentage points".replace("-", "\u2212")


def chance(p_value: float) -> str:
    """Return a p-value with two significant digits; a tiny one as a bound."""
    relation = "< 0.0001" if p_value < 1e-4 else f"= {p_value:.2g}"
    return f"p {relation}".replace(" ", _SPACE)


def decimal(value: float | None) -> str:
    """Return a coefficient such as kappa with three decimals; the minus sign is a real one."""
    return NOT_AVAILABLE if value is None else f"{value:.3f}".replace("-", "\u2212")


def factor(value: float | None) -> str:
    """Return a speed-up with two decimals, e.g. ``1.92×``."""
    return NOT_AVAILABLE if value is None else f"{value:.2f}×"


def count(value: float | None) -> str:
    """Return a whole number with commas between thousands."""
    return NOT_AVAILABLE if value is None else f"{value:,.0f}"


def rounded(value: float | None) -> str:
    """Return a positive number with three significant digits and no exponent."""
    if value is None:
        return NOT_AVAILABLE
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def duration(value: float | None) -> str:
    r"""Return seconds in the unit that reads best, with three digits or so.

    >>> duration(0.3214), duration(12.34), duration(192), duration(7500)
    ('321\xa0ms', '12.3\xa0s', '3\xa0min\xa012\xa0s', '2\xa0h\xa005\xa0min')
    """
    if value is None:
        return NOT_AVAILABLE
    if round(value * 1e6) < 1000:
        return f"{value * 1e6:.0f}{_SPACE}µs" if value else f"0{_SPACE}s"
    if round(value * 1e3) < 1000:
        return f"{value * 1e3:.1f}{_SPACE}ms" if round(value * 1e3, 1) < 100 else f"{value * 1e3:.0f}{_SPACE}ms"
    if round(value, 1) < 60:
        return f"{value:.2f}{_SPACE}s" if round(value, 2) < 10 else f"{value:.1f}{_SPACE}s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}{_SPACE}min{_SPACE}{whole % 60:02d}{_SPACE}s"
    minutes = round(value / 60)
    return f"{minutes // 60}{_SPACE}h{_SPACE}{minutes % 60:02d}{_SPACE}min"


def hectares(square_metres: float | None) -> str:
    """Return an area in hectares: whole ones from 100 on, one decimal below."""
    if square_metres is None:
        return NOT_AVAILABLE
    value = square_metres / 1e4
    return f"{value:,.0f}{_SPACE}ha" if value >= 100 or value == 0 else f"{value:.1f}{_SPACE}ha"


def distance(metres: float) -> str:
    """Return a distance in metres, or in kilometres from 1000 m on."""
    return f"{metres / 1000:.3g}{_SPACE}km" if metres >= 1000 else f"{metres:.3g}{_SPACE}m"


def data_size(size: float) -> str:
    """Return a number of bytes in B, kB, MB, GB or TB."""
    units = iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 999.5 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:.3g}{_SPACE}{unit}"


def plural(number: int, noun: str) -> str:
    """Return a count with its noun, e.g. ``1 worker``, ``2,000 workers``."""
    return f"{number:,}{_SPACE}{noun}{'' if number == 1 else 's'}"


def moment(text: str) -> str:
    """Return an ISO 8601 time to the minute, e.g. ``2025-01-02 03:04 UTC``; any other text as it is.

    >>> moment("2025-01-02T03:04:05+00:00")
    '2025-01-02 03:04 UTC'
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time:%Y-%m-%d %H:%M %Z}".strip()
