"""Global batch norm over real workers against `torch.nn.BatchNorm2d` on the whole batch in one process."""

import pytest
import torch

from layers import CHANNELS, batch_norm, convolutions, on_this_worker, through
from workers import Workers

ROUNDING = 2.0**-8
"""Relative error of a number rounded to bfloat16, at most."""
COUNTS = [[4, 4], [7, 1], [8, 0], [3, 1, 4], [1, 6, 1], [0, 0, 8]]


@pytest.fixture(scope="module")
def workers():
    groups = {size: Workers(size) for size in (2, 3)}
    yield groups
    for group in groups.values():
        group.close()


def batch(counts, offset=0.0):
    generator = torch.Generator().manual_seed(0)
    shape = (sum(counts), CHANNELS, 6, 5)
    # Samples differ in mean and spread, so that statistics of a part are not those of the whole.
    levels = torch.randn(sum(counts), CHANNELS, 1, 1, generator=generator)
    spreads = torch.rand(sum(counts), 1, 1, 1, generator=generator) + 0.2
    images = offset + levels + spreads * torch.randn(shape, generator=generator)
    return images, torch.randn(shape, generator=generator)


def whole(parts):
    """Return outputs and input gradients of all workers' samples, and the sums of their parameters' gradients."""
    sums = [sum(gradients) for gradients in zip(*(part.of_parameters for part in parts), strict=True)]
    return [torch.cat([part.output for part in parts]), torch.cat([part.of_images for part in parts]), *sums]


def same_statistics(parts):
    return all(
        ours.equal(theirs)
        for part in parts[1:]
        for ours, theirs in zip(parts[0].statistics, part.statistics, strict=True)
    )


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_float64_on_any_counts_is_the_whole_batch(workers, counts, memory, offset):
    """Also C17: a worker with one sample, or with none."""
    images, downstream = (tensor.double().contiguous(memory_format=memory) for tensor in batch(counts, offset))
    parts = workers[len(counts)].run(on_this_worker, images, downstream, counts, torch.float64, False)
    wanted = through(batch_norm(torch.float64), images, downstream, False)
    assert same_statistics(parts)
    tolerance = 1e-9 if offset else 1e-12
    expected = [wanted.output, wanted.of_images, *wanted.of_parameters]
    for found, right in zip(whole(parts) + parts[0].statistics, expected + wanted.statistics, strict=True):
        torch.testing.assert_close(found, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_in_bfloat16_only_input_and_output_are_rounded(workers, counts):
    images, downstream = (tensor.bfloat16() for tensor in batch(counts, offset=20.0))
    parts = workers[len(counts)].run(on_this_worker, images, downstream, counts, torch.float32, False)
    exact = through(batch_norm(torch.float64), images.double(), downstream.double(), False)
    found = whole(parts)
    assert found[0].dtype == found[1].dtype == torch.bfloat16
    assert found[2].dtype == parts[0].statistics[0].dtype == torch.float32
    assert same_statistics(parts)
    torch.testing.assert_close(found[0].double(), exact.output, rtol=ROUNDING, atol=1e-4)
    torch.testing.assert_close(found[1].double(), exact.of_images, rtol=2 * ROUNDING, atol=2e-3)
    for ours, right in zip(
        found[2:] + parts[0].statistics[:2], exact.of_parameters + exact.statistics[:2], strict=True
    ):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_in_autocast_a_split_loses_no_more_than_one_process_does(workers, counts):
    """Each worker rounds its part of a gradient, so one rounding more is allowed."""
    images, downstream = batch(counts)
    downstream = downstream[:, :3]
    parts = workers[len(counts)].run(on_this_worker, images, downstream, counts, None, True)
    assert same_statistics(parts)
    alone = through(convolutions(), images, downstream, True)
    exact = through(convolutions().double(), images.double(), downstream.double(), False)
    assert parts[0].output.dtype == alone.output.dtype == torch.bfloat16
    truth = [exact.output, exact.of_images, *exact.of_parameters, *exact.statistics[:2]]
    ours = [*whole(parts), *parts[0].statistics[:2]]
    theirs = [alone.output, alone.of_images, *alone.of_parameters, *alone.statistics[:2]]
    for found, other, right in zip(ours, theirs, truth, strict=True):
        error, usual = float((found.double() - right).norm()), float((other.double() - right).norm())
        assert error <= 1.5 * usual + ROUNDING * float(right.norm())
