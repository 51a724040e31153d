// Norms as sets of axes that share one mean and one variance, as in normlab.norms.

const AXES = ["batch", "position", "feature"];

/** The pool of a cell: the indices [[b, p, d], ...] of all values that share its statistics. */
function poolOf(x, norm, [b, p, d], real = null) {
  const width = x[0][0].length;
  const group = width / (norm.groups || 1);
  const first = Math.floor(d / group) * group;
  const cells = [];
  x.forEach((tokens, sample) => tokens.forEach((features, position) => {
    if (sample !== b && !norm.pools.includes("batch")) return;
    if (position !== p && !norm.pools.includes("position")) return;
    const counts = !real || real[sample][position] || (sample === b && position === p && alone(norm));
    if (!counts) return;
    features.forEach((_, feature) => {
      const pooled = norm.pools.includes("feature");
      if (pooled ? feature >= first && feature < first + group : feature === d) cells.push([sample, position, feature]);
    });
  }));
  return cells;
}

/** Whether a token is normalized by itself, so that a mask of other tokens does not matter. */
function alone(norm) {
  return !norm.pools.includes("batch") && !norm.pools.includes("position");
}

/** The mean and variance (divisor n) of the values in a pool, or 0 and 1 if it is empty. */
function moments(x, pool) {
  if (!pool.length) return { mean: 0, variance: 1 };
  const values = pool.map(([b, p, d]) => x[b][p][d]);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  return { mean, variance };
}

/** What a norm subtracts from a cell, and what it divides it by. RMS norm subtracts nothing. */
function lineOf(x, norm, cell, real = null) {
  const pool = poolOf(x, norm, cell, real);
  const { mean, variance } = moments(x, pool);
  const center = norm.center ? mean : 0;
  const square = norm.center ? variance : variance + mean * mean;
  return { pool, mean, variance, center, divisor: Math.sqrt(square + norm.eps) };
}

/** A new norm's output in training, for x[batch][position][feature] and a mask of real tokens. */
function normalized(x, norm, real = null) {
  if (norm.pools.length === 0) return x.map((tokens) => tokens.map((features) => [...features]));
  const lines = new Map();
  const group = x[0][0].length / (norm.groups || 1);
  const key = (b, p, d) => [
    norm.pools.includes("batch") ? "" : b,
    norm.pools.includes("position") ? "" : p,
    norm.pools.includes("feature") ? Math.floor(d / group) : d,
  ].join(" ");
  return x.map((tokens, b) => tokens.map((features, p) => features.map((value, d) => {
    const name = key(b, p, d);
    if (!lines.has(name)) lines.set(name, lineOf(x, norm, [b, p, d], real));
    const { center, divisor } = lines.get(name);
    return (value - center) / divisor;
  })));
}

/** Softmax of a row of logits. */
function softmax(logits) {
  const largest = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp(logit - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** How strongly softmax weights depend on their logits: the trace of the Jacobian. */
function slope(weights) {
  return 1 - weights.reduce((sum, weight) => sum + weight * weight, 0);
}

/** Standard normal values, the same at each visit (Box-Muller transform of a small generator). */
function normals(count, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 4294967296;
  };
  return Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}
