"""Freed memory is used again, without the kernel's zeroing it anew."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from landbalance.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.full(64 << 20, 1, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_freed_memory()
faults()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc gives large pieces back")
def test_freed_memory_is_not_fetched_again() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    given_back, kept = map(int, run.stdout.split())
    assert given_back > 1000  # 64 MiB are 16,384 pages
    assert kept < 100
