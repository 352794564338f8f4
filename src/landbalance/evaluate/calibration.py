"""Does the network know when it is wrong? Its confidence against how often it is right.

Confidence is the softmax probability of the class that it chose. Samples are sorted into bins of equal width; in a
calibrated network the share that is right in a bin is the mean confidence there (DeGroot and Fienberg 1983). The
expected calibration error is the mean distance of the two, weighted by the samples of the bins (Naeini et al. 2015;
15 bins as in Guo et al. 2017, On calibration of modern neural networks, eq. 3).

Counts and sums are whole numbers (confidence in steps of 2^-20), so the order and the size of batches change nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15
_STEPS = 1 << 20

Counts = NDArray[np.int64]


def counted(confidence: NDArray[np.float32], hits: NDArray[np.bool_]) -> Counts:
    """Return samples, hits and summed confidence (in steps of 2^-20) of each bin; shape (3, 15).

    Parameters
    ----------
    confidence : ndarray of float32, shape (n,)
        From 0 to 1; a bin holds its upper limit.
    hits : ndarray of bool, shape (n,)
        Whether each sample is right.
    """
    place = np.clip(np.ceil(confidence.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    steps = np.rint(confidence.astype(np.float64) * _STEPS).astype(np.int64)
    counts = np.zeros((3, BINS), np.int64)
    for row, values in enumerate((np.ones(len(place), np.int64), hits.astype(np.int64), steps)):
        np.add.at(counts[row], place, values)
    return counts


def calibration(counts: Counts) -> dict[str, Any]:
    """Return the expected calibration error and the bins of the reliability curve; empty bins have nulls."""
    samples, hits = counts[0].tolist(), counts[1].tolist()
    confidence = (counts[2] / _STEPS).tolist()
    bins = [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "samples": count,
            "confidence": confidence[number] / count if count else None,
            "accuracy": hits[number] / count if count else None,
        }
        for number, count in enumerate(samples)
    ]
    total = sum(samples)
    distance = sum(abs(hit - sure) for hit, sure in zip(hits, confidence, strict=True))
    return {"expected_error": distance / total if total else None, "bins": bins}
