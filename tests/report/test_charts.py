import base64
import re

import pytest
from PIL import Image

from landbalance.config import ClassInfo
from landbalance.plans import PlannedWorker
from landbalance.report import charts, pictures, team
from landbalance.report.results import Calibration
from landbalance.report.speed import EqualRun, measured_speed, step_times
from landbalance.report.timeline import over_time, stretch
from report.metrics_samples import CLASSES, calibration
from report.report_samples import class_picture, plan, planned, timing

TIMING = timing((12, 4), step=0.3, epochs=3)
TIMES = step_times(TIMING, 16)
PLAN = plan("valley", "balanced", (12, 4))
WORKERS = PLAN.used


def words(picture: bytes) -> str:
    """Return the text of an SVG file whose letters are no paths."""
    return " ".join(re.findall(r"<text[^>]*>([^<]*)<", picture.decode()))


@pytest.mark.parametrize("narrow", [False, True])
def test_timeline_names_workers_and_what_they_do(narrow: bool) -> None:
    shown = stretch(TIMING, 16)
    said = words(charts.svg(lambda tight: team.timeline_figure(WORKERS, shown, tight), narrow, text="none"))
    for part in ("0 · local", "computing", "waiting for others", "communication (estimated)"):
        assert part in said
    assert "computing 80.0\u00a0%, waiting for others 10.0\u00a0%" in team.timeline_text(WORKERS, shown)


def test_without_timings_the_charts_are_empty() -> None:
    shown, table = stretch(TIMING[:0], 16), over_time(TIMING[:0], 16)
    assert "0 · local" in words(charts.svg(lambda narrow: team.timeline_figure(WORKERS, shown, narrow), text="none"))
    assert "epochs done" in words(charts.svg(lambda narrow: team.shares_figure(WORKERS, table, narrow), text="none"))
    assert team.shares_text(WORKERS, table) == "No step was timed."


def test_speed_has_a_row_for_each_worker_and_ratio() -> None:
    speed = measured_speed(PLAN, TIMES, EqualRun("valley-equal", 0.54, None))
    said = words(charts.svg(lambda narrow: team.speed_figure(PLAN, TIMES, speed, narrow), text="none"))
    for part in ("whole step", "computing, worker 1", "over equal shares, S", "predicted", "measured", "limit"):
        assert part in said
    assert "predicted 280\u00a0ms, measured 300\u00a0ms" in team.speed_text(PLAN, TIMES, speed)


def test_shares_over_time_in_words() -> None:
    table = over_time(TIMING, 16)
    assert "keeps 75.0\u00a0% of the batch" in team.shares_text(WORKERS, table)
    moved = table.assign(share=table["share"] - 0.01 * table["progress"])
    assert "goes from" in team.shares_text(WORKERS, moved)


def test_of_a_large_team_some_of_each_kind_are_drawn() -> None:
    workers = [PlannedWorker.model_validate(planned(rank, 4, slowdown=1 + rank % 3)) for rank in range(90)]
    shown = team.lanes(workers)
    assert len(shown) == 15
    assert len({worker.title for worker in shown}) == 3
    assert [worker.rank for worker in shown] == sorted(worker.rank or 0 for worker in shown)


def test_dark_pictures_differ_in_their_colours_alone() -> None:
    light = charts.svg(lambda narrow: charts.calibration_figure(sample(), narrow), text="none")
    dark = charts.darkened(light)
    colour = re.compile(rb"#[0-9a-f]{6}")
    assert colour.sub(b"", light) == colour.sub(b"", dark)
    for shade in (charts.INK, charts.FIRST, charts.FAINT):
        assert shade.encode() in light
        assert shade.encode() not in dark


def sample() -> Calibration:
    return Calibration.model_validate(calibration([0, 5, 20]))


def test_a_map_of_few_colours_keeps_a_byte_a_pixel() -> None:
    """The page's script reads class indices from the file: 8 bits, no interlacing, each row's filter 0."""
    import io
    import struct
    import zlib

    address = pictures.map_address(class_picture(), [ClassInfo.model_validate(item) for item in CLASSES])
    content = base64.b64decode(address.partition(",")[2])
    width, height, bits, kind, *_, interlaced = struct.unpack(">IIBBBBB", content[16:29])
    assert (bits, kind, interlaced) == (8, 3, 0)
    rows = zlib.decompress(b"".join(chunks(content, b"IDAT")))
    assert set(rows[:: width + 1]) == {0}
    assert Image.open(io.BytesIO(content)).convert("RGBA").getpixel((60, 50)) == (0x21, 0x66, 0xAC, 255)
    assert len(rows) == height * (width + 1)


def chunks(content: bytes, wanted: bytes) -> list[bytes]:
    found, at = [], 8
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        if content[at + 4 : at + 8] == wanted:
            found.append(content[at + 8 : at + 8 + length])
        at += 12 + length
    return found
