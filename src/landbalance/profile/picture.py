"""The picture of a profile: speed against batch size, with confidence bands."""

from pathlib import Path
from typing import Any

from landbalance.files import placed
from landbalance.profiles import NodeProfile, typical

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Of Okabe and Ito's palette: told apart with any kind of colour vision."""


def draw_profile(profile: NodeProfile, target: Path) -> None:
    """Write the picture as SVG; the same profile gives the same bytes.

    Samples a second of each kind of worker at its measured batch sizes; the band is the 95 % confidence interval,
    the crosses are outliers.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "landbalance", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for index, curve in enumerate(profile.curves):
            colour = _COLOURS[index % len(_COLOURS)]
            sizes = curve.batch_sizes
            found = [typical(timings) for timings in curve.seconds]
            speed = [size / value.median for size, value in zip(sizes, found, strict=True)]
            # With too few timings there is no interval: the band then is the line.
            low = [
                size / min(value.high, 1e300) if value.low else mid
                for size, value, mid in zip(sizes, found, speed, strict=True)
            ]
            high = [
                size / value.low if value.low else mid for size, value, mid in zip(sizes, found, speed, strict=True)
            ]
            many = f"{curve.count} × " if curve.count > 1 else ""
            axes.fill_between(sizes, low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot(sizes, speed, "o-", color=colour, markersize=3.5, label=f"{many}{curve.title}")
            late = [(size, size / value) for size, what in zip(sizes, found, strict=True) for value in what.outliers]
            axes.plot(*zip(*late, strict=True) if late else ([], []), "x", color=colour, markersize=4)
        axes.set_xlabel("samples in a worker's batch")
        axes.set_ylabel("samples a second")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{profile.model} on {profile.node}: speed of a worker, 95 % confidence", loc="left")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        with placed(target) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})
