// A map: the camera and what moves it, the colours, the point under the pointer, the selection.

const THEMES = {
  light: { face: "#ffffff", ink: "#1f2933", rim: "#9aa5b1", grid: "#e9edf1", text: "#7b8794", edge: "#8a96a3" },
  dark: { face: "#171c22", ink: "#dfe5eb", rim: "#4a5563", grid: "#262e37", text: "#8a96a3", edge: "#6b7886" },
};
const PICK = 12; // CSS pixels from the pointer within which a point is found
const FARTHEST = 3; // metric distance beyond which it is not, however close it looks near the rim
const SLOW = 120; // milliseconds of a frame from which fewer points are drawn while the map moves
const LEAST = 30000; // but never fewer than these
const REST = 0.94; // of half the window is the radius of what is shown at first

/** A text as a cell of CSV; what a spreadsheet would run as a formula is guarded as in data/spreadsheets.py. */
function csvCell(text) {
  const number = /^'*\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*$/;
  const guarded = /^'*(?:[\t\r\n]|\s*[=+\-@])/.test(text) && !number.test(text) ? `'${text}` : text;
  return /[",\r\n]|^\s|\s$/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

class DiscMap {
  /** `layers` holds three canvases: `under` for the disc, `points`, and `over` for marks. */
  constructor(store, layers) {
    const { c, motion, extent } = store.facts;
    this.store = store;
    this.layers = layers;
    this.geometry = MOTIONS[motion];
    this.unit = c > 0 ? Math.sqrt(c) : 1; // metric lengths times this are those of curvature −1
    this.extent = extent;
    this.camera = this.geometry.identity;
    this.zoom = 1;
    this.hidden = new Uint8Array(256);
    this.entries = new Uint8Array(store.count);
    this.selected = null;
    this.selectedCount = 0;
    this.marked = -1;
    this.hovered = -1;
    this.lasso = null;
    this.show = { halos: false, edges: true, grid: true };
    this.listeners = [];
    this.setTheme("light", false);
    this.painter = new Painter(layers.points, store, this.geometry);
    this.painter.setLooks(this.entries, null);
    this.recolour();
    layers.points.addEventListener("webglcontextlost", (event) => event.preventDefault());
    layers.points.addEventListener("webglcontextrestored", () => {
      this.painter.prepare();
      this.painter.setLooks(this.entries, this.selected);
      this.recolour();
    });
  }

  // --- the window ---------------------------------------------------------------------------------------------------

  resize(width, height) {
    const density = Math.min(window.devicePixelRatio || 1, 2);
    this.width = width;
    this.height = height;
    for (const canvas of Object.values(this.layers)) {
      canvas.width = Math.max(1, Math.round(width * density));
      canvas.height = Math.max(1, Math.round(height * density));
    }
    this.density = density;
    this.redraw();
  }

  /** CSS pixels in a unit of the disc. */
  get scale() {
    return (this.zoom * REST * Math.min(this.width, this.height)) / 2 / this.extent;
  }

  /** The place of the disc at a pixel, and the pixel of a place. */
  fromPixel([x, y]) {
    const z = [(x - this.width / 2) / this.scale, (this.height / 2 - y) / this.scale];
    return this.geometry.inside(z, 1 / this.scale);
  }

  toPixel([x, y]) {
    return [this.width / 2 + x * this.scale, this.height / 2 - y * this.scale];
  }

  /** The pixel of a point. */
  pixelOf(i, pole = this.geometry.pole(this.camera)) {
    return this.toPixel(place(this.geometry, pole, this.store.radius[i], this.store.turn[i]));
  }

  // --- the camera ---------------------------------------------------------------------------------------------------

  look(camera, zoom = this.zoom) {
    this.camera = camera;
    this.zoom = Math.min(this.geometry.flat ? 1e4 : 500, Math.max(0.5, zoom));
    this.moving = true;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      this.moving = false;
      if (this.painter.drawn < this.store.count) this.redraw();
    }, 300);
    this.redraw();
  }

  /** Move so that what was at the pixel `from` when the camera was `camera` comes to the pixel `to`. */
  drag(camera, from, to) {
    const move = this.geometry.transvection(this.fromPixel(from), this.fromPixel(to));
    this.look(this.geometry.compose(move, camera));
  }

  /** Zoom by a factor; what is at the pixel stays there. */
  zoomAt(pixel, factor) {
    const before = this.fromPixel(pixel);
    this.look(this.camera, this.zoom * factor);
    const move = this.geometry.transvection(before, this.fromPixel(pixel));
    this.look(this.geometry.compose(move, this.camera));
  }

  /** Move by a fraction of the window. */
  pan(right, up) {
    const step = (0.1 * Math.min(this.width, this.height)) / this.scale;
    const centre = this.geometry.inside([right * step, up * step], 0.1);
    this.look(this.geometry.compose(this.geometry.transvection(centre, [0, 0]), this.camera));
  }

  /** Bring a point to the centre along a geodesic. */
  centreOn(i) {
    const pole = this.geometry.pole(this.camera);
    const at = this.geometry.view(pole, this.store.radius[i], this.store.turn[i]);
    const angle = Math.atan2(at[2], at[1]) + TAU * pole.turn + pole.rotation;
    this.glide(angle, this.geometry.distance(at), this.zoom, null);
  }

  /** Back to where the map opened. */
  reset() {
    const home = this.geometry.locate(this.geometry.inverse(this.camera), [0, 0]);
    this.glide(TAU * home.turn, home.radius, 1, this.geometry.identity);
  }

  /** Let the place at that angle and distance come to the centre; at the end take the camera `end`, if there is one. */
  glide(angle, distance, zoom, end) {
    const { camera: begin, zoom: first } = this;
    const rotation = end && !this.geometry.flat ? turnFrom(0, this.geometry.pole(begin).rotation / TAU) * Math.PI : 0;
    this.animate(250 + 150 * Math.min(4, distance), (part) => {
      let camera = this.geometry.compose(this.geometry.shift(angle + Math.PI, part * distance), begin);
      if (rotation) {
        const turn = { a: polar(1, -part * rotation), b: [0, 0] };
        camera = this.geometry.compose(turn, camera);
      }
      this.look(part === 1 && end ? end : camera, first * (zoom / first) ** part);
    });
  }

  animate(duration, step) {
    this.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      step(1);
      return;
    }
    const begun = performance.now();
    const frame = (now) => {
      const part = Math.min(1, Math.max(0, (now - begun) / duration));
      this.motion = part < 1 ? requestAnimationFrame(frame) : 0;
      step(part * part * (3 - 2 * part));
    };
    this.motion = requestAnimationFrame(frame);
  }

  stop() {
    cancelAnimationFrame(this.motion);
    this.motion = 0;
  }

  // --- colours ------------------------------------------------------------------------------------------------------

  setTheme(name, drawn = true) {
    this.theme = { name, ...THEMES[name], ...this.store.facts.colours[name] };
    if (drawn) this.recolour();
  }

  /** Colour by a column, or alike where there is none. */
  async colourBy(column) {
    this.column = column;
    this.entries = column ? await column.entries() : new Uint8Array(this.store.count);
    this.hidden.fill(0);
    this.painter.setLooks(this.entries, this.selected);
    this.recolour();
  }

  /** The colour of an entry of the legend. */
  colour(entry) {
    const { column, theme } = this;
    if (!column) return theme.palette[0];
    if (column.kind === "numbers") return entry ? theme.scale[entry - 1] : theme.grey;
    return entry < column.shown.length ? theme.palette[entry] : theme.grey;
  }

  /** Send the colours again, after a change of theme or filter. */
  recolour() {
    const colours = new Uint8Array(4 * 256);
    for (let entry = 0; entry < 256; entry++) {
      const parts = rgb(this.colour(entry) ?? this.theme.grey);
      for (let k = 0; k < 3; k++) colours[4 * entry + k] = Math.round(255 * parts[k]);
      colours[4 * entry + 3] = this.hidden[entry] ? 0 : 255;
    }
    this.painter.setPalette(colours);
    this.redraw();
  }

  visible(i) {
    return !this.hidden[this.entries[i]];
  }

  /** Whether a point does not lie on the far side of a globe. */
  inFront(i, pole) {
    const { geometry, store } = this;
    return !geometry.globe || geometry.view(pole, store.radius[i], store.turn[i])[0] >= 0;
  }

  // --- points -------------------------------------------------------------------------------------------------------

  /** The point nearest to a pixel, −1 where none is near. */
  nearest(pixel) {
    const { geometry, store } = this;
    const z = this.fromPixel(pixel);
    const size = Math.min(FARTHEST, (1.3 * PICK * geometry.stretch(z)) / this.scale);
    const pole = geometry.pole(this.camera);
    let found = -1;
    let least = PICK;
    store.around(geometry, geometry.locate(this.camera, z), geometry.flat ? size : Math.max(size, 1e-9), (i) => {
      const at = this.pixelOf(i, pole);
      // New rows are larger and lie on top.
      const distance = Math.hypot(at[0] - pixel[0], at[1] - pixel[1]) * (store.fresh?.[i] ? 0.5 : 1);
      if (distance < least && this.visible(i) && this.inFront(i, pole)) [found, least] = [i, distance];
    });
    return found;
  }

  /** Select the visible points inside a polygon of pixels. */
  select(polygon) {
    const { store } = this;
    const pole = this.geometry.pole(this.camera);
    const xs = polygon.map((corner) => corner[0]);
    const ys = polygon.map((corner) => corner[1]);
    const box = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const selected = new Uint8Array(store.count);
    let count = 0;
    for (let i = 0; i < store.count; i++) {
      if (!this.visible(i) || !this.inFront(i, pole)) continue;
      const [x, y] = this.pixelOf(i, pole);
      if (x < box[0] || x > box[1] || y < box[2] || y > box[3] || !within(polygon, x, y)) continue;
      selected[i] = 1;
      count++;
    }
    this.setSelection(count ? selected : null, count);
  }

  setSelection(selected, count = 0) {
    this.selected = selected;
    this.selectedCount = count;
    this.painter.setLooks(this.entries, selected);
    this.redraw();
    for (const listener of this.listeners) listener();
  }

  /** The selected points as a table; its coordinates are those of the Poincaré disc, as in embedding.csv, or on a globe
   * unit vectors, the third towards who opens the page. */
  async csv() {
    const { store, geometry } = this;
    const { ids } = store.facts;
    await store.names();
    const { columns } = store;
    for (const column of columns) await column.load();
    const { fresh } = store;
    const lines = [[...(ids ? ["id"] : []), ...(fresh ? ["new"] : []), ...columns.map((column) => column.name), "x", "y", geometry.globe ? "z" : "radius"]];
    for (let i = 0; i < store.count; i++) {
      if (!this.selected?.[i]) continue;
      const radius = store.radius[i];
      const at = polar(geometry.globe ? Math.sin(radius) : geometry.toDisc(radius) / this.unit, TAU * store.turn[i]);
      const name = ids ? [ids === "numbers" ? String(i) : store.name(i)] : [];
      const numbers = [...at, geometry.globe ? Math.cos(radius) : radius / this.unit].map((value) => String(Number(value.toPrecision(9))));
      const isNew = fresh ? [fresh[i] ? "yes" : "no"] : [];
      lines.push([...name, ...isNew, ...columns.map((column) => column.text(i)), ...numbers]);
    }
    return lines.map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  /** Draw at the next frame, once however often it is asked for. */
  redraw() {
    if (this.pending || !this.width) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  draw() {
    this.drawUnder();
    const { scale, zoom, width, height, theme } = this;
    const most = this.moving ? this.affordable() : Infinity;
    this.painter.draw(this.camera, { scale, zoom, width, height, theme, most, ...this.show });
    this.drawOver();
    this.afterDraw?.();
  }

  /** How many points can be drawn without delay while the map moves, by how long it took until the frames were shown. */
  affordable() {
    if (this.store.count <= LEAST) return Infinity;
    this.most ??= this.store.count;
    const begun = performance.now();
    requestAnimationFrame(() => {
      const took = performance.now() - begun;
      if (took > SLOW) this.most = Math.max(LEAST, Math.round(this.most * Math.max(0.2, SLOW / took)));
    });
    return this.most;
  }

  brush(canvas) {
    const brush = canvas.getContext("2d");
    brush.setTransform(this.density, 0, 0, this.density, 0, 0);
    brush.clearRect(0, 0, this.width, this.height);
    return brush;
  }

  circle(brush, centre, radius) {
    const [x, y] = this.toPixel(centre);
    brush.beginPath();
    brush.arc(x, y, Math.max(0, radius * this.scale), 0, TAU);
  }

  drawUnder() {
    const { geometry, theme } = this;
    const brush = this.brush(this.layers.under);
    if (geometry.flat) {
      brush.fillStyle = theme.face;
      brush.fillRect(0, 0, this.width, this.height);
    } else {
      this.circle(brush, [0, 0], 1);
      brush.fillStyle = theme.face;
      brush.fill();
    }
    if (this.show.grid && geometry.globe) this.drawGraticule(brush);
    else if (this.show.grid) this.drawGrid(brush);
    if (this.store.facts.outline !== null) {
      this.circle(brush, [0, 0], this.store.facts.outline);
      brush.lineWidth = 1;
      brush.strokeStyle = theme.rim;
      brush.stroke();
    }
  }

  /** Twelve meridians and five parallels of a globe, whose poles are above and below before it is turned. */
  drawGraticule(brush) {
    const { geometry, theme } = this;
    const pole = geometry.pole(this.camera);
    const line = (along) => {
      let before = null;
      for (let piece = 0; piece <= 72; piece++) {
        const { radius, turn } = onGlobe(along((TAU * piece) / 72));
        const pixel = this.toPixel(place(geometry, pole, radius, turn));
        brush.globalAlpha = geometry.view(pole, radius, turn)[0] < 0 ? 0.12 : 0.45;
        brush.beginPath();
        if (before) brush.moveTo(...before);
        brush.lineTo(...pixel);
        brush.stroke();
        before = pixel;
      }
    };
    brush.lineWidth = 1;
    brush.strokeStyle = theme.rim;
    for (let k = 0; k < 6; k++) {
      const [east, north] = polar(1, (TAU * k) / 12);
      line((angle) => [Math.cos(angle) * east, Math.sin(angle), Math.cos(angle) * north]);
    }
    for (let k = -2; k <= 2; k++) {
      const [across, height] = polar(1, (TAU * k) / 12);
      line((angle) => [across * Math.cos(angle), height, across * Math.sin(angle)]);
    }
    brush.globalAlpha = 1;
  }

  /** Circles around the origin at even distances, and twelve rays. */
  drawGrid(brush) {
    const { geometry, theme, store } = this;
    const origin = geometry.apply(this.camera, [0, 0]);
    const reach = store.reach;
    const step = evenStep(reach / this.unit / 5) * this.unit;
    brush.lineWidth = 1;
    brush.strokeStyle = theme.grid;
    const last = Math.floor(reach / step);
    const far = geometry.flat ? 10 * reach : reach + step;
    for (let k = 1; k <= last; k++) {
      const { centre, radius } = geometry.circle(origin, k * step);
      this.circle(brush, centre, radius);
      brush.stroke();
    }
    for (let k = 0; k < 12; k++) {
      brush.beginPath();
      for (let piece = 0; piece <= 40; piece++) {
        const z = polar(geometry.toDisc(step + ((far - step) * piece) / 40), (TAU * k) / 12);
        brush.lineTo(...this.toPixel(geometry.apply(this.camera, z)));
      }
      brush.stroke();
    }
    brush.fillStyle = theme.rim;
    brush.beginPath();
    brush.arc(...this.toPixel(origin), 2, 0, TAU);
    brush.fill();
    brush.fillStyle = theme.text;
    brush.font = "10px system-ui, sans-serif";
    brush.textAlign = "center";
    const labelled = [-Infinity, 0];
    for (let k = 1; k <= last; k++) {
      const z = geometry.apply(this.camera, polar(geometry.toDisc(k * step), TAU / 24));
      const [x, y] = this.toPixel(z);
      if (Math.hypot(x - labelled[0], y - labelled[1]) < 24) continue;
      [labelled[0], labelled[1]] = [x, y];
      brush.fillText(figures((k * step) / this.unit), x, y + 3);
    }
  }

  drawOver() {
    const { theme } = this;
    const brush = this.brush(this.layers.over);
    const pole = this.geometry.pole(this.camera);
    for (const [i, radius] of [[this.hovered, 7], [this.marked, 9]]) {
      if (i < 0) continue;
      brush.beginPath();
      brush.arc(...this.pixelOf(i, pole), radius, 0, TAU);
      brush.lineWidth = 3.5;
      brush.strokeStyle = theme.face;
      brush.stroke();
      brush.lineWidth = 1.5;
      brush.strokeStyle = theme.ink;
      brush.stroke();
    }
    if (!this.lasso) return;
    brush.beginPath();
    for (const corner of this.lasso) brush.lineTo(...corner);
    brush.closePath();
    brush.fillStyle = `${theme.ink}14`;
    brush.fill();
    brush.lineWidth = 1;
    brush.setLineDash([4, 3]);
    brush.strokeStyle = theme.ink;
    brush.stroke();
    brush.setLineDash([]);
  }
}

/** The smallest of 1, 2, 5, 10, … (and of these over powers of ten) that is not smaller. */
function evenStep(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return power * [1, 2, 5, 10].find((digit) => digit * power >= least * 0.999);
}

/** Whether a polygon holds a point, by the number of sides that a ray from it crosses. */
function within(polygon, x, y) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [ax, ay] = polygon[i];
    const [bx, by] = polygon[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
