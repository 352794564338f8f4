"""The report in a real browser: no request leaves it, its script runs, nothing is wider than a phone."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from landbalance.report import run, run_index
from report.report_samples import Results

pytestmark = pytest.mark.browser

PHONE = 360


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.fail("no Chromium found; install it, or leave these tests out with -m 'not browser'")


def opened(page: Path, folder: Path) -> tuple[str, str]:
    """Return the page's tree after its script has run, and what the browser wrote to its console."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=3000", f"--user-data-dir={folder}"]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize("name", ["valley", "patches"])
def test_page_opens_without_complaints(results: Results, tmp_path: Path, name: str) -> None:
    run(name, results.config, results.layout)
    tree, console = opened(results.layout.report(name), tmp_path / "browser")
    assert console == ""
    assert tree.count('class="over"') == (1 if name == "valley" else 0)
    assert 'class="controls" hidden' not in tree


@pytest.mark.parametrize("name", ["valley", "index"])
def test_nothing_is_wider_than_a_phone(results: Results, tmp_path: Path, name: str) -> None:
    run("valley", results.config, results.layout)
    run_index(results.config, results.layout)
    # Measured in a frame, for a window cannot be made this narrow; the policy would forbid the measuring script.
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", results.html(name))
    widths = '[root.scrollWidth, root.clientWidth].join(" ")'
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f"<iframe id=frame style='border:0;width:{PHONE}px;height:800px' srcdoc=\"{html.escape(page)}\" "
        f"onload='const root = frame.contentDocument.documentElement; document.title = {widths}'></iframe>",
        encoding="utf-8",
    )
    tree, _ = opened(wrapper, tmp_path / "browser")
    found = re.search(r"<title>(\d+) (\d+)</title>", tree)
    assert found is not None
    widest, frame = map(int, found.groups())
    assert widest <= frame <= PHONE


def test_a_foreign_script_would_be_stopped(results: Results, tmp_path: Path) -> None:
    run("valley", results.config, results.layout)
    path = results.layout.report("valley")
    path.write_text(results.html("valley").replace("</body>", "<script>document.title = 'taken'</script></body>"))
    tree, console = opened(path, tmp_path / "browser")
    assert "<title>taken" not in tree
    assert "Content Security Policy" in console
