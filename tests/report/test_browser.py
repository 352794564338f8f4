"""The reports in a real Chromium: nothing is fetched, the map draws and obeys, everyone can use the page."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from report.metrics_samples import CLASSES
from report.report_samples import HEIGHT, NODATA_ROWS, WIDTH, Results

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
PAGES = ("valley", "patches", "index")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    own = next(filter(None, map(shutil.which, names)), None)  # else the one that playwright may have installed
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=own, args=["--no-sandbox"])
        yield opened
        opened.close()


class Seen:
    """A page in a browser, with all that it asked for and complained of."""

    def __init__(self, browser: "Browser", path: Path, **options: Any) -> None:
        self.context = browser.new_context(**(options or DESKTOP))
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.address = self.page.url

    def viewer(self) -> "Locator":
        """Return the map, once it is drawn."""
        viewer = self.page.locator(".viewer").first
        viewer.wait_for(state="visible")
        return viewer

    def colour(self, column: float, row: float) -> tuple[int, ...]:
        """Return the red, green, blue and alpha that the map's canvas shows at a pixel of the whole scene."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        script = """([x, y]) => {
            const canvas = document.querySelector(".port canvas");
            return [...canvas.getContext("2d").getImageData(x * canvas.width, y * canvas.height, 1, 1).data];
        }"""
        return tuple(self.page.evaluate(script, [column / WIDTH, row / HEIGHT]))

    def legend(self, name: str) -> "Locator":
        """Return the box of a class or of a split."""
        return self.viewer().get_by_role("checkbox", name=name)


@pytest.fixture
def valley(browser: "Browser", made: Results) -> Iterator[Seen]:
    seen = Seen(browser, made.layout.report("valley"))
    seen.viewer()
    for box in seen.page.locator(".splits input").all():
        box.uncheck()
    seen.page.get_by_label("Map over the scene").fill("100")
    yield seen
    seen.context.close()


def rgb(number: int) -> tuple[int, ...]:
    return (*bytes.fromhex(CLASSES[number]["colour"][1:]), 255)


FOREST, LAKE, NO_DATA = (30, 30), (60, 50), (60, NODATA_ROWS / 2)


@pytest.mark.parametrize("name", PAGES)
def test_page_asks_for_nothing_and_complains_of_nothing(browser: "Browser", made: Results, name: str) -> None:
    seen = Seen(browser, made.layout.report(name))
    if name == "valley":
        seen.viewer()
    assert {url for url in seen.requests if not url.startswith("data:")} == {seen.address}
    assert seen.complaints == []
    seen.context.close()


def test_map_has_the_colours_of_its_classes(valley: Seen) -> None:
    assert valley.colour(*FOREST) == rgb(0)
    assert valley.colour(*LAKE) == rgb(2)
    assert valley.colour(*NO_DATA)[3] == 0


def test_opacity_lays_the_map_over_the_scene(valley: Seen) -> None:
    full = valley.colour(*LAKE)
    valley.page.get_by_label("Map over the scene").fill("0")
    scene = valley.colour(*LAKE)
    assert scene != full
    assert scene[3] == 255
    valley.page.get_by_label("Map over the scene").fill("50")
    assert valley.colour(*LAKE) == pytest.approx([(a + b) / 2 for a, b in zip(scene, full, strict=True)], abs=2)
    assert valley.page.locator(".opacity-value").inner_text() == "50 %"


def test_classes_are_hidden_one_by_one_and_all_at_once(valley: Seen) -> None:
    valley.legend("Water $5 & $6").uncheck()
    assert valley.colour(*LAKE) != rgb(2)
    assert valley.colour(*FOREST) == rgb(0)
    valley.page.get_by_role("button", name="None").click()
    assert valley.colour(*FOREST) != rgb(0)
    valley.page.get_by_role("button", name="All", exact=True).click()
    assert (valley.colour(*FOREST), valley.colour(*LAKE)) == (rgb(0), rgb(2))


def test_uncertainty_is_another_layer(valley: Seen) -> None:
    valley.page.get_by_label("Layer").select_option("Confidence")
    sure, unsure = valley.colour(30, 70), valley.colour(90, 70)
    assert sure == pytest.approx((187, 223, 39, 255), abs=3)  # viridis at 0.9
    assert unsure == pytest.approx((42, 120, 142, 255), abs=3)  # and at 0.4
    assert valley.page.get_by_text("probability of the class that is shown").first.is_visible()
    assert valley.page.locator("fieldset.classes").is_hidden()


def test_outlines_of_the_test_area_are_drawn(valley: Seen) -> None:
    """A test tile covers columns 60 to 90 of rows 0 to 30; its outline runs along column 90."""
    plain = [valley.colour(90, row) for row in (14, 18, 22, 26)]
    valley.legend("test").check()
    assert [valley.colour(90, row) for row in (14, 18, 22, 26)] != plain


def test_pointing_tells_the_class_its_confidence_and_the_place(valley: Seen) -> None:
    frame = valley.page.locator(".port canvas").bounding_box()
    assert frame is not None
    valley.page.mouse.move(frame["x"] + frame["width"] * 61 / WIDTH, frame["y"] + frame["height"] * 51 / HEIGHT)
    # Pixels of the picture are twice as coarse as the map's: this one is column 30, row 25.
    assert valley.page.locator(".readout").inner_text() == (
        "Water $5 & $6 · confidence 0.40 · 300610, 5849490 (EPSG:32633)"
    )


def test_map_moves_and_zooms_by_mouse_and_buttons(valley: Seen) -> None:
    canvas, scale = valley.page.locator(".port canvas"), valley.page.locator(".port .scale")
    assert scale.inner_text() == "200 m"
    valley.page.get_by_role("button", name="Zoom in").click(click_count=4)
    valley.colour(0, 0)
    assert scale.inner_text() == "50 m"
    assert valley.colour(60, 45) == rgb(2)
    frame = canvas.bounding_box()
    assert frame is not None
    valley.page.mouse.move(frame["x"] + 200, frame["y"] + 200)
    valley.page.mouse.down()
    valley.page.mouse.move(frame["x"] + 200 + 0.9 * frame["width"], frame["y"] + 200, steps=3)
    valley.page.mouse.up()
    assert valley.colour(60, 45) == rgb(0)
    valley.page.get_by_role("button", name="Show the whole scene").click()
    valley.colour(0, 0)
    assert scale.inner_text() == "200 m"
    canvas.dblclick()
    valley.colour(0, 0)
    assert scale.inner_text() == "100 m"


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl(valley: Seen) -> None:
    valley.page.locator(".port canvas").hover()
    before = valley.page.evaluate("scrollY")
    valley.page.mouse.wheel(0, 120)
    valley.page.wait_for_function(f"scrollY > {before}")
    valley.page.locator(".port canvas").hover()
    valley.page.keyboard.down("Control")
    valley.page.mouse.wheel(0, -240)
    valley.page.keyboard.up("Control")
    valley.page.wait_for_function("document.querySelector('.port .scale').textContent === '50 m'")


AIM = (24.5 / 60, 0.5)
"""The middle of a pixel of the picture, as shares of the map's width and height."""


class Fingers:
    """Fingers on a phone's map; places are shares of its width and height, times are told, not waited for."""

    def __init__(self, seen: Seen) -> None:
        self.page, self.session = seen.page, seen.context.new_cdp_session(seen.page)
        self.seconds = time.time()
        self.frame: Any = None
        self.page.locator(".port").evaluate("port => port.scrollIntoView({block: 'center', behavior: 'instant'})")

    def send(self, kind: str, *places: tuple[float, float], after: float = 0.02) -> None:
        """Send one event: `places` are those of all fingers that are down now."""
        if self.frame is None:
            self.frame = self.page.locator(".port canvas").bounding_box()
        left, top, width, height = (self.frame[key] for key in ("x", "y", "width", "height"))
        self.seconds += after
        points = [{"x": left + width * x, "y": top + height * y, "id": number} for number, (x, y) in enumerate(places)]
        event = {"type": kind, "touchPoints": points, "timestamp": self.seconds}
        self.session.send("Input.dispatchTouchEvent", event)
        if kind == "touchEnd":
            self.frame = None

    def drag(self, x: float, start: float, stop: float) -> None:
        """Move a finger up or down."""
        self.send("touchStart", (x, start))
        for step in range(1, 9):
            self.send("touchMove", (x, start + (stop - start) * step / 8))
        self.send("touchEnd")

    def pinch(self, middle: tuple[float, float], before: float, after: float) -> None:
        """Move two fingers, side by side, from one distance between them to another."""
        x, y = middle
        self.send("touchStart", (x - before / 2, y))
        self.send("touchStart", (x - before / 2, y), (x + before / 2, y))
        for step in range(1, 9):
            half = (before + (after - before) * step / 8) / 2
            self.send("touchMove", (x - half, y), (x + half, y))
        self.send("touchEnd")

    def tap(self, place: tuple[float, float], after: float) -> None:
        self.send("touchStart", place, after=after)
        self.send("touchEnd")

    def read(self, place: tuple[float, float]) -> str:
        """Return what a tap reads out, long after any other."""
        self.tap(place, after=5)
        return self.page.locator(".readout").inner_text()

    def scale(self) -> str:
        """Return what the scale bar says, when all is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.page.locator(".port .scale").inner_text()


@pytest.fixture
def fingers(browser: "Browser", made: Results) -> Iterator[Fingers]:
    seen = Seen(browser, made.layout.report("valley"), **PHONE)
    seen.viewer()
    yield Fingers(seen)
    seen.context.close()


def test_one_finger_scrolls_the_page_over_the_whole_scene(fingers: Fingers) -> None:
    before, scale = fingers.page.evaluate("scrollY"), fingers.scale()
    fingers.drag(0.5, 0.8, 0.2)
    fingers.page.wait_for_function(f"scrollY > {before + 50}")
    assert fingers.scale() == scale


def test_one_finger_moves_a_map_that_is_zoomed_in(fingers: Fingers) -> None:
    fingers.page.get_by_role("button", name="Zoom in").click(click_count=2)
    scale, before, middle = fingers.scale(), fingers.page.evaluate("scrollY"), fingers.read((0.5, 0.5))
    fingers.drag(0.5, 0.3, 0.8)
    assert fingers.scale() == scale
    assert fingers.read((0.5, 0.5)) != middle
    assert fingers.page.evaluate("scrollY") == before


def test_two_fingers_zoom_the_map_about_the_place_between_them(fingers: Fingers) -> None:
    scale, read = fingers.scale(), fingers.read(AIM)
    fingers.pinch(AIM, 0.2, 0.6)
    assert fingers.scale() != scale
    assert fingers.read(AIM) == read
    fingers.pinch((0.5, 0.5), 0.6, 0.1)
    assert fingers.scale() == scale
    assert fingers.page.evaluate("visualViewport.scale") == 1


def test_a_double_tap_zooms_in_and_two_single_ones_do_not(fingers: Fingers) -> None:
    scale, read = fingers.scale(), fingers.read(AIM)
    fingers.tap(AIM, after=5)
    assert fingers.scale() == scale
    fingers.tap(AIM, after=0.05)
    assert (scale, fingers.scale()) == ("200 m", "100 m")
    assert fingers.read(AIM) == read
    assert fingers.page.evaluate("visualViewport.scale") == 1


def test_map_is_moved_by_keys_and_read_out(valley: Seen) -> None:
    port, readout = valley.page.get_by_role("application", name="Map of valley-2020"), valley.page.locator(".readout")
    port.focus()
    for key in ("+", "+"):
        valley.page.keyboard.press(key)
    valley.colour(0, 0)
    assert readout.inner_text().startswith("Water $5 & $6")
    for _ in range(6):
        valley.page.keyboard.press("ArrowLeft")
    valley.colour(0, 0)
    assert readout.inner_text().startswith("Forest")
    assert readout.get_attribute("role") == "status"


def test_cells_of_the_confusion_matrix_are_told_by_pointer_and_keys(valley: Seen) -> None:
    told = valley.page.locator(".told")
    cells = valley.page.locator(".matrix td.cell")
    cells.nth(0).hover()
    assert told.inner_text().startswith("Forest, predicted as Forest: 800")
    assert "80.0\u00a0% of the reference Forest, 88.9\u00a0% of the predicted Forest" in told.inner_text()
    cells.nth(0).click()
    valley.page.keyboard.press("ArrowDown")
    valley.page.keyboard.press("ArrowRight")
    assert ", predicted as <script>alert('x')</script>: 350" in told.inner_text()
    assert valley.page.locator(".aimed").count() == 3
    valley.page.get_by_label("% of the reference class").check()
    assert cells.nth(1).inner_text() == "15.0\u00a0%"


def test_rows_of_the_overview_are_sorted(browser: "Browser", made: Results) -> None:
    seen = Seen(browser, made.layout.report("index"))
    table = seen.page.locator("table.sortable").nth(1)

    def first_names() -> list[str]:
        return [text.split()[0] for text in table.locator("tbody th").all_inner_texts()]

    by_step = table.get_by_role("button", name="Step")
    by_step.click()
    assert first_names() == ["valley", "valley-equal", "valley-later"]
    by_step.click()
    assert first_names() == ["valley-equal", "valley", "valley-later"]
    assert table.get_by_role("columnheader", name="Step").get_attribute("aria-sort") == "descending"
    seen.page.get_by_role("link", name="valley", exact=True).click()
    assert seen.page.title() == "Land cover of a valley · valley"
    seen.context.close()


@pytest.mark.parametrize("look", [DESKTOP, DESKTOP | {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_everyone_can_use_it(browser: "Browser", made: Results, name: str, look: dict[str, Any]) -> None:
    """Axe finds nothing, not even minor things; and nothing is wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    seen = Seen(browser, made.layout.report(name), **look)
    if name == "valley":
        seen.viewer()
    for details in seen.page.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    found = Axe().run(seen.page).response["violations"]
    assert [(item["id"], item["nodes"][0]["target"]) for item in found] == []
    widest, screen = seen.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widest <= screen
    seen.context.close()


def test_print_has_plain_pictures_in_place_of_the_map(valley: Seen) -> None:
    picture = valley.page.locator(".static img.picture")
    assert picture.is_hidden()
    valley.page.emulate_media(media="print")
    assert picture.is_visible()
    assert valley.page.locator(".viewer").is_hidden()


def test_without_scripts_the_pictures_are_there(browser: "Browser", made: Results) -> None:
    seen = Seen(browser, made.layout.report("valley"), java_script_enabled=False)
    assert seen.page.locator(".static img.picture").is_visible()
    assert seen.page.locator(".viewer").is_hidden()
    seen.context.close()


def test_a_foreign_script_would_be_stopped(browser: "Browser", made: Results, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    foreign = "<script>document.title = 'taken'</script></body>"
    path.write_text(made.html("valley").replace("</body>", foreign), encoding="utf-8")
    seen = Seen(browser, path)
    assert seen.page.title() != "taken"
    assert any("Content Security Policy" in text for text in seen.complaints)
    seen.context.close()
