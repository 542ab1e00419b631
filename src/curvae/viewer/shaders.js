// The programs of the graphics card. Each begins with what they share: where the points are, and how the camera sees
// them, computed as in geometry.js but in single precision, from exact differences of whole numbers.

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
uniform bool u_globe;
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
  if (u_globe) return sine(x);
  return abs(x) < 0.3 ? x * (1.0 + x * x / 6.0 * (1.0 + x * x / 20.0)) : 0.5 * (exp(x) - exp(-x));
}
float cs(float x) { return u_flat ? 1.0 : u_globe ? cos(x) : 0.5 * (exp(x) + exp(-x)); }

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

// The point seen from the pole, (t, x, y) on the hyperboloid or the sphere: see geometry.js, view.
vec3 place(uvec4 p) {
  float delta = angle(u_turn, p.xy);
  float nearer = (float(int(p.z - u_whole)) - u_pole.x) * u_pole.y;
  float size = sn(float(p.z) * u_pole.y);
  float h = sine(0.5 * delta);
  float twice = 2.0 * size * h * h;
  float t = u_flat ? 1.0 : cs(nearer) + (u_globe ? -1.0 : 1.0) * sn(u_pole.z) * twice;
  vec2 at = vec2(sn(nearer) - cs(u_pole.z) * twice, size * sine(delta));
  return vec3(t, at.x * u_rotation.x - at.y * u_rotation.y, at.x * u_rotation.y + at.y * u_rotation.x);
}

vec2 disc(vec3 at) { return at.yz / (u_globe ? 1.0 : 1.0 + at.x); }

// How strongly it is drawn: what lies on the far side of a globe is faint.
float strength(vec3 at) { return u_globe && at.x < 0.0 ? 0.15 : 1.0; }

const vec4 NOWHERE = vec4(2.0, 2.0, 2.0, 1.0);
`;

const POINT_SHADER = `${COMMON}
layout(location = 0) in uint a_index;
uniform float u_size;         // diameter in device pixels
uniform bool u_sized;         // it is that of a middling point, and others differ
uniform float u_opacity;
uniform bool u_selecting;     // those not selected are faint
uniform bool u_nodes;
uniform int u_side;           // draw the near side of a globe alone (1), the far side alone (−1), or everything (0)
uniform vec4 u_face;          // of nodes
flat out vec4 v_colour;
out float v_size;

void main() {
  vec3 at = place(point(a_index));
  uvec2 look = style(a_index);
  v_colour = u_nodes ? u_face : texelFetch(u_palette, ivec2(int(look.x), 0), 0);
  bool faint = u_selecting && (look.y & 1u) == 0u && !u_nodes;
  v_colour.a *= u_opacity * (faint ? 0.12 : 1.0) * strength(at);
  v_size = u_size * (u_flat || u_globe ? 1.0 : 0.7 + 0.6 / (1.0 + at.x));
  if (u_sized && !u_nodes) v_size *= 0.6 + 2.4 * float(look.y >> 1) / 127.0;
  gl_PointSize = v_size + 1.0;
  bool drawn = v_colour.a > 0.0 && (u_side == 0 || (at.x < 0.0) == (u_side < 0));
  gl_Position = drawn ? vec4(disc(at) * u_scale, 0.0, 1.0) : NOWHERE;
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
out float v_strength;

// The point at the fraction s of the geodesic of length d, a sum of positive multiples of the ends.
vec3 along(vec3 from, vec3 to, float d, float s) {
  float scale = sn(d);
  bool near = u_flat || scale < 1e-4;
  return near ? mix(from, to, s) : (sn((1.0 - s) * d) * from + sn(s * d) * to) / scale;
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
  float d = u_globe ? 2.0 * asin(min(1.0, half_length)) : half_length < 0.01 ? 2.0 * half_length : 2.0 * log(half_length + sqrt(half_length * half_length + 1.0));
  float s = float(gl_VertexID / 2) / ${PIECES}.0;
  vec3 at = along(from, to, d, s);
  v_strength = strength(at);
  vec2 here = disc(at) * u_scale;
  vec2 ahead = disc(along(from, to, d, min(1.0, s + 0.01))), behind = disc(along(from, to, d, max(0.0, s - 0.01)));
  vec2 way = (ahead - behind) * u_scale / u_pixel;
  float length_of_way = length(way);
  vec2 across = length_of_way > 0.0 ? vec2(-way.y, way.x) / length_of_way : vec2(0.0);
  gl_Position = vec4(here + across * v_across * (0.5 * u_width + 0.5) * u_pixel, 0.0, 1.0);
}`;

const EDGE_COLOUR = `#version 300 es
precision highp float;
in float v_across;
in float v_strength;
uniform vec4 u_colour;
uniform float u_width;
out vec4 colour;

void main() {
  float cover = clamp((0.5 * u_width + 0.5) * (1.0 - abs(v_across)), 0.0, 1.0);
  colour = vec4(u_colour.rgb, 1.0) * u_colour.a * cover * v_strength;
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
  // On a globe, seen from afar, it is an ellipse.
  float s = u_flat ? 0.5 * sigma : sn(0.5 * sigma) / cs(0.5 * sigma);
  vec2 z = disc(at);
  float below = u_flat ? 1.0 : 1.0 - s * s * dot(z, z);
  vec2 centre = u_flat ? z : z * (1.0 - s * s) / below;
  float radius = u_flat ? s : s * 2.0 / (1.0 + at.x) / below;
  v_at = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1)) * 2.0 - 1.0;
  v_colour = texelFetch(u_palette, ivec2(int(look.x), 0), 0);
  vec2 corner = v_at * radius;
  if (u_globe) {
    float angle = min(sigma, 1.5707963);
    vec2 way = dot(z, z) > 0.0 ? normalize(z) : vec2(1.0, 0.0);
    centre = cos(angle) * z;
    corner = sine(angle) * (v_at.x * at.x * way + v_at.y * vec2(-way.y, way.x));
  }
  bool drawn = v_colour.a > 0.0 && strength(at) == 1.0 && !(u_selecting && (look.y & 1u) == 0u);
  gl_Position = drawn ? vec4((centre + corner) * u_scale, 0.0, 1.0) : NOWHERE;
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
