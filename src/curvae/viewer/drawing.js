// Drawing with WebGL: points, geodesics and discs of uncertainty, from textures that are sent once. A movement of the
// camera changes a few numbers (`Painter.draw`) and nothing else.

const WIDTH = 2048; // of the textures that hold the points
const PIECES = 32; // straight pieces of a geodesic

const COMMON = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;

uniform usampler2D u_points;  // turn (64 bits in two parts), radius in steps, deviation as the bits of a float
uniform usampler2D u_style;   // entry of the legend, whether selected
uniform sampler2D u_palette;  // colours of the entries; hidden where alpha is 0
uniform bool u_flat;
uniform uvec2 u_turn;         // of the camera's pole
uniform uint u_whole;         // its radius in whole steps
uniform vec3 u_pole;          // the rest, in steps; the size of a step; the radius
uniform vec2 u_rotation;      // cosine and sine
uniform vec2 u_scale;         // from the disc to clip space
uniform vec2 u_pixel;         // one CSS pixel in clip space
uniform int u_count;          // points; what comes behind them are nodes of a hierarchy

uvec4 point(uint i) { return texelFetch(u_points, ivec2(int(i) % ${WIDTH}, int(i) / ${WIDTH}), 0); }

uvec2 style(uint i) {
  return int(i) < u_count ? texelFetch(u_style, ivec2(int(i) % ${WIDTH}, int(i) / ${WIDTH}), 0).xy : uvec2(0u);
}

bool shown(uint i) { return int(i) >= u_count || texelFetch(u_palette, ivec2(int(style(i).x), 0), 0).a > 0.0; }

// Functions of the library lose all digits of small arguments on some devices.
float sine(float x) { return abs(x) < 0.3 ? x * (1.0 - x * x / 6.0 * (1.0 - x * x / 20.0)) : sin(x); }
float sn(float x) {
  if (u_flat) return x;
  return abs(x) < 0.3 ? x * (1.0 + x * x / 6.0 * (1.0 + x * x / 20.0)) : 0.5 * (exp(x) - exp(-x));
}
float cs(float x) { return u_flat ? 1.0 : 0.5 * (exp(x) + exp(-x)); }

// The angle from one turn to another: 64-bit numbers whose difference is exact and wraps as angles do.
float angle(uvec2 from, uvec2 to) {
  uint low = to.y - from.y;
  uint high = to.x - from.x - (to.y < from.y ? 1u : 0u);
  bool negative = high >= 0x80000000u;
  if (negative) {
    low = ~low + 1u;
    high = ~high + (low == 0u ? 1u : 0u);
  }
  float size = 6.283185307179586 * (float(high) * 2.3283064365386963e-10 + float(low) * 5.421010862427522e-20);
  return negative ? -size : size;
}

// The point seen from the pole, (t, x, y) on the hyperboloid: see geometry.js, view.
vec3 place(uvec4 p) {
  float delta = angle(u_turn, p.xy);
  float nearer = (float(int(p.z - u_whole)) - u_pole.x) * u_pole.y;
  float size = sn(float(p.z) * u_pole.y);
  float h = sine(0.5 * delta);
  float twice = 2.0 * size * h * h;
  float t = u_flat ? 1.0 : cs(nearer) + sn(u_pole.z) * twice;
  vec2 at = vec2(sn(nearer) - cs(u_pole.z) * twice, size * sine(delta));
  return vec3(t, at.x * u_rotation.x - at.y * u_rotation.y, at.x * u_rotation.y + at.y * u_rotation.x);
}

vec2 disc(vec3 at) { return at.yz / (1.0 + at.x); }

const vec4 NOWHERE = vec4(2.0, 2.0, 2.0, 1.0);
`;

const POINT_SHADER = `${COMMON}
layout(location = 0) in uint a_index;
uniform float u_size;         // diameter in device pixels
uniform float u_opacity;
uniform bool u_selecting;     // those not selected are faint
uniform bool u_nodes;
uniform vec4 u_face;          // of nodes
flat out vec4 v_colour;
out float v_size;

void main() {
  vec3 at = place(point(a_index));
  uvec2 look = style(a_index);
  v_colour = u_nodes ? u_face : texelFetch(u_palette, ivec2(int(look.x), 0), 0);
  bool faint = u_selecting && look.y == 0u && !u_nodes;
  v_colour.a *= u_opacity * (faint ? 0.12 : 1.0);
  v_size = u_size * (u_flat ? 1.0 : 0.7 + 0.6 / (1.0 + at.x));
  gl_PointSize = v_size + 1.0;
  gl_Position = v_colour.a > 0.0 ? vec4(disc(at) * u_scale, 0.0, 1.0) : NOWHERE;
}`;

const POINT_COLOUR = `#version 300 es
precision highp float;
flat in vec4 v_colour;
in float v_size;
uniform vec4 u_outline;       // colour of a thin line around the dot; none where alpha is 0
uniform float u_line;         // its width in device pixels
out vec4 colour;

void main() {
  float distance = length(gl_PointCoord - 0.5) * (v_size + 1.0);
  float cover = clamp(0.5 * v_size - distance + 0.5, 0.0, 1.0);
  float inner = u_outline.a > 0.0 ? clamp(0.5 * v_size - u_line - distance + 0.5, 0.0, 1.0) : 1.0;
  colour = vec4(mix(u_outline.rgb, v_colour.rgb, inner), 1.0) * v_colour.a * cover;
}`;

const EDGE_SHADER = `${COMMON}
layout(location = 0) in uvec2 a_ends;
uniform float u_width;        // in CSS pixels
out float v_across;

// The point at the fraction s of the geodesic of length d, a sum of positive multiples of the ends.
vec2 along(vec3 from, vec3 to, float d, float s) {
  float scale = sn(d);
  bool near = u_flat || scale < 1e-4;
  vec3 at = near ? mix(from, to, s) : (sn((1.0 - s) * d) * from + sn(s * d) * to) / scale;
  return disc(at) * u_scale;
}

void main() {
  v_across = float(gl_VertexID & 1) * 2.0 - 1.0;
  if (!shown(a_ends.x) || !shown(a_ends.y)) {
    gl_Position = NOWHERE;
    return;
  }
  uvec4 p = point(a_ends.x), q = point(a_ends.y);
  vec3 from = place(p), to = place(q);
  // The length from the points themselves: sinh²(d/2) = sinh²((r−r′)/2) + sinh r sinh r′ sin²(δ/2).
  float rise = sn(0.5 * float(int(p.z - q.z)) * u_pole.y);
  float h = sine(0.5 * angle(p.xy, q.xy));
  float half_length = sqrt(rise * rise + sn(float(p.z) * u_pole.y) * sn(float(q.z) * u_pole.y) * h * h);
  float d = half_length < 0.01 ? 2.0 * half_length : 2.0 * log(half_length + sqrt(half_length * half_length + 1.0));
  float s = float(gl_VertexID / 2) / ${PIECES}.0;
  vec2 here = along(from, to, d, s);
  vec2 ahead = along(from, to, d, min(1.0, s + 0.01)), behind = along(from, to, d, max(0.0, s - 0.01));
  vec2 way = (ahead - behind) / u_pixel;
  float length_of_way = length(way);
  vec2 across = length_of_way > 0.0 ? vec2(-way.y, way.x) / length_of_way : vec2(0.0);
  gl_Position = vec4(here + across * v_across * (0.5 * u_width + 0.5) * u_pixel, 0.0, 1.0);
}`;

const EDGE_COLOUR = `#version 300 es
precision highp float;
in float v_across;
uniform vec4 u_colour;
uniform float u_width;
out vec4 colour;

void main() {
  float cover = clamp((0.5 * u_width + 0.5) * (1.0 - abs(v_across)), 0.0, 1.0);
  colour = vec4(u_colour.rgb, 1.0) * u_colour.a * cover;
}`;

const HALO_SHADER = `${COMMON}
layout(location = 0) in uint a_index;
uniform bool u_selecting;
flat out vec4 v_colour;
out vec2 v_at;

void main() {
  uvec4 p = point(a_index);
  uvec2 look = style(a_index);
  vec3 at = place(p);
  float sigma = uintBitsToFloat(p.w);
  // The hyperbolic disc of radius sigma is a Euclidean one with its centre displaced towards the middle.
  float s = u_flat ? 0.5 * sigma : sn(0.5 * sigma) / cs(0.5 * sigma);
  vec2 z = disc(at);
  float below = u_flat ? 1.0 : 1.0 - s * s * dot(z, z);
  vec2 centre = u_flat ? z : z * (1.0 - s * s) / below;
  float radius = u_flat ? s : s * 2.0 / (1.0 + at.x) / below;
  v_at = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1)) * 2.0 - 1.0;
  v_colour = texelFetch(u_palette, ivec2(int(look.x), 0), 0);
  bool drawn = v_colour.a > 0.0 && !(u_selecting && look.y == 0u);
  gl_Position = drawn ? vec4((centre + v_at * radius) * u_scale, 0.0, 1.0) : NOWHERE;
}`;

const HALO_COLOUR = `#version 300 es
precision highp float;
flat in vec4 v_colour;
in vec2 v_at;
uniform float u_opacity;
out vec4 colour;

void main() {
  float distance = length(v_at);
  float soft = fwidth(distance);
  float cover = 1.0 - smoothstep(1.0 - soft, 1.0, distance);
  float ring = smoothstep(1.0 - 3.0 * soft, 1.0 - 2.0 * soft, distance);
  colour = vec4(v_colour.rgb, 1.0) * u_opacity * cover * (0.3 + 0.7 * ring);
}`;

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
    this.order = this.attributes(shuffled(store.count), 1, 0);
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
      this.log = gl.getShaderInfoLog(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) throw new Error(this.log);
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

  /** Send the entry of the legend of each point, and which points are selected. */
  setLooks(entries, selected) {
    const { gl, looks } = this;
    for (let i = 0; i < this.store.count; i++) {
      looks[2 * i] = entries[i];
      looks[2 * i + 1] = selected ? selected[i] : 0;
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
    gl.uniform1f(places.u_opacity, opacity);
    gl.uniform1i(places.u_nodes, 0);
    gl.uniform4f(places.u_outline, ...rgb(theme.face), diameter > 7 * density ? 1 : 0);
    gl.uniform1f(places.u_line, 0.7 * density);
    gl.bindVertexArray(this.order.array);
    // The order is random, so that the first of them show the same picture, only thinner.
    this.drawn = Math.min(most, this.order.length);
    gl.drawArrays(gl.POINTS, 0, this.drawn);
    this.draws++;
  }
}
