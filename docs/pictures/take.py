"""Take the pictures of the docs: ``python docs/pictures/take.py results/report docs/pictures`` (`make pictures`)."""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

EXPERIMENT = "havel"
DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 1330}}
DARK = {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}


def main() -> None:
    """Take all pictures."""
    reports, target = (Path(name) for name in sys.argv[1:3])
    map_picture = Image.open(reports / EXPERIMENT / "map.png").convert("RGB")
    map_picture.thumbnail((1000, 1300))
    map_picture.save(target / "havel-map.jpg", quality=82)
    page, overview = reports / f"{EXPERIMENT}.html", reports / "index.html"
    own = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=own, args=["--no-sandbox"])
        take(browser, page, DESKTOP, target / "report.jpg")
        take(browser, page, DARK, target / "report-dark.jpg", "#workers")
        take(browser, page, PHONE, target / "report-phone.jpg", "#map")
        take(browser, overview, {"viewport": {"width": 1200, "height": 1000}}, target / "overview.jpg")
        browser.close()


def take(browser: Browser, path: Path, look: dict[str, Any], target: Path, place: str | None = None) -> None:
    """Write what a browser shows of a page, from the element `place` on."""
    context = browser.new_context(**look, reduced_motion="reduce")
    page: Page = context.new_page()
    page.goto(path.resolve().as_uri())
    if page.locator(".viewer").count():
        page.locator(".viewer").first.wait_for(state="visible")
    if place is not None:
        page.locator(place).evaluate("element => element.scrollIntoView({ behavior: 'instant' })")
    page.wait_for_timeout(300)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(target, quality=80, optimize=True)
    context.close()


if __name__ == "__main__":
    main()
