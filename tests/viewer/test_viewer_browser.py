"""The interactive map in a real browser: what is drawn, what moves it, and that nothing leaves the page."""

from __future__ import annotations

import csv
import io
import json
import math
import time

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from curvae import Euclidean, Lorentz, PoincareBall
from curvae.maps.charts import Chart, Frame, SphereChart
from curvae.plotting import PALETTE, latent_map
from curvae.report import Picture, Report, Section
from curvae.viewer import View

BALL = PoincareBall(2, 0.7)
HOSTILE = """<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"""
WIDTH, HEIGHT = 900, 620
FAR = (12.0, 20.0)  # √c·radius of two groups of points that lie close together


def polar(radius, angle):
    """Space parts of points at √c·radius from the origin."""
    radius, angle = np.broadcast_arrays(radius, angle)
    return np.sinh(radius)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / math.sqrt(BALL.c)


# Six points apart, each of a category of its own; a cloud; and points far out in groups of three: the first, one beside
# it and one behind it, each 0.01 away.
SIX = polar([0.6, 1.4, 1.0, 1.8, 0.3, 1.2], np.array([0.3, 1.3, 2.4, 3.4, 4.5, 5.6]))
CLOUD = polar(np.linspace(2.0, 6.0, 40), np.linspace(0, 40, 40))
REMOTE = np.concatenate([polar([r, r, r + 0.01], [4.0 + r, 4.0 + r + 0.01 / math.sinh(r), 4.0 + r]) for r in FAR])
SPACE = np.concatenate([SIX, CLOUD, REMOTE])
KINDS = [f"kind {k}" for k in range(6)] + [HOSTILE] * (len(CLOUD) + len(REMOTE))
IDS = [f"row {HOSTILE} {k}" for k in range(len(SPACE))]
SIGMA = np.where(np.arange(len(SPACE)) == 3, 0.6, 0.01)
EDGES = np.array([[0, 1], [3, 5]])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    view = View(
        SPACE,
        Lorentz(2, BALL.c),
        {"kind": KINDS, "height": SPACE[:, 1]},
        IDS,
        SIGMA,
        edges=EDGES,
        title=HOSTILE,
    )
    path = tmp_path_factory.mktemp("page") / "map.html"
    path.write_text(view.html(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opening(browser, written):
    """What happened while the page was opened."""
    browser.open(written)
    return list(browser.events)


@pytest.fixture
def page(browser, written, opening):
    """The page as it opens."""
    if browser.run("return globalThis.curvae?.maps[0]?.store.facts.title ?? null") != HOSTILE:
        browser.open(written)
    browser.run(
        """
        const { map, panel } = curvae.maps[0];
        map.stop();
        map.setSelection(null);
        map.marked = map.hovered = -1;
        panel.tell(-1);
        map.hidden.fill(0);
        map.recolour();
        map.look(map.geometry.identity, 1);
        """
    )
    settled(browser)
    return browser


def settled(page):
    """Wait for the end of motions and for the frame that shows it."""
    end = time.monotonic() + 20
    while page.run("return curvae.maps[0].map.motion || curvae.maps[0].map.pending || 0"):
        assert time.monotonic() < end
        time.sleep(0.03)
    page.run("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def pixels(page):
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), float)


def is_dot(image, colour):
    """Pixels of dots of a colour, which let a tenth of the white ground through."""
    return np.abs(image - 255 * (0.9 * np.array(to_rgb(colour)) + 0.1)).sum(-1) < 30


def blob(image, colour):
    """The middle of the dots of a colour, as (x, y)."""
    ys, xs = np.nonzero(is_dot(image, colour))
    assert len(xs) > 3, f"nothing of {colour} in the picture"
    return np.array([xs.mean() + 0.5, ys.mean() + 0.5])


def stage(image, page):
    """The part of the picture that is the map."""
    return image[:, : round(page.run("return curvae.maps[0].map.width"))]


def place(page, z):
    """The pixel of a place of the unit disc."""
    width, height, scale = page.run("const { map } = curvae.maps[0]; return [map.width, map.height, map.scale]")
    return np.array([width / 2, height / 2]) + scale * np.asarray(z) * [1, -1]


def unit(space):
    """Space parts as places of the unit disc."""
    return (BALL.from_lorentz(torch.as_tensor(space)) * math.sqrt(BALL.c)).numpy()


# --- what is drawn ----------------------------------------------------------------------------------------------------


def test_points_lie_where_matplotlib_draws_them(page):
    figure = Figure(figsize=(6, 6), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1))
    latent_map(ax, BALL, unit(SPACE) / math.sqrt(BALL.c), KINDS)
    ax.get_legend().remove()
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    drawn = np.asarray(Image.open(stream).convert("RGB"), float)
    image = stage(pixels(page), page)
    for k, z in enumerate(unit(SIX)):
        x, y = blob(drawn, PALETTE[k + 1])
        still = ax.transData.inverted().transform((x, 600 - y)) * math.sqrt(BALL.c)
        live = blob(image, PALETTE[k + 1])
        assert np.abs(still - z).max() < 0.01
        assert np.abs(live - place(page, still)).max() < 2
        assert np.abs(live - place(page, z)).max() < 1


def test_edges_are_geodesics_and_deviations_discs(page):
    faint = pixels(page)
    for i, j in EDGES.T:
        ends = [BALL.from_lorentz(torch.from_numpy(SPACE[k])) for k in (i, j)]
        for t in (0.3, 0.5, 0.7):
            x, y = place(page, BALL.geodesic(t, *ends).numpy() * math.sqrt(BALL.c)).astype(int)
            around = faint[y - 1 : y + 2, x - 1 : x + 2]
            assert around.min() < 190, "no line where the geodesic passes"
    page.key("u")
    settled(page)
    assert page.run("return curvae.maps[0].map.show.halos")
    image, (x, sigma) = pixels(page), (BALL.from_lorentz(torch.from_numpy(SPACE[3])), SIGMA[3])
    for angle in np.linspace(0.2, 6.4, 7):
        for part, inside in ((0.85, True), (1.15, False)):
            step = torch.tensor([math.cos(angle), math.sin(angle)]) * part * sigma / BALL.lambda_x(x)
            px, py = place(page, BALL.expmap(x, step).numpy() * math.sqrt(BALL.c)).astype(int)
            change = np.abs(image[py, px] - faint[py, px]).max()
            assert (change > 4) == inside
    page.key("u")


def test_points_far_out_stay_apart_after_centring(page):
    first = len(SIX) + len(CLOUD)
    for group, radius in enumerate(FAR):
        i = first + 3 * group
        page.run(f"curvae.maps[0].map.centreOn({i})")
        settled(page)
        page.run("const { map } = curvae.maps[0]; map.look(map.camera, 40)")
        settled(page)
        found = np.array([page.run(f"return curvae.maps[0].map.pixelOf({k})") for k in (i, i + 1, i + 2)])
        scale = page.run("return curvae.maps[0].map.scale")
        away = np.linalg.norm(found[1:] - found[0], axis=1) / scale * 2
        np.testing.assert_allclose(away, 0.01, rtol=0.01)
        assert (
            abs(np.dot(*(found[1:] - found[0])) / (away * scale / 2).prod()) < 0.02
        )  # beside and behind: a right angle
        # The device draws them where the page computes them: three dots, and nothing between.
        image = stage(pixels(page), page)
        dots = is_dot(image, PALETTE[0])
        for x, y in found:
            assert dots[round(y - 0.5) - 1 : round(y - 0.5) + 2, round(x - 0.5) - 1 : round(x - 0.5) + 2].all(), radius
        for x, y in (found[0] + found[1:]) / 2:
            assert not dots[round(y), round(x)]


def test_the_mathematics_of_the_page_is_that_of_the_library(page):
    generator = torch.Generator().manual_seed(1)
    ball = PoincareBall(2)
    p, z, w = ball.random(3, 30, generator=generator).double()
    sigma = torch.rand(30, generator=generator).double() * 2
    given = json.dumps({"p": p.tolist(), "z": z.tolist(), "w": w.tolist(), "sigma": sigma.tolist()})
    found = page.run(
        f"""
        const given = {given}, {{ hyperbolic, place }} = curvae.geometry, out = [];
        for (let k = 0; k < given.p.length; k++) {{
          const [p, z, w] = [given.p[k], given.z[k], given.w[k]];
          const move = hyperbolic.transvection(z, w);
          const camera = hyperbolic.compose(move, hyperbolic.translation(p));
          const pole = hyperbolic.pole(camera);
          const at = hyperbolic.translation([-p[0], -p[1]]);
          const from = hyperbolic.locate(hyperbolic.identity, z);
          out.push({{
            sum: hyperbolic.apply(hyperbolic.translation(p), z),
            moved: hyperbolic.apply(move, z),
            other: hyperbolic.apply(move, p),
            seen: hyperbolic.apply(camera, z),
            placed: place(hyperbolic, pole, from.radius, from.turn),
            distance: hyperbolic.distance(hyperbolic.view(hyperbolic.pole(at), from.radius, from.turn)),
            back: hyperbolic.locate(camera, hyperbolic.apply(camera, w)),
            circle: hyperbolic.circle(z, given.sigma[k]),
          }});
        }}
        return out;
        """
    )
    column = lambda name: torch.tensor([row[name] for row in found], dtype=torch.float64)  # noqa: E731
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)  # noqa: E731
    close(column("sum"), ball.mobius_add(p, z))
    close(column("moved"), w)
    # An isometry, and a translation: it moves the middle of z and w along their geodesic by their distance.
    close(ball.dist(column("other"), w), ball.dist(p, z))
    close(column("seen"), column("placed"))
    close(column("distance"), ball.dist(p, z))
    back = torch.tensor([[row["back"]["radius"], row["back"]["turn"]] for row in found], dtype=torch.float64)
    close(back[:, 0], ball.dist0(w))
    close(torch.remainder(back[:, 1] - torch.atan2(w[:, 1], w[:, 0]) / (2 * math.pi) + 0.5, 1.0) - 0.5, 0 * back[:, 1])
    for row, x, s in zip(found, z, sigma, strict=True):
        angles = torch.linspace(0, 6, 7, dtype=torch.float64)
        step = torch.stack([angles.cos(), angles.sin()], 1) * s / ball.lambda_x(x)
        rim = ball.expmap(x, step) - torch.tensor(row["circle"]["centre"], dtype=torch.float64)
        close(rim.norm(dim=1), torch.full((7,), row["circle"]["radius"], dtype=torch.float64))


# --- what moves it ----------------------------------------------------------------------------------------------------


def test_a_drag_keeps_the_point_under_the_pointer(page):
    start = place(page, unit(SIX)[1])
    before = page.run("const { painter } = curvae.maps[0].map; return [painter.draws, painter.uploads]")
    page.mouse("Pressed", *start, buttons=1)
    moves = [start + [40, 25], start + [90, 60], start + [-120, 110]]
    for place_now in moves:
        page.mouse("Moved", *place_now, buttons=1)
        settled(page)
        assert np.abs(blob(stage(pixels(page), page), PALETTE[2]) - place_now).max() < 2
    draws, uploads = page.run("const { painter } = curvae.maps[0].map; return [painter.draws, painter.uploads]")
    page.mouse("Released", *moves[-1])
    assert uploads == before[1], "points were sent again"
    # One for each move, and one for the mark of the point under the pointer that the first of them takes away.
    assert len(moves) <= draws - before[0] <= len(moves) + 1
    page.key("0")
    settled(page)
    assert np.abs(blob(stage(pixels(page), page), PALETTE[2]) - start).max() < 2


@pytest.mark.usefixtures("moving")
def test_a_click_centres(page):
    page.drag(tuple(place(page, unit(SIX)[3])))
    settled(page)
    middle = place(page, [0, 0])
    assert np.abs(np.array(page.run("return curvae.maps[0].map.pixelOf(3)")) - middle).max() < 0.01
    # Distances from the centre are now those from the point.
    x = BALL.from_lorentz(torch.from_numpy(SIX))
    expected = torch.tanh(math.sqrt(BALL.c) * BALL.dist(x[3], x) / 2).numpy()
    image = stage(pixels(page), page)
    scale = page.run("return curvae.maps[0].map.scale")
    for k in (0, 1, 2, 4, 5):
        away = np.linalg.norm(blob(image, PALETTE[k + 1]) - middle) / scale
        assert abs(away - expected[k]) < 2 / scale


def test_the_wheel_zooms_at_the_pointer(page):
    at = np.floor(place(page, unit(SIX)[0]))
    under = f"const {{ map }} = curvae.maps[0]; return map.geometry.locate(map.camera, map.fromPixel({at.tolist()}))"
    before = page.run(under)
    page.mouse("Moved", *at)
    page.mouse("Wheel", *at, deltaX=0, deltaY=-300)
    settled(page)
    assert page.run("return curvae.maps[0].map.zoom") == pytest.approx(math.exp(0.48))
    assert page.run(under) == pytest.approx(before, abs=1e-9)


@pytest.mark.usefixtures("moving")
def test_keys(page):
    middle = np.array(page.run("return curvae.maps[0].map.toPixel([0, 0])"))
    page.key("ArrowRight")
    settled(page)
    moved = page.run("const { map } = curvae.maps[0]; return map.geometry.apply(map.camera, [0, 0])")
    assert moved[0] < -0.05 and abs(moved[1]) < 1e-12
    page.key("+")
    assert page.run("return curvae.maps[0].map.zoom") == pytest.approx(1.25)
    page.key("Home")
    settled(page)
    assert page.run("const { map } = curvae.maps[0]; return [map.zoom, map.camera.b]") == [1, [0, 0]]
    page.key("/")
    page.type(IDS[40])
    page.run("await new Promise((done) => setTimeout(done, 50))")
    assert page.run("return document.querySelector('.found button').textContent") == IDS[40]
    page.key("Enter")
    settled(page)
    assert np.abs(np.array(page.run("return curvae.maps[0].map.pixelOf(40)")) - middle).max() < 0.01
    page.key("Escape")
    assert page.run("return document.activeElement.classList.contains('stage')")


# --- text, selection, colours -----------------------------------------------------------------------------------------


def test_names_are_shown_as_text_and_run_nothing(page):
    at = page.run("return curvae.maps[0].map.pixelOf(20)")
    page.mouse("Moved", *at)
    settled(page)
    page.run("await new Promise((done) => setTimeout(done, 50))")
    shown = page.run("return document.querySelector('.card').innerText")
    assert IDS[20] in shown and f"kind {HOSTILE}" in shown and "radius" in shown
    assert HOSTILE in page.run("return document.querySelector('.names').innerText")
    assert page.run("return document.querySelector('h1:not(.heading)').textContent") == HOSTILE
    assert page.run("return [window.hacked ?? null, document.querySelectorAll('img:not(.still)').length]") == [None, 0]
    page.mouse("Moved", 5, 5)


def test_a_lasso_selects_and_exports(page, tmp_path):
    corners = [place(page, z) for z in (unit(SIX)[0] + d for d in ([-0.1, -0.1], [0.1, -0.1], [0.1, 0.1], [-0.1, 0.1]))]
    page.drag(*map(tuple, corners), shift=True)
    settled(page)
    assert page.run("return document.querySelector('.selection span').textContent") == "1 selected"
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.run("document.querySelector('.export').click()")
    end = time.monotonic() + 20
    while not (tmp_path / "selection.csv").exists():
        assert time.monotonic() < end, "nothing was saved"
        time.sleep(0.05)
    head, row = csv.reader(io.StringIO((tmp_path / "selection.csv").read_text(encoding="utf-8"), newline=""))
    assert head == ["id", "kind", "height", "x", "y", "radius"]
    assert row[:2] == [IDS[0], "kind 0"]
    point = BALL.from_lorentz(torch.from_numpy(SIX[0]))
    expected = [SIX[0, 1], *point.tolist(), float(BALL.dist0(point))]
    np.testing.assert_allclose([float(cell) for cell in row[2:]], expected, rtol=1e-5)


def test_the_legend_filters_and_columns_colour(page):
    press = "document.querySelectorAll('.names button')[%d].click()"
    page.run(press % 1)
    settled(page)
    image = stage(pixels(page), page)
    with pytest.raises(AssertionError, match="nothing of"):
        blob(image, PALETTE[1])
    blob(image, PALETTE[2])
    at = tuple(place(page, unit(SIX)[0]))
    assert page.run(f"return curvae.maps[0].map.nearest([{at[0]}, {at[1]}])") == -1
    page.run(press % 1)
    page.run(
        "const choice = document.querySelector('select'); choice.selectedIndex = 1;"
        "choice.dispatchEvent(new Event('change'))"
    )
    page.run("await new Promise((done) => setTimeout(done, 100))")
    ends = page.run("return [...document.querySelectorAll('.ends output')].map((end) => Number(end.value))")
    np.testing.assert_allclose(ends, [SPACE[:, 1].min(), SPACE[:, 1].max()], rtol=1e-3)
    page.run("const { panel, store } = curvae.maps[0]; await panel.colourBy(store.columns[0])")


def test_dark_follows_the_system(page):
    page.prefer(color_scheme="dark")
    settled(page)
    image = pixels(page)
    assert image[0, 0].max() < 40 and stage(image, page)[HEIGHT // 2, 100].max() < 60
    page.prefer(color_scheme="light", reduced_motion="reduce")
    settled(page)
    assert pixels(page)[0, 0].min() > 230


# --- alone, and other pages -------------------------------------------------------------------------------------------


def test_nothing_leaves_the_page(page, written, opening):
    asked = [e["params"]["request"]["url"] for e in opening if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [written.resolve().as_uri()]
    assert not [e for e in opening if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    tried = page.run(
        "const tries = [fetch('https://example.org/').then(() => 'sent', () => 'refused')];"
        "tries.push(new Promise((done) => { const image = new Image(); image.onload = () => done('sent');"
        "  image.onerror = () => done('refused'); image.src = 'https://example.org/a.png'; }));"
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 1';"
        "document.body.append(script);"
        "return [...await Promise.all(tries), window.hacked ?? null]"
    )
    assert tried == ["refused", "refused", None]


def test_flat_maps_are_translated(browser, tmp_path):
    points = torch.tensor([[0.0, 0.0], [1.5, 0.5], [-2.0, 1.0], [0.5, -1.5]])
    path = tmp_path / "flat.html"
    path.write_text(View(points, Euclidean(2), {"k": list("abcd")}).html(), encoding="utf-8")
    browser.open(path)
    before = [blob(stage(pixels(browser), browser), PALETTE[k]) for k in range(4)]
    scale = browser.run("return curvae.maps[0].map.scale")
    np.testing.assert_allclose(np.array(before) - before[0], points.numpy() * scale / 2 * [1, -1], atol=1)
    start = before[1]
    browser.drag(tuple(start), tuple(start + [30, 10]), tuple(start + [60, 40]))
    settled(browser)
    after = [blob(stage(pixels(browser), browser), PALETTE[k]) for k in range(4)]
    np.testing.assert_allclose(np.array(after) - before, np.tile([60, 40], (4, 1)), atol=1)


class Ring(Chart):
    """A chart whose page is a circle of radius 1."""

    def __init__(self):
        super().__init__(1, 0.0)
        self.width, self.outline, self.page = 2, 1.0, self

    def contains(self, z):
        return z.isfinite().all(-1)


def test_still_maps_are_zoomed_and_not_moved(browser, tmp_path):
    turns = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    points = 2 * np.stack([np.cos(turns), np.sin(turns)], 1)  # in the plane, whose page has half of it
    (tmp_path / "ring.html").write_text(View(points, Euclidean(2), chart=Ring()).html(), encoding="utf-8")
    browser.open(tmp_path / "ring.html")
    pixel = "return curvae.maps[0].map.pixelOf(0)"
    start, scale = np.array(browser.run(pixel)), browser.run("return curvae.maps[0].map.scale")
    middle = np.array(browser.run("return [curvae.maps[0].map.width / 2, curvae.maps[0].map.height / 2]"), float)
    np.testing.assert_allclose(start, middle + [scale, 0], atol=0.01)  # on the outline, of radius 1
    browser.drag(tuple(middle), tuple(middle + [30, 10]), tuple(middle + [60, 40]))
    np.testing.assert_allclose(browser.run(pixel), start, atol=0.01)
    browser.run("curvae.maps[0].map.pan(1, 0); curvae.maps[0].map.zoomAt([10, 10], 2)")
    np.testing.assert_allclose(browser.run(pixel), middle + [2 * scale, 0], atol=0.01)


# --- globes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def globe(browser, tmp_path):
    """Unit vectors, of which the first six have a category each, and the page that shows them."""
    x = torch.nn.functional.normalize(torch.randn(80, 3, generator=torch.Generator().manual_seed(0)).double(), dim=1)
    x[:6] = torch.nn.functional.normalize(
        torch.tensor([[3, 1, 1], [-1, 2, 2], [1, -2, 1], [0, 1, 3], [-2, -1, 1], [-1, -1, -3]]).double(), dim=1
    )
    chart = SphereChart(2)
    shown = chart.project(x, Frame(torch.eye(3).double()[2], torch.eye(3).double(), 0.0))
    kinds = [f"kind {k}" for k in range(6)] + [HOSTILE] * 74
    view = View(shown.space, shown.manifold, {"kind": kinds}, [f"r{k}" for k in range(80)], chart=chart)
    (tmp_path / "globe.html").write_text(view.html(), encoding="utf-8")
    browser.open(tmp_path / "globe.html")
    return x.numpy()


def pixels_of(page, count=80):
    found = page.run(f"const {{ map }} = curvae.maps[0]; return [...Array({count}).keys()].map((i) => map.pixelOf(i))")
    return np.array(found)


def unit_vectors(page):
    """Where the points of the page lie once they are turned, read back from the two halves of its picture."""
    at = page.run(
        "const { map, store } = curvae.maps[0], pole = map.geometry.pole(map.camera); return "
        "[...store.radius].map((r, i) => map.geometry.view(pole, r, store.turn[i])[0])"
    )
    middle, edge = place(page, [0, 0]), place(page, [1, 0])
    flat = (pixels_of(page) - middle) / (edge[0] - middle[0]) * [1, -1]
    return np.concatenate([flat, np.array(at)[:, None]], 1)


def test_a_globe_is_seen_from_afar(browser, globe):
    np.testing.assert_allclose(unit_vectors(browser), globe, atol=1e-5)
    image = stage(pixels(browser), browser)
    for k in range(5):
        assert np.abs(blob(image, PALETTE[k + 1]) - place(browser, globe[k, :2])).max() < 1
    assert not is_dot(image, PALETTE[6]).any()  # behind, and faint
    x, y = place(browser, globe[5, :2]).astype(int)
    faint = 255 * (0.135 * np.array(to_rgb(PALETTE[6])) + 0.865)
    assert np.abs(image[y, x] - faint).sum() < 40


def test_a_point_turned_to_the_front_is_where_its_coordinates_say(browser, globe):
    for k in (3, 0, 5):  # the last from behind
        browser.run(f"curvae.maps[0].map.centreOn({k})")
        settled(browser)
        turned = unit_vectors(browser)
        np.testing.assert_allclose(turned[k], [0, 0, 1], atol=1e-5)
        # A rotation of the coordinates brings it there, and all others with it.
        turn, scores = np.linalg.lstsq(globe, turned, rcond=None)[:2]
        np.testing.assert_allclose(scores, 0, atol=1e-8)
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-5)
        assert np.linalg.det(turn) > 0
        assert np.abs(blob(stage(pixels(browser), browser), PALETTE[k + 1]) - place(browser, [0, 0])).max() < 1
    browser.key("0")
    settled(browser)
    np.testing.assert_allclose(unit_vectors(browser), globe, atol=1e-5)


def test_a_drag_turns_a_globe(browser, globe):
    start = place(browser, globe[0, :2])
    moves = [start + [-60, 20], start + [-120, 60]]
    browser.drag(tuple(start), *map(tuple, moves))
    settled(browser)
    assert np.abs(blob(stage(pixels(browser), browser), PALETTE[1]) - moves[-1]).max() < 2
    turned = unit_vectors(browser)
    np.testing.assert_allclose(turned @ turned.T, globe @ globe.T, atol=1e-5)
    # Along the great circle through both places, which none of the points off it leaves the sides of.
    axis = np.cross(globe[0], turned[0])
    np.testing.assert_allclose(globe @ axis, turned @ axis, atol=1e-5)


def test_points_of_a_globe_are_found_and_selected_on_its_near_side(browser, globe):
    nearest = "const {{ map }} = curvae.maps[0]; return map.nearest({})"
    browser.run("const { map } = curvae.maps[0]; map.drag(map.camera, [300, 300], [460, 210])")
    settled(browser)
    flat, near, image = pixels_of(browser), unit_vectors(browser)[:, 2] > 0, stage(pixels(browser), browser)
    assert 20 < near.sum() < 60 and 0 < near[:6].sum() < 6
    for k in range(6):
        assert is_dot(image, PALETTE[k + 1]).any() == near[k]
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1) + 99 * np.eye(80)
    for i in np.flatnonzero(apart.min(1) > 10):
        found = browser.run(nearest.format(flat[i].tolist()))
        assert (found == i) == near[i]
    corners = [[-9, -9], [5000, -9], [5000, 5000], [-9, 5000]]
    browser.run(f"curvae.maps[0].map.select({corners})")
    assert browser.run("return curvae.maps[0].map.selectedCount") == near.sum()
    table = list(csv.DictReader(io.StringIO(browser.run("return curvae.maps[0].map.csv()"))))
    assert len(table) == near.sum()
    for row in table:
        np.testing.assert_allclose([float(row[name]) for name in "xyz"], globe[int(row["id"][1:])], atol=1e-5)


def test_a_report_holds_the_map(browser, tmp_path):
    view = View(SPACE, Lorentz(2, BALL.c), {"kind": KINDS}, anonymous=True)
    figure = Figure(figsize=(2, 2))
    latent_map(figure.subplots(), BALL, unit(SPACE) / math.sqrt(BALL.c))
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    sections = [Section("The map", (), [Picture(stream.getvalue(), "", "a map", live=view)])]
    report = Report("R", "v", "good", (), sections, "c", {}, 0, "d")
    path = tmp_path / "report.html"
    path.write_text(report.html(), encoding="utf-8")
    browser.open(path)
    assert browser.run("return [curvae.maps.length, document.querySelector('.still').offsetParent]") == [1, None]
    browser.run("document.querySelector('.stage').scrollIntoView()")
    settled(browser)
    box = browser.run(
        "const box = document.querySelector('.stage').getBoundingClientRect(); return [box.left, box.top]"
    )
    left, top = (math.ceil(edge) for edge in box)
    map_alone = pixels(browser)[top : top + 500, left : left + round(browser.run("return curvae.maps[0].map.width"))]
    assert np.abs(blob(map_alone, PALETTE[2]) - place(browser, unit(SIX)[1])).max() < 2


def test_two_clicks_show_what_changes(browser, tmp_path):
    """Of columns with a known answer: from point 0 to 3, the second falls by 6 units and the first grows by 1."""
    values = np.zeros((len(SPACE), 3))
    values[3] = [2.0, -60.0, 0.1]
    columns = {"grows": (2.0, 0.5), HOSTILE: (10.0, 1.0), "same": (1.0, 3.0)}
    expected = {}
    for k, (name, (size, deviation)) in enumerate(columns.items()):
        expected[name] = values[:, k], np.full(len(SPACE), deviation), size
    path = tmp_path / "map.html"
    path.write_text(View(SPACE, Lorentz(2, BALL.c), {"kind": KINDS}, IDS, expected=expected).html(), encoding="utf-8")
    browser.open(path)
    settled(browser)
    shown = "return [...document.querySelectorAll('.change div')].map((row) => [row.className, row.textContent])"

    def click(i):
        browser.run("const { map } = curvae.maps[0]; map.stop(); map.look(map.geometry.identity, 1)")
        settled(browser)
        x, y = place(browser, unit(SPACE[[i]])[0])
        browser.drag((x, y), (x, y))
        settled(browser)

    click(0)
    assert browser.run("return document.querySelector('.change').hidden")
    click(3)
    end = time.monotonic() + 10
    while browser.run("return document.querySelector('.change').hidden"):
        assert time.monotonic() < end
    rows = browser.run(shown)
    # 1.645·√2 of the deviation of a row.
    assert rows == [["clear", f"{HOSTILE}−60 ± 2.3"], ["clear", "grows+2 ± 1.2"], ["unclear", "same+0.1 ± 7"]]
    assert browser.run("return document.querySelector('.change strong').textContent") == f"From {IDS[0]} to {IDS[3]}"
    assert browser.run("return window.hacked ?? 0") == 0
    click(0)
    assert browser.run(shown)[0][1].endswith("+60 ± 2.3")
    browser.key("Escape")
    assert browser.run("return document.querySelector('.change').hidden")


def test_without_scripts_or_webgl_there_is_a_picture(browser, written):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(written, ready="")
        assert np.ptp(pixels(browser)) > 100
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    found = browser.call(
        "Page.addScriptToEvaluateOnNewDocument", source="HTMLCanvasElement.prototype.getContext = () => null"
    )
    try:
        browser.open(written)
        assert browser.run("return curvae.maps.length") == 0
        assert "WebGL 2 is not available" in browser.run("return document.querySelector('.sorry').innerText")
        assert browser.run("return document.querySelector('.still').offsetHeight") > 200
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=found["identifier"])


def test_new_rows_stand_out(browser, tmp_path):
    path = tmp_path / "new.html"
    new = np.arange(len(SIX)) == 2
    view = View(SIX, Lorentz(2, BALL.c), {"kind": KINDS[:6]}, [f"r{k}" for k in range(6)], new=new)
    path.write_text(view.html(), encoding="utf-8")
    browser.open(path)
    image = pixels(browser)
    x, y = browser.run("return curvae.maps[0].map.pixelOf(2)")
    column = image[round(y) - 12 : round(y) + 12, round(x)]
    assert (column.sum(-1) < 200).any()  # the outline
    assert np.abs(column - 255 * np.array(to_rgb(PALETTE[2]))).sum(-1).min() < 30  # not faint
    assert not is_dot(image[:, :590], PALETTE[0]).any()  # as the others are
    legend = browser.run("return [...document.querySelectorAll('.names')].at(-1).textContent")
    assert legend == "new rows1"
    browser.run("await curvae.maps[0].panel.tell(2)")
    assert browser.run("return document.querySelector('.card strong').textContent") == "r2 (new row)"
    browser.run("document.querySelector('.ring').parentElement.click()")
    table = browser.run("return curvae.maps[0].map.csv()").splitlines()
    assert table[0].startswith("id,new,kind") and len(table) == 2 and table[1].startswith("r2,yes,kind 2")
