"""How a worker process ends, so that its launcher can tell who is to blame."""

import os
import sys

import torch.distributed as dist


def leave(status: int) -> None:
    """End this process at once: all outputs are written, and torch's threads can abort a normal exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def is_lost_contact(error: RuntimeError) -> bool:
    """Whether an error came about only since another worker did not answer."""
    text = str(error).lower()
    signs = ("connection closed", "connection reset", "timed out", "broken pipe", "timeout", "gloo")
    return isinstance(error, dist.DistError) or any(sign in text for sign in signs)


def reason(error: RuntimeError) -> str:
    """Return the first sentence of what torch says."""
    return str(error).split(". ")[0].splitlines()[0]
