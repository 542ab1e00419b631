// Drawing with WebGL: points, geodesics and discs of uncertainty, from textures that are sent once. A movement of the
// camera changes a few numbers (`Painter.draw`) and nothing else.

/** A dot among so many: its diameter relative to a picture of width 1, and its opacity; as in plotting/maps.py. */
const marker = (count) => [
  (0.9 * Math.sqrt(26 * Math.min(1, Math.sqrt(100 / count)))) / 288,
  0.9 * Math.min(1, (300 / count) ** 0.15),
];

/** The numbers 0 … count−1 in an order that hides no group behind another, the same at every visit. */
function shuffled(count) {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  let state = 1;
  for (let i = count - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** A colour "#rrggbb" as numbers from 0 to 1. */
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16) / 255);

class Painter {
  constructor(canvas, store, geometry) {
    this.canvas = canvas;
    this.store = store;
    this.geometry = geometry;
    this.uploads = 0;
    this.draws = 0;
    const options = { alpha: true, antialias: false, depth: false, premultipliedAlpha: true };
    this.gl = canvas.getContext("webgl2", options);
    if (!this.gl) throw new Error("WebGL 2 is not available");
    this.prepare();
  }

  /** Compile, and send the points; again after the device has lost them. */
  prepare() {
    const { gl, store } = this;
    this.points = this.program(POINT_SHADER, POINT_COLOUR);
    this.lines = store.edges && this.program(EDGE_SHADER, EDGE_COLOUR);
    this.halos = store.sigma && this.program(HALO_SHADER, HALO_COLOUR);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);

    const total = store.turn.length;
    const texels = new Uint32Array(4 * WIDTH * Math.ceil(total / WIDTH));
    const floats = new Float32Array(texels.buffer);
    for (let i = 0; i < total; i++) {
      const high = Math.floor(store.turn[i] * 2 ** 32);
      texels[4 * i] = high;
      texels[4 * i + 1] = Math.floor((store.turn[i] * 2 ** 32 - high) * 2 ** 32);
      texels[4 * i + 2] = store.steps[i];
      floats[4 * i + 3] = store.sigma && i < store.count ? store.sigma[i] : 0;
    }
    this.texture(0);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32UI, WIDTH, texels.length / 4 / WIDTH, 0, gl.RGBA_INTEGER, gl.UNSIGNED_INT, texels);
    this.looks = new Uint8Array(2 * WIDTH * Math.ceil(store.count / WIDTH));
    this.texture(1);
    this.texture(2);

    const nodes = Uint32Array.from({ length: total - store.count }, (_, k) => store.count + k);
    const order = shuffled(store.count);
    this.order = this.attributes(order.filter((i) => !store.fresh?.[i]), 1, 0);
    this.fresh = store.fresh && this.attributes(order.filter((i) => store.fresh[i]), 1, 0);
    this.nodes = nodes.length && this.attributes(nodes, 1, 0);
    if (this.halos) this.instances = this.attributes(Uint32Array.from({ length: store.count }, (_, i) => i), 1, 1);
    if (this.lines) {
      const [from, to] = store.edges;
      const ends = new Uint32Array(2 * from.length);
      for (let k = 0; k < from.length; k++) [ends[2 * k], ends[2 * k + 1]] = [from[k], to[k]];
      this.ends = this.attributes(ends, 2, 1);
    }
    this.uploads++;
  }

  program(vertex, fragment) {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
        throw new Error(`the graphics card refuses the program (${gl.getShaderInfoLog(shader)})`);
      }
    }
    gl.linkProgram(program);
    const names = gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS) || 0;
    const places = {};
    for (let k = 0; k < names; k++) {
      const { name } = gl.getActiveUniform(program, k);
      places[name] = gl.getUniformLocation(program, name);
    }
    return { program, places };
  }

  texture(unit) {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
  }

  attributes(values, size, divisor) {
    const { gl } = this;
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribIPointer(0, size, gl.UNSIGNED_INT, 0, 0);
    gl.vertexAttribDivisor(0, divisor);
    return { array, length: values.length / size };
  }

  /** Send the entry of the legend of each point, its size, and in the lowest bit of that whether it is selected. */
  setLooks(entries, selected) {
    const { gl, looks } = this;
    const { sizes } = this.store;
    for (let i = 0; i < this.store.count; i++) {
      looks[2 * i] = entries[i];
      looks[2 * i + 1] = 2 * (sizes ? sizes[i] : 0) + (selected ? selected[i] : 0);
    }
    gl.activeTexture(gl.TEXTURE1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RG8UI, WIDTH, looks.length / 2 / WIDTH, 0, gl.RG_INTEGER, gl.UNSIGNED_BYTE, looks);
    this.selecting = Boolean(selected);
    this.uploads++;
  }

  /** Send the colours of the entries, four bytes each; a filter makes some of them transparent. */
  setPalette(colours) {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE2);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, colours);
  }

  use({ program, places }, pole, scale, width, height) {
    const { gl, store } = this;
    const step = store.facts.radius.step;
    const whole = Math.floor(pole.radius / step);
    const high = Math.floor(pole.turn * 2 ** 32);
    const angle = TAU * pole.turn + pole.rotation;
    gl.useProgram(program);
    gl.uniform1i(places.u_points, 0);
    gl.uniform1i(places.u_style, 1);
    gl.uniform1i(places.u_palette, 2);
    gl.uniform1i(places.u_flat, this.geometry.flat);
    gl.uniform1i(places.u_globe, Boolean(this.geometry.globe));
    gl.uniform2ui(places.u_turn, high, Math.floor((pole.turn * 2 ** 32 - high) * 2 ** 32));
    gl.uniform1ui(places.u_whole, whole);
    gl.uniform3f(places.u_pole, pole.radius / step - whole, step, pole.radius);
    gl.uniform2f(places.u_rotation, Math.cos(angle), Math.sin(angle));
    gl.uniform2f(places.u_scale, (2 * scale) / width, (2 * scale) / height);
    gl.uniform2f(places.u_pixel, 2 / width, 2 / height);
    gl.uniform1i(places.u_count, store.count);
    gl.uniform1i(places.u_selecting, this.selecting);
    return places;
  }

  /** Draw everything as the camera sees it, the disc `scale` CSS pixels in radius; of the points at most so many. */
  draw(camera, { scale, zoom, width, height, theme, most, halos, edges }) {
    const { gl, canvas, store } = this;
    const density = canvas.width / width;
    const pole = this.geometry.pole(camera);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (halos && this.halos) {
      const places = this.use(this.halos, pole, scale, width, height);
      gl.uniform1f(places.u_opacity, Math.min(0.6, 0.24 + 20 / store.count));
      gl.bindVertexArray(this.instances.array);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, this.instances.length);
    }
    if (edges && this.lines) {
      const places = this.use(this.lines, pole, scale, width, height);
      gl.uniform4f(places.u_colour, ...rgb(theme.edge), Math.min(0.9, 0.25 + 40 / this.ends.length));
      gl.uniform1f(places.u_width, this.ends.length > 2000 ? 0.7 : 1.1);
      gl.bindVertexArray(this.ends.array);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 2 * (PIECES + 1), this.ends.length);
    }
    const [size, opacity] = marker(store.count);
    const grown = Math.min(2.5, Math.max(1, zoom) ** 0.3);
    const diameter = Math.max(1.5, size * Math.min(width, height) * grown) * density;
    const places = this.use(this.points, pole, scale, width, height);
    gl.uniform1i(places.u_sized, Boolean(store.sizes));
    if (this.nodes) {
      gl.uniform1f(places.u_size, Math.max(3.4, 0.0085 * Math.min(width, height) * grown) * density);
      gl.uniform1f(places.u_opacity, 1);
      gl.uniform1i(places.u_nodes, 1);
      gl.uniform4f(places.u_face, ...rgb(theme.face), 1);
      gl.uniform4f(places.u_outline, ...rgb(theme.ink), 1);
      gl.uniform1f(places.u_line, 0.8 * density);
      gl.bindVertexArray(this.nodes.array);
      gl.drawArrays(gl.POINTS, 0, this.nodes.length);
    }
    gl.uniform1f(places.u_size, diameter);
    gl.uniform1f(places.u_opacity, this.fresh ? 0.5 * opacity : opacity); // as in plotting/maps.py
    gl.uniform1i(places.u_nodes, 0);
    gl.uniform4f(places.u_outline, ...rgb(theme.face), diameter > 7 * density ? 1 : 0);
    gl.uniform1f(places.u_line, 0.7 * density);
    gl.bindVertexArray(this.order.array);
    // The order is random, so that the first of them show the same picture, only thinner.
    this.drawn = Math.min(most, this.order.length);
    for (const side of this.geometry.globe ? [-1, 1] : [0]) {
      gl.uniform1i(places.u_side, side);
      gl.drawArrays(gl.POINTS, 0, this.drawn);
    }
    gl.uniform1i(places.u_side, 0);
    if (this.fresh) {
      gl.uniform1f(places.u_size, Math.max(11 * density, 1.5 * diameter));
      gl.uniform1f(places.u_opacity, 1);
      gl.uniform4f(places.u_outline, ...rgb(theme.ink), 1);
      gl.uniform1f(places.u_line, 1.6 * density);
      gl.bindVertexArray(this.fresh.array);
      gl.drawArrays(gl.POINTS, 0, this.fresh.length);
      this.drawn += this.fresh.length;
    }
    this.draws++;
  }
}
