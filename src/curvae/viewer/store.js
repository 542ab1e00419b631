// What the page carries: compressed blocks of numbers and names, and how to find the point under the pointer.

const BANDS = 64; // rings of equal width into which the points are sorted

class Store {
  constructor(root) {
    this.root = root;
    this.facts = JSON.parse(root.querySelector("script.facts").textContent);
    this.count = this.facts.count;
  }

  /** The bytes of a block. */
  async bytes(name) {
    const text = atob(this.root.querySelector(`script[data-block="${name}"]`).textContent);
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** A block of whole numbers, stored as all their lowest bytes, then all their second lowest, and so on. */
  async numbers(name, Kind = Uint32Array) {
    const bytes = await this.bytes(name);
    const { length, width } = this.facts.blocks[name];
    const values = new Kind(length);
    for (let k = width - 1, start = k * length; k >= 0; k--, start -= length) {
      for (let i = 0; i < length; i++) values[i] = values[i] * 256 + bytes[start + i];
    }
    return values;
  }

  async load() {
    const { turn, radius, sigma } = this.facts;
    this.steps = await this.numbers("radius");
    this.turn = await this.numbers("turn", Float64Array);
    this.turn.forEach((value, i) => (this.turn[i] = value / 2 ** turn.bits));
    this.radius = Float64Array.from(this.steps, (value) => value * radius.step);
    if (sigma) {
      const levels = await this.numbers("sigma");
      this.sigma = Float32Array.from(levels, (level) => Math.exp(sigma.low + sigma.step * level));
    }
    this.sizes = this.facts.sizes ? await this.numbers("size", Uint8Array) : null;
    this.fresh = this.facts.new ? await this.numbers("new", Uint8Array) : null; // 1 for new rows
    this.edges = this.facts.edges ? [await this.numbers("edge_from"), await this.numbers("edge_to")] : null;
    this.columns = this.facts.columns.map((facts, k) => new Column(this, facts, `column${k}`));
    const numbers = (block) => new Column(this, { kind: "numbers" }, block);
    this.expected = this.facts.expected.map((facts, k) => ({ ...facts, mean: numbers(`expected${k}`), deviation: numbers(`deviation${k}`) }));
    this.sortIntoCells();
  }

  /** Names of the rows: a list, or null where they are numbered or unknown. */
  async names() {
    if (this.facts.ids === "names" && !this.ids) {
      this.ids = new TextDecoder().decode(await this.bytes("ids")).split("\n");
    }
    return this.ids ?? null;
  }

  name(i) {
    if (this.facts.ids === "numbers") return `row ${i}`;
    return this.ids ? this.ids[i] : null;
  }

  /** The name of a point as it is shown; null where it has none. */
  title(i) {
    const name = this.name(i);
    if (!this.fresh?.[i]) return name;
    return name === null ? "new row" : `${name} (new row)`;
  }

  /** Sort the points into rings, and each ring into cells of equal angle with a few points each. */
  sortIntoCells() {
    const { count, turn, radius } = this;
    let most = 1e-300;
    for (let i = 0; i < count; i++) most = Math.max(most, radius[i]);
    this.reach = most;
    const band = (i) => Math.min(BANDS - 1, Math.floor((BANDS * radius[i]) / most));
    const held = new Uint32Array(BANDS);
    for (let i = 0; i < count; i++) held[band(i)]++;
    this.cells = Uint32Array.from(held, (points) => 1 + (points >> 2));
    this.first = new Uint32Array(BANDS);
    for (let b = 1; b < BANDS; b++) this.first[b] = this.first[b - 1] + this.cells[b - 1];
    const cell = (i) => this.first[band(i)] + Math.floor(turn[i] * this.cells[band(i)]);
    this.start = new Uint32Array(this.first[BANDS - 1] + this.cells[BANDS - 1] + 1);
    for (let i = 0; i < count; i++) this.start[cell(i) + 1]++;
    for (let k = 1; k < this.start.length; k++) this.start[k] += this.start[k - 1];
    const next = this.start.slice();
    this.sorted = new Uint32Array(count);
    for (let i = 0; i < count; i++) this.sorted[next[cell(i)]++] = i;
  }

  /** Call `visit` with every point within `size` of a place (and with some that lie a little farther). */
  around(geometry, { radius, turn }, size, visit) {
    const low = Math.floor((BANDS * (radius - size)) / this.reach);
    const high = Math.floor((BANDS * (radius + size)) / this.reach);
    const half = geometry.aperture(size, radius);
    for (let b = Math.max(0, low); b <= Math.min(BANDS - 1, high); b++) {
      const cells = this.cells[b];
      const from = Math.floor((turn - half) * cells);
      const to = Math.min(Math.floor((turn + half) * cells), from + cells - 1);
      for (let k = from; k <= to; k++) {
        const cell = this.first[b] + (((k % cells) + cells) % cells);
        for (let place = this.start[cell]; place < this.start[cell + 1]; place++) visit(this.sorted[place]);
      }
    }
  }
}

/** A number for people, without digits that mean nothing. */
const figures = (value, digits = 4) => (Number.isFinite(value) ? String(Number(value.toPrecision(digits))) : "–");

/** A column to colour by: categories with names, or numbers on a scale. */
class Column {
  constructor(store, facts, block) {
    Object.assign(this, facts);
    this.store = store;
    this.block = block;
    this.width = store.facts.blocks[block].width;
  }

  /** Codes of categories, 0 for none; or numbers, of which the highest bytes of float32 are stored. */
  async load() {
    if (this.values) return;
    const values = await this.store.numbers(this.block);
    if (this.kind === "levels") {
      this.values = values;
      return;
    }
    for (let i = 0; i < values.length; i++) values[i] <<= 8 * (4 - this.width);
    this.values = new Float32Array(values.buffer);
  }

  /** The entry of the legend that each point belongs to: of a scale from 1 to 255, and 0 without a value. */
  async entries() {
    await this.load();
    if (this.kind === "numbers") {
      const scale = 254 / (this.high - this.low || 1);
      const entry = (value) => (Number.isNaN(value) ? 0 : 1 + Math.min(254, Math.max(0, Math.round(scale * (value - this.low)))));
      return Uint8Array.from(this.values, entry);
    }
    const { shown, texts } = this;
    const entry = new Uint8Array(texts.length + 1).fill(shown.length);
    entry[0] = shown.length + 1;
    shown.forEach((code, k) => (entry[code + 1] = k));
    return Uint8Array.from(this.values, (value) => entry[value]);
  }

  text(i) {
    if (this.kind === "numbers") return Number.isNaN(this.values[i]) ? "" : figures(this.values[i], this.width + 3);
    return this.values[i] ? this.texts[this.values[i] - 1] : "";
  }

  /** Names and numbers of points of the entries of the legend, as far as there are any. */
  legend(entries) {
    const held = new Uint32Array(256);
    for (let i = 0; i < entries.length; i++) held[entries[i]]++;
    const rows = this.shown.map((code, k) => ({ name: this.texts[code], entry: k }));
    const others = this.texts.length - this.shown.length;
    if (others) rows.push({ name: `other (${others})`, entry: rows.length });
    if (held[this.shown.length + 1]) rows.push({ name: "no label", entry: this.shown.length + 1 });
    return rows.map((row) => ({ ...row, count: held[row.entry] }));
  }
}
