// What surrounds a map: legend, search, selection, switches, keys. All text of the data is set as text, never as markup.

/** An element with attributes, listeners (on…) and children; texts become text nodes. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const grouped = (count) => count.toLocaleString("en");

const KEYS = [
  ["drag", "move"],
  ["wheel, + −", "zoom"],
  ["click", "centre on a point"],
  ["shift-drag", "select"],
  ["arrows", "move"],
  ["0, Home", "back to the start"],
  ["/", "search"],
  ["g, u, e", "grid, uncertainty, edges"],
  ["Esc", "clear"],
];

class Panel {
  constructor(root, store, map, stage) {
    this.root = root;
    this.store = store;
    this.map = map;
    this.stage = stage;
    this.whole = root.dataset.mode === "page"; // the map is the whole page, not a part of a report
    this.card = element("div", { class: "card", hidden: true });
    stage.append(this.card);
    this.build();
    this.listen();
    map.listeners.push(() => this.tellSelection());
    this.tellSelection();
    this.followTheme();
  }

  // --- the parts ----------------------------------------------------------------------------------------------------

  build() {
    const { store } = this;
    const { facts } = store;
    this.legend = element("div", { class: "legend" });
    this.selection = element("div", { class: "selection", hidden: true });
    this.change = element("div", { class: "change", hidden: true });
    const parts = [];
    if (this.whole) {
      const about = facts.about.map((text) => element("p", {}, text));
      parts.push(element("header", {}, element("h1", {}, facts.title), ...about));
    }
    if (this.whole && facts.ids) parts.push(this.search());
    if (store.columns.length) parts.push(this.colouring(), this.legend);
    if (store.fresh) parts.push(this.newRows());
    parts.push(this.selection, this.change, this.switches());
    const inside = this.root.querySelector(".inside");
    if (inside) parts.push(inside);
    this.root.append(element("div", { class: "panel" }, ...parts));
  }

  search() {
    const field = element("input", {
      type: "search",
      placeholder: this.store.facts.ids === "numbers" ? "Row number" : "Search by id",
      "aria-label": "Search by id",
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => this.suggest(field.value),
      onkeydown: (event) => {
        if (event.key === "Enter" && this.suggested?.length) this.visit(this.suggested[0]);
        if (event.key === "Escape") {
          field.value = "";
          this.suggest("");
          this.stage.focus();
        }
        event.stopPropagation();
      },
    });
    this.field = field;
    this.found = element("ul", { class: "found" });
    return element("div", { class: "search" }, field, this.found);
  }

  async suggest(text) {
    const { store } = this;
    const found = [];
    if (text) {
      const names = await store.names();
      const wanted = text.toLowerCase();
      const matches = names ? (i) => names[i].toLowerCase().includes(wanted) : (i) => String(i).startsWith(wanted);
      const exact = names ? names.indexOf(text) : Number(text);
      if (Number.isInteger(exact) && exact >= 0 && exact < store.count) found.push(exact);
      for (let i = 0; i < store.count && found.length < 8; i++) if (i !== exact && matches(i)) found.push(i);
    }
    if (this.field.value !== text) return; // typed on meanwhile
    this.suggested = found;
    const rows = found.map((i) => element("li", {}, element("button", { onclick: () => this.visit(i) }, store.title(i))));
    if (text && !found.length) rows.push(element("li", { class: "none" }, "not found"));
    this.found.replaceChildren(...rows);
  }

  visit(i) {
    const { map } = this;
    if (!map.visible(i)) {
      map.hidden.fill(0);
      map.recolour();
      this.tellLegend();
    }
    this.mark(i);
    map.centreOn(i);
    this.tell(i);
  }

  /** Mark a point; after another one, show what changes between the two. */
  mark(i) {
    const { map, store } = this;
    const before = map.marked;
    map.marked = i;
    if (i < 0) this.change.hidden = true;
    else if (before >= 0 && before !== i && store.expected.length) this.tellChange(before, i);
  }

  /** Columns that the model expects to change from a point to another, beside their unit the most; ± holds 90 % of draws. */
  async tellChange(i, j) {
    const { store } = this;
    await store.names();
    for (const { mean, deviation } of store.expected) {
      await mean.load();
      await deviation.load();
    }
    const rows = store.expected.map(({ name, unit, mean, deviation }) => {
      const change = mean.values[j] - mean.values[i];
      const error = 1.645 * Math.hypot(deviation.values[i], deviation.values[j]);
      return { name, change, error, size: Math.abs(change) / unit };
    });
    rows.sort((a, b) => b.size - a.size);
    const signed = (value) => (value < 0 ? "−" : "+") + figures(Math.abs(value), 3);
    const [from, to] = [store.title(i), store.title(j)];
    this.change.replaceChildren(
      element("strong", {}, store.name(i) === null ? "What changes between the points" : `From ${from} to ${to}`),
      ...rows.slice(0, 8).map(({ name, change, error }) =>
        element(
          "div",
          { class: Math.abs(change) > error ? "clear" : "unclear" },
          element("span", { class: "name" }, name),
          element("span", { class: "count" }, `${signed(change)} ± ${figures(error, 2)}`),
        ),
      ),
    );
    this.change.hidden = false;
  }

  colouring() {
    const { columns } = this.store;
    if (columns.length === 1) return element("h2", {}, columns[0].name);
    const choice = element(
      "select",
      { "aria-label": "Colour by", onchange: () => this.colourBy(columns[choice.selectedIndex]) },
      ...columns.map((column) => element("option", {}, column.name)),
    );
    return element("label", { class: "choice" }, "Colour by ", choice);
  }

  async colourBy(column) {
    await this.map.colourBy(column);
    this.tellLegend();
  }

  tellLegend() {
    const { map } = this;
    const { column } = map;
    if (!column) return;
    this.legend.replaceChildren(column.kind === "numbers" ? this.scale(column) : this.names(column));
  }

  /** Names with their colours; a click hides or shows one, a double click all others. */
  names(column) {
    const { map } = this;
    const rows = column.legend(map.entries);
    const press = (entries, hidden) => {
      for (const entry of entries) map.hidden[entry] = hidden(entry) ? 1 : 0;
      map.recolour();
      buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(!map.hidden[rows[k].entry])));
    };
    const all = rows.map((row) => row.entry);
    const buttons = rows.map(({ name, entry, count }) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = map.colour(entry);
      return element(
        "button",
        {
          title: "Click to hide or show, double-click to show alone",
          "aria-pressed": String(!map.hidden[entry]),
          onclick: () => press([entry], () => !map.hidden[entry]),
          ondblclick: () => {
            const alone = all.every((other) => other === entry || map.hidden[other]);
            press(all, (other) => !alone && other !== entry);
          },
        },
        swatch,
        element("span", { class: "name" }, name || "(empty)"),
        element("span", { class: "count" }, grouped(count)),
      );
    });
    return element("div", { class: "names" }, ...buttons);
  }

  /** How new rows are marked, and how many there are; a click selects them. */
  newRows() {
    const { map, store } = this;
    const { new: count } = store.facts;
    return element(
      "div",
      { class: "names" },
      element(
        "button",
        { title: "Click to select", onclick: () => map.setSelection(store.fresh, count) },
        element("span", { class: "swatch ring" }),
        element("span", { class: "name" }, "new rows"),
        element("span", { class: "count" }, grouped(count)),
      ),
    );
  }

  /** A scale of colours with two handles; points outside them, and those without a value, are hidden. */
  scale(column) {
    const { map } = this;
    const bar = element("div", { class: "bar" });
    bar.style.background = `linear-gradient(to right, ${map.theme.scale.filter((_, k) => k % 6 === 0).join(", ")})`;
    const value = (entry) => column.low + ((column.high - column.low) * (entry - 1)) / 254;
    const low = element("output", { class: "low" });
    const high = element("output", { class: "high" });
    const open = Math.max(1, map.hidden.indexOf(0, 1));
    const ends = [open, Math.max(open, map.hidden.lastIndexOf(0))]; // of a filter set before
    const handles = ends.map((at, k) =>
      element("input", { type: "range", min: 1, max: 255, value: at, "aria-label": k ? "highest" : "lowest", oninput: () => filter() }),
    );
    const filter = () => {
      const [from, to] = handles.map((handle) => Number(handle.value)).sort((a, b) => a - b);
      low.value = figures(value(from));
      high.value = figures(value(to));
      const all = from === 1 && to === 255;
      for (let entry = 0; entry < 256; entry++) map.hidden[entry] = all || (entry >= from && entry <= to) ? 0 : 1;
      map.recolour();
    };
    filter();
    return element("div", { class: "scale" }, bar, ...handles, element("div", { class: "ends" }, low, high));
  }

  switches() {
    const { map, store } = this;
    const kinds = [["grid", "Grid", "g", true], ["halos", "Uncertainty (1σ)", "u", store.sigma], ["edges", "Edges", "e", store.edges]];
    this.toggles = {};
    const boxes = kinds
      .filter(([, , , there]) => there)
      .map(([name, text, key]) => {
        const box = element("input", {
          type: "checkbox",
          onchange: () => {
            map.show[name] = box.checked;
            map.redraw();
          },
        });
        box.checked = map.show[name];
        this.toggles[key] = box;
        return element("label", { title: `Key ${key}` }, box, text);
      });
    const theme = this.whole
      ? element("button", { class: "theme", onclick: () => this.setTheme(map.theme.name === "dark" ? "light" : "dark") }, "Dark / light")
      : null;
    const two = store.expected.length ? [["click two", "what changes"]] : [];
    const keys = [...KEYS, ...two].map(([key, what]) => element("div", {}, element("kbd", {}, key), element("span", {}, what)));
    const help = element("details", { class: "keys" }, element("summary", {}, "Mouse and keys"), ...keys);
    return element("div", { class: "switches" }, ...boxes, theme, help);
  }

  tellSelection() {
    const { map } = this;
    this.selection.hidden = !map.selected;
    if (!map.selected) return;
    this.selection.replaceChildren(
      element("span", {}, `${grouped(map.selectedCount)} selected`),
      element("button", { class: "export", onclick: () => this.download() }, "Save as CSV"),
      element("button", { onclick: () => map.setSelection(null) }, "Clear"),
    );
  }

  async download() {
    const address = URL.createObjectURL(new Blob([await this.map.csv()], { type: "text/csv" }));
    element("a", { href: address, download: "selection.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // --- the card of a point ------------------------------------------------------------------------------------------

  /** Show what is known of a point beside it; −1 shows nothing. */
  async tell(i) {
    const { card, store, map } = this;
    this.told = i;
    card.hidden = true;
    if (i < 0) return;
    await store.names();
    for (const column of store.columns) await column.load();
    if (this.told !== i) return;
    const rows = [];
    const name = store.title(i);
    if (name !== null) rows.push(element("strong", {}, name));
    for (const column of store.columns) {
      const text = column.text(i);
      if (text === "") continue;
      const swatch = column === map.column ? element("span", { class: "swatch" }) : null;
      if (swatch) swatch.style.background = map.colour(map.entries[i]);
      const label = store.columns.length > 1 ? element("span", { class: "what" }, `${column.name} `) : null;
      rows.push(element("div", {}, swatch, label, text));
    }
    const sigma = store.sigma ? `, σ ${figures(store.sigma[i] / map.unit, 3)}` : "";
    const radius = map.geometry.globe ? "" : `radius ${figures(store.radius[i] / map.unit, 3)}`;
    rows.push(element("div", { class: "what" }, radius ? radius + sigma : sigma.slice(2)));
    const picture = this.thumbnail(i);
    card.replaceChildren(...(picture ? [picture] : []), element("div", {}, ...rows));
    card.hidden = false;
    this.moveCard();
  }

  moveCard() {
    if (this.card.hidden || !(this.told >= 0)) return;
    const [x, y] = this.map.pixelOf(this.told);
    const { offsetWidth: width, offsetHeight: height } = this.card;
    const left = x + 14 + width > this.map.width ? x - 14 - width : x + 14;
    const top = Math.min(Math.max(4, y - height / 2), this.map.height - height - 4);
    this.card.style.transform = `translate(${Math.round(Math.max(4, left))}px, ${Math.round(top)}px)`;
  }

  /** The image of a row, a part of a sheet that is decoded when first needed. */
  thumbnail(i) {
    const { thumbnails } = this.store.facts;
    if (!thumbnails) return null;
    const { height, width, columns, each } = thumbnails;
    this.sheets ??= [];
    const sheet = Math.floor(i / each);
    this.sheets[sheet] ??= `url(data:image/png;base64,${this.root.querySelector(`script[data-block="sheet${sheet}"]`).textContent})`;
    const grown = Math.max(1, Math.floor(84 / Math.max(height, width)));
    const place = i % each;
    const picture = element("span", { class: "thumbnail" });
    Object.assign(picture.style, {
      width: `${width * grown}px`,
      height: `${height * grown}px`,
      backgroundImage: this.sheets[sheet],
      backgroundSize: `${columns * width * grown}px auto`,
      backgroundPosition: `${-(place % columns) * width * grown}px ${-Math.floor(place / columns) * height * grown}px`,
    });
    return picture;
  }

  // --- light and dark -----------------------------------------------------------------------------------------------

  followTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => this.setTheme(dark.matches ? "dark" : "light"));
  }

  setTheme(name) {
    this.root.dataset.theme = name;
    if (this.whole) document.documentElement.dataset.theme = name;
    this.map.setTheme(name);
    this.tellLegend();
  }

  // --- mouse, fingers and keys --------------------------------------------------------------------------------------

  listen() {
    const { stage, map } = this;
    const pixel = (event) => {
      const box = stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.fingers = new Map();
    stage.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      stage.focus({ preventScroll: true });
      stage.setPointerCapture(event.pointerId);
      map.stop();
      this.fingers.set(event.pointerId, pixel(event));
      this.grip = { camera: map.camera, from: pixel(event), moved: false };
      if (event.shiftKey) map.lasso = [pixel(event)];
      this.hover(-1);
    });
    stage.addEventListener("pointermove", (event) => {
      const at = pixel(event);
      if (!this.fingers.has(event.pointerId)) {
        if (event.pointerType !== "touch") this.hover(map.nearest(at));
        return;
      }
      if (this.fingers.size === 2) this.pinch(event.pointerId, at);
      this.fingers.set(event.pointerId, at);
      if (this.fingers.size > 1 || !this.grip) return;
      this.grip.moved ||= Math.hypot(at[0] - this.grip.from[0], at[1] - this.grip.from[1]) > 4;
      if (!this.grip.moved) return;
      if (map.lasso) {
        map.lasso.push(at);
        map.redraw();
      } else {
        map.drag(this.grip.camera, this.grip.from, at);
        stage.classList.add("dragging");
      }
    });
    const release = (event) => {
      if (!this.fingers.delete(event.pointerId) || this.fingers.size) return;
      stage.classList.remove("dragging");
      const { grip } = this;
      const { lasso } = map;
      [this.grip, map.lasso] = [null, null];
      if (lasso && grip?.moved) map.select(lasso);
      else if (grip && !grip.moved && event.type === "pointerup") this.click(pixel(event));
      map.redraw();
    };
    stage.addEventListener("pointerup", release);
    stage.addEventListener("pointercancel", release);
    stage.addEventListener("pointerleave", () => this.hover(-1));
    stage.addEventListener(
      "wheel",
      (event) => {
        // Inside a report the wheel scrolls the page, unless the map was clicked before.
        if (!this.whole && document.activeElement !== stage) return;
        event.preventDefault();
        map.stop();
        const lines = [1, 30, 300][event.deltaMode];
        map.zoomAt(pixel(event), Math.exp(-0.0016 * lines * Math.max(-300, Math.min(300, event.deltaY))));
      },
      { passive: false },
    );
    (this.whole ? document : stage).addEventListener("keydown", (event) => this.key(event));
    map.afterDraw = () => this.moveCard();
  }

  /** Two fingers: the ratio of their distances zooms around their middle. */
  pinch(moving, at) {
    const [other] = [...this.fingers].filter(([id]) => id !== moving).map(([, place]) => place);
    const before = this.fingers.get(moving);
    const apart = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
    this.map.zoomAt([(at[0] + other[0]) / 2, (at[1] + other[1]) / 2], apart(at) / apart(before));
    this.grip = null;
  }

  hover(i) {
    const { map } = this;
    if (i === map.hovered) return;
    map.hovered = i;
    map.redraw();
    this.stage.classList.toggle("pointing", i >= 0);
    this.tell(i >= 0 ? i : map.marked);
  }

  click(pixel) {
    const { map } = this;
    this.mark(map.nearest(pixel));
    map.hovered = -1;
    if (map.marked >= 0) map.centreOn(map.marked);
    this.tell(map.marked);
  }

  key(event) {
    const { map } = this;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const middle = [map.width / 2, map.height / 2];
    const actions = {
      ArrowLeft: () => map.pan(-1, 0),
      ArrowRight: () => map.pan(1, 0),
      ArrowUp: () => map.pan(0, 1),
      ArrowDown: () => map.pan(0, -1),
      "+": () => map.zoomAt(middle, 1.25),
      "=": () => map.zoomAt(middle, 1.25),
      "-": () => map.zoomAt(middle, 0.8),
      0: () => map.reset(),
      Home: () => map.reset(),
      "/": () => this.field?.focus(),
      Escape: () => {
        this.mark(-1);
        this.tell(-1);
        map.setSelection(null);
      },
    };
    const action = actions[event.key] ?? (this.toggles[event.key] && (() => this.toggles[event.key].click()));
    if (!action) return;
    event.preventDefault();
    if (!event.key.startsWith("Escape")) map.stop();
    action();
  }
}
