// Every map of the page comes to life; where that cannot be, the picture that is already there stays.

async function start(root) {
  if (typeof DecompressionStream === "undefined") throw new Error("the browser is too old");
  const store = new Store(root);
  await store.load();
  const layers = {};
  for (const name of ["under", "points", "over"]) layers[name] = element("canvas", { class: name });
  const { count, title } = store.facts;
  const stage = element(
    "div",
    { class: "stage", tabindex: "0", role: "application", "aria-label": `${title || "Map"}: ${grouped(count)} points` },
    ...Object.values(layers),
  );
  const map = new DiscMap(store, layers);
  await map.colourBy(store.columns[0] ?? null);
  root.prepend(stage);
  if (title && root.dataset.mode === "report") root.prepend(element("div", { class: "title" }, title));
  const panel = new Panel(root, store, map, stage);
  panel.tellLegend();
  root.classList.add("live");
  const fit = () => map.resize(stage.clientWidth, stage.clientHeight);
  new ResizeObserver(fit).observe(stage);
  fit();
  return { map, panel, store };
}

const curvae = { geometry: { hyperbolic, flat, globe, place }, maps: [] };
globalThis.curvae = curvae;
curvae.ready = Promise.all(
  [...document.querySelectorAll(".curvae-map")].map(async (root) => {
    try {
      curvae.maps.push(await start(root));
    } catch (error) {
      console.warn(`the map stays a picture: ${error.message}`);
      root.append(element("p", { class: "sorry" }, `This is a still picture: ${error.message}.`));
    }
  }),
);
