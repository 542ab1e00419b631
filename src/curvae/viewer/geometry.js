// The plane of curvature −1, the flat one and the sphere, seen through a camera that is an isometry.
//
// The camera lives in double precision. A point of the data is (radius, turn): its distance from the origin and its
// direction as a fraction of a full turn. In these coordinates a point far out stays apart from its neighbours, which
// in coordinates of the disc all round to the rim, and a camera far out sees them without loss: only differences of
// radii and of turns enter, and no two large numbers are subtracted (see `view`).
//
// Complex numbers are pairs [re, im]; z and w are places on the screen in units of the disc, whose rim is |z| = 1. On
// the flat plane a place is half the metric length, as in the Poincaré ball of curvature 0. A sphere is seen from afar, its
// near half within |z| < 1.

const TAU = 2 * Math.PI;

const add = (z, w) => [z[0] + w[0], z[1] + w[1]];
const times = (z, w) => [z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]];
const scaled = (z, s) => [z[0] * s, z[1] * s];
const conj = (z) => [z[0], -z[1]];
const abs2 = (z) => z[0] * z[0] + z[1] * z[1];
const abs = (z) => Math.hypot(z[0], z[1]);
const quotient = (z, w) => scaled(times(z, conj(w)), 1 / abs2(w));
const polar = (length, angle) => [length * Math.cos(angle), length * Math.sin(angle)];

/** A turn in [0, 1). */
const wrapped = (turn) => turn - Math.floor(turn);
const turnOf = (z) => wrapped(Math.atan2(z[1], z[0]) / TAU);

/** The difference of two turns, in [−1/2, 1/2). */
const turnFrom = (from, to) => wrapped(to - from + 0.5) - 0.5;

// An isometry z → (a z + b) / (b̄ z + ā) with |a|² − |b|² = 1.
const hyperbolic = {
  flat: false,
  identity: { a: [1, 0], b: [0, 0] },

  /** g after h, put back on |a|² − |b|² = 1, so that a long journey does not drift. */
  compose(g, h) {
    const a = add(times(g.a, h.a), times(g.b, conj(h.b)));
    const b = add(times(g.a, h.b), times(g.b, conj(h.a)));
    return { a: scaled(a, Math.sqrt(1 + abs2(b)) / abs(a)), b };
  },

  inverse: (g) => ({ a: conj(g.a), b: scaled(g.b, -1) }),

  apply: (g, z) => quotient(add(times(g.a, z), g.b), add(times(conj(g.b), z), conj(g.a))),

  /** The translation that takes the origin so far in that direction. */
  shift: (angle, distance) => ({ a: [Math.cosh(distance / 2), 0], b: polar(Math.sinh(distance / 2), angle) }),

  /** The translation z → p ⊕ z. */
  translation(p) {
    const factor = 1 / Math.sqrt(1 - abs2(p));
    return { a: [factor, 0], b: scaled(p, factor) };
  },

  /** The translation along the geodesic from z to w that takes z to w: w = z ⊕ ((−z) ⊕ w). */
  transvection(z, w) {
    const back = this.translation(scaled(z, -1));
    const step = this.translation(this.apply(back, w));
    return this.compose(this.translation(z), this.compose(step, back));
  },

  /** The point that the camera puts at the centre of the screen, and by how much it turns the picture. */
  pole(g) {
    const from = scaled(times(g.b, conj(g.a)), -1);
    return { radius: 2 * Math.asinh(abs(g.b)), turn: turnOf(from), rotation: 2 * Math.atan2(g.a[1], g.a[0]) };
  },

  /** Where the camera sees the place z of the screen come from. */
  locate(g, z) {
    const above = add(times(conj(g.a), z), scaled(g.b, -1));
    const below = add(g.a, scaled(times(conj(g.b), z), -1));
    const radius = 2 * Math.asinh(abs(above) / Math.sqrt(1 - abs2(z)));
    return { radius, turn: turnOf(times(above, conj(below))) };
  },

  /** A point seen from a pole: (t, x, y) on the hyperboloid, x towards the top of the pole's own radius.
   *
   * With r, R the radii and δ the difference of directions,
   *   x = sinh(r−R) − 2 cosh R sinh r sin²(δ/2),   y = sinh r sin δ,   t = cosh(r−R) + 2 sinh R sinh r sin²(δ/2);
   * t is a sum of positive terms and |x|, |y| < t, so that (x, y)/(1+t) is right to rounding however far both lie out.
   */
  view(pole, radius, turn) {
    const delta = TAU * turnFrom(pole.turn, turn);
    const twice = 2 * Math.sinh(radius) * Math.sin(delta / 2) ** 2;
    const t = Math.cosh(radius - pole.radius) + Math.sinh(pole.radius) * twice;
    return [t, Math.sinh(radius - pole.radius) - Math.cosh(pole.radius) * twice, Math.sinh(radius) * Math.sin(delta)];
  },

  /** The distance from the centre of a place that `view` gave. */
  distance: ([t, x, y]) => 2 * Math.asinh(Math.hypot(x, y) / Math.sqrt(2 * (1 + t))),

  /** The Euclidean circle that is the hyperbolic circle of that radius around the place z. */
  circle(z, radius) {
    const s = Math.tanh(radius / 2);
    const below = 1 - s * s * abs2(z);
    return { centre: scaled(z, (1 - s * s) / below), radius: (s * (1 - abs2(z))) / below };
  },

  /** Metric length of a short step at the place z, for a step of length 1 on the screen. */
  stretch: (z) => 2 / (1 - abs2(z)),

  /** Half the angle under which the origin sees a disc of radius `size` at distance `radius`, as a part of a turn. */
  aperture: (size, radius) => (size >= radius ? 0.5 : Math.asin(Math.sinh(size) / Math.sinh(radius)) / TAU),

  /** A place on the screen that is inside the disc, by at least `margin`. */
  inside(z, margin) {
    const most = 1 - margin;
    return abs(z) <= most ? z : scaled(z, most / abs(z));
  },

  toDisc: (radius) => Math.tanh(radius / 2),
};

// A translation z → z + b.
const flat = {
  flat: true,
  identity: { b: [0, 0] },
  compose: (g, h) => ({ b: add(g.b, h.b) }),
  inverse: (g) => ({ b: scaled(g.b, -1) }),
  apply: (g, z) => add(z, g.b),
  shift: (angle, distance) => ({ b: polar(distance / 2, angle) }),
  translation: (p) => ({ b: p }),
  transvection: (z, w) => ({ b: add(w, scaled(z, -1)) }),
  pole: (g) => ({ radius: 2 * abs(g.b), turn: turnOf(scaled(g.b, -1)), rotation: 0 }),
  locate(g, z) {
    const from = add(z, scaled(g.b, -1));
    return { radius: 2 * abs(from), turn: turnOf(from) };
  },
  view(pole, radius, turn) {
    const delta = TAU * turnFrom(pole.turn, turn);
    return [1, radius - pole.radius - 2 * radius * Math.sin(delta / 2) ** 2, radius * Math.sin(delta)];
  },
  distance: ([, x, y]) => Math.hypot(x, y),
  circle: (z, radius) => ({ centre: z, radius: radius / 2 }),
  stretch: () => 2,
  aperture: (size, radius) => (size >= radius ? 0.5 : Math.asin(size / radius) / TAU),
  inside: (z) => z,
  toDisc: (radius) => radius / 2,
};

// A plane that stays where it is: only the zoom changes.
const still = { ...flat, shift: () => flat.identity, transvection: () => flat.identity };

/** The place in the stereographic projection of a place of the near half of a globe. */
const stereographic = (z) => scaled(z, 1 / (1 + Math.sqrt(Math.max(0, 1 - abs2(z)))));

// The unit sphere, turned by z → (a z + b) / (−b̄ z + ā) with |a|² + |b|² = 1 in the stereographic projection.
const globe = {
  flat: false,
  globe: true,
  identity: { a: [1, 0], b: [0, 0] },

  compose(g, h) {
    const a = add(times(g.a, h.a), scaled(times(g.b, conj(h.b)), -1));
    const b = add(times(g.a, h.b), times(g.b, conj(h.a)));
    const size = Math.hypot(...a, ...b);
    return { a: scaled(a, 1 / size), b: scaled(b, 1 / size) };
  },

  inverse: hyperbolic.inverse,
  shift: (angle, distance) => ({ a: [Math.cos(distance / 2), 0], b: polar(Math.sin(distance / 2), angle) }),

  /** The turn along a great circle that takes the place z to w. */
  transvection(z, w) {
    const [from, to] = [this.locate(this.identity, z), this.locate(this.identity, w)];
    const pole = { ...from, rotation: 0 };
    const at = this.view(pole, to.radius, to.turn);
    const angle = Math.atan2(at[2], at[1]) + TAU * from.turn;
    const out = this.shift(TAU * from.turn, from.radius);
    return this.compose(out, this.compose(this.shift(angle, this.distance(at)), this.inverse(out)));
  },

  pole(g) {
    const from = scaled(times(g.b, conj(g.a)), -1);
    return { radius: 2 * Math.atan2(abs(g.b), abs(g.a)), turn: turnOf(from), rotation: 2 * Math.atan2(g.a[1], g.a[0]) };
  },

  locate(g, z) {
    const at = stereographic(z);
    const above = add(times(conj(g.a), at), scaled(g.b, -1));
    const below = add(g.a, times(conj(g.b), at));
    return { radius: 2 * Math.atan2(abs(above), abs(below)), turn: turnOf(times(above, conj(below))) };
  },

  /** A point seen from a pole: (t, x, y), t towards the viewer; sines in place of the hyperbolic ones. */
  view(pole, radius, turn) {
    const delta = TAU * turnFrom(pole.turn, turn);
    const twice = 2 * Math.sin(radius) * Math.sin(delta / 2) ** 2;
    const t = Math.cos(radius - pole.radius) - Math.sin(pole.radius) * twice;
    return [t, Math.sin(radius - pole.radius) - Math.cos(pole.radius) * twice, Math.sin(radius) * Math.sin(delta)];
  },

  distance: ([t, x, y]) => Math.atan2(Math.hypot(x, y), t),
  stretch: (z) => 1 / Math.sqrt(1 - abs2(z)),
  aperture: (size, radius) => (size < Math.min(radius, Math.PI - radius) ? Math.asin(Math.sin(size) / Math.sin(radius)) / TAU : 0.5),
  inside: hyperbolic.inside,
};

/** The radius and turn of a vector (x, y, z), of which z points to the viewer before anything is turned. */
const onGlobe = ([x, y, z]) => ({ radius: Math.atan2(Math.hypot(x, y), z), turn: turnOf([x, y]) });

/** The ways in which a map moves, by the names that charts give them. */
const MOTIONS = { disc: hyperbolic, plane: flat, globe, still };

/** The place on the screen of a point with the given radius and turn. */
function place(geometry, pole, radius, turn) {
  const [t, x, y] = geometry.view(pole, radius, turn);
  const below = geometry.globe ? 1 : 1 + t;
  return times([x / below, y / below], polar(1, TAU * pole.turn + pole.rotation));
}
