"""Loss curves of one process, of `balanced` and of `unweighted`: same seed, same samples in each step.

Two workers hold 1 and 15 samples of each batch of 16, and half of the tiles have 99 % of their pixels ignored.
Both make the bias of `unweighted` visible: half of each step's gradient comes from a sixteenth of the samples,
and a labelled pixel counts the more the fewer there are beside it. Labels follow from the images, with noise.

    python benchmarks/curves.py [--quick] [--picture FILE]

prints one JSON object and draws the curves. Figures are the largest relative difference of an epoch's
training loss to that of one process.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from comparison import Case, one_process, run_on_workers, trained, write_tiles
from landbalance.files import placed
from measuring import benchmark_result

BALANCED = Case("balanced", ((1, 15),), steps=60, samples=96, noise=300.0, labels="lopsided", learning_rate=0.02)
# Colours of Okabe and Ito (2008), told apart with any colour vision; widths and dashes tell them apart without.
STYLES = {
    "one process": {"color": "#999999", "linewidth": 6, "solid_capstyle": "round"},
    "balanced": {"color": "#0072B2", "linewidth": 1.8},
    "unweighted": {"color": "#D55E00", "linewidth": 1.8, "linestyle": (0, (5, 2))},
}


def loss_curves(balanced: Case) -> dict[str, list[float]]:
    """Return the training loss of each epoch, in one process and in each arm."""
    unweighted = replace(balanced, name="unweighted", arm="unweighted", tiles=balanced.name)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        stores = [write_tiles(root / case.name / "tiles", case) for case in (balanced, unweighted)]
        run_on_workers([balanced, unweighted], ["float32"], root)
        return {
            "one process": one_process(balanced, stores[0], "float32").losses,
            "balanced": trained(balanced, "float32", root).losses,
            "unweighted": trained(unweighted, "float32", root).losses,
        }


def draw(curves: Mapping[str, Sequence[float]], target: Path) -> None:
    """Draw the curves as an SVG file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "landbalance", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for name, losses in curves.items():
            axes.plot(range(1, len(losses) + 1), losses, label=name, **STYLES[name])
        axes.set_xlabel("epoch")
        axes.set_ylabel("training loss (mean of an epoch's steps)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        target.parent.mkdir(parents=True, exist_ok=True)
        with placed(target) as temporary:
            figure.savefig(temporary, format="svg", facecolor="white", metadata={"Date": None})


def largest_difference(found: Sequence[float], wanted: Sequence[float]) -> float:
    """Return the largest relative difference of two curves."""
    return max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))


def main() -> None:
    """Train, draw and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--picture", type=Path, help="SVG file to draw; none is drawn when not given")
    options = parser.parse_args()
    case = replace(BALANCED, steps=30) if options.quick else BALANCED
    curves = loss_curves(case)
    if options.picture:
        draw(curves, options.picture)
    figures = {
        f"{arm}.loss_difference": largest_difference(curves[arm], curves["one process"])
        for arm in ("balanced", "unweighted")
    }
    figures |= {f"{name.replace(' ', '_')}.last_loss": losses[-1] for name, losses in curves.items()}
    conditions = {
        "shares": list(case.runs[0]), "epochs": case.training.epochs, "steps": case.steps, "precision": "float32",
        "optimiser": f"SGD, momentum 0.9, learning rate {case.learning_rate}", "quick": options.quick,
        "curves": curves,
    }  # fmt: skip
    print(json.dumps(benchmark_result("curves", conditions, figures), indent=2))


if __name__ == "__main__":
    main()
