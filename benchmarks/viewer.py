"""Size and speed of the interactive map in a headless browser that renders in software. `python -m benchmarks.viewer`

Writes `results/viewer.json`. `python -m benchmarks.viewer picture` instead trains the example of the guide and takes
its picture, `docs/images/view.png`. Both need Chromium.
"""

from __future__ import annotations

import io
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from curvae import Lorentz
from curvae.runs import Source, train_run, view_run
from curvae.training.storage import versions
from curvae.viewer import View

from .browser import Browser, find
from .examples import IMAGES, ROOT

__all__ = ["measure", "table"]

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
_DRAW = """
const { map } = curvae.maps[0], { gl } = map.painter, times = [];
for (let k = 0; k < COUNT; k++) {
  map.camera = map.geometry.compose(map.geometry.shift(k, 0.1), map.camera);
  const begun = performance.now();
  map.draw();
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits until all is drawn
  times.push(performance.now() - begun);
}
return times;
"""


def points(count: int) -> View:
    """Make a cloud that thickens towards the rim, with ids such as barcodes, twelve labels and deviations."""
    generator = np.random.default_rng(0)
    radius, angle = 8 * np.sqrt(generator.random(count)), 2 * math.pi * generator.random(count)
    space = np.sinh(radius)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    letters = np.array(list("ACGT"))[generator.integers(0, 4, (count, 16))]
    ids = np.ascontiguousarray(letters).view("U16").ravel()
    labels = np.floor(angle / (2 * math.pi) * 12).astype(int)
    return View(space, Lorentz(2), {"sector": labels}, ids, generator.uniform(0.05, 0.4, count), title="Points")


def measure(count: int, browser: Browser, folder: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    page = folder / "map.html"
    page.write_text(points(count).html(), encoding="utf-8")
    made = time.perf_counter() - begun
    begun = time.perf_counter()
    browser.open(page)
    loaded = time.perf_counter() - begun
    repeats = 40 if count <= 100_000 else 8
    # The first frames compile the shaders.
    times = browser.run(_DRAW.replace("COUNT", str(repeats)))[repeats // 4 :]
    found = browser.run(
        "const { map } = curvae.maps[0], begun = performance.now();"
        "for (let k = 0; k < 50; k++) map.nearest([200 + 9 * k, 150 + 7 * k]); return (performance.now() - begun) / 50"
    )
    return {
        "points": count,
        "page_mb": page.stat().st_size / 1e6,
        "made_s": made,
        "loaded_s": loaded,
        "redraw_ms": statistics.median(times),
        "hover_ms": found,
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        "| points | page (MB) | written (s) | opened (s) | redrawn (ms) | point under the pointer found (ms) |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['points']:,} | {row['page_mb']:.2g} | {row['made_s']:.1f} | {row['loaded_s']:.1f} "
        f"| {row['redraw_ms']:,.0f} | {row['hover_ms']:.1g} |"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def picture(browser: Browser, folder: Path) -> None:
    settings = {"prior_scale": 1.7, "epochs": 120}
    train_run(Source("branching-diffusion"), settings, folder / "tree")
    page, _ = view_run(folder / "tree", folder / "map.html", ("split",))
    browser.open(page)
    browser.run(
        "const { map, panel } = curvae.maps[0]; panel.toggles.u.click();"
        "map.drag(map.camera, [660, 520], [560, 460]); map.marked = 300; panel.tell(300)"
    )
    time.sleep(2)
    Image.open(io.BytesIO(browser.screenshot())).convert("RGB").save(IMAGES / "view.png", optimize=True)


def main(words: list[str]) -> None:
    program = find()
    if program is None:
        sys.exit("there is no Chromium; apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, Browser(program, 1180, 760, patience=300) as browser:
        browser.prefer(color_scheme="light")
        if words == ["picture"]:
            picture(browser, Path(folder))
            return
        measure(COUNTS[0], browser, Path(folder))  # the first page also starts the renderer
        rows = [measure(count, browser, Path(folder)) for count in COUNTS]
        version = browser.call("Browser.getVersion")["product"]
    result = {"versions": versions(), "browser": version, "window": [1180, 760], "rows": rows}
    (ROOT / "results" / "viewer.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main(sys.argv[1:])
