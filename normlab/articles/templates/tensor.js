// The articles' tensor of 2 samples x 3 tokens x 4 features: choose a norm and see a cell's pool.

const tensor = { norm: "bn", cell: [0, 0, 0], outputs: false };

piece("tensor", {
  options: () => tensorAnswers().map((name) => `[${poolValues(name, [0, 0, 0]).map(plain).join(", ")}]`),
  right: () => tensorAnswers().indexOf("bn"),
  why: () => t("tensor.why", { values: poolValues("bn", [0, 0, 0]).map(plain).join(" "), other: poolValues("bn_sample", [0, 0, 0]).map(plain).join(" ") }),
  draw: drawTensor,
});

function tensorAnswers() {
  return ["bn_position", "bn_sample", "bn", "ln"];
}

function poolValues(name, cell) {
  const { x, norms } = DATA.pieces.tensor;
  return poolOf(x, norms[name], cell).map(([b, p, d]) => x[b][p][d]);
}

function drawTensor(root) {
  const { x, norms } = DATA.pieces.tensor;
  const norm = norms[tensor.norm];
  const y = normalized(x, norm);
  const update = (changes) => {
    Object.assign(tensor, changes);
    drawTensor(root);
  };
  const pool = new Set(norm.pools.length ? poolOf(x, norm, tensor.cell).map(String) : []);
  const move = (event, cell) => {
    const steps = { ArrowLeft: [0, 0, -1], ArrowRight: [0, 0, 1], ArrowUp: [0, -1, 0], ArrowDown: [0, 1, 0] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const next = cell.map((at, axis) => at + step[axis]);
    if (next[2] < 0 && next[0] > 0) [next[0], next[2]] = [next[0] - 1, 3];
    if (next[2] > 3 && next[0] < 1) [next[0], next[2]] = [next[0] + 1, 0];
    if (next[1] < 0 && next[0] > 0) [next[0], next[1]] = [next[0] - 1, 2];
    if (next[1] > 2 && next[0] < 1) [next[0], next[1]] = [next[0] + 1, 0];
    if (x[next[0]]?.[next[1]]?.[next[2]] === undefined) return;
    update({ cell: next });
    root.querySelector(`[data-cell="${next}"]`).focus();
  };
  const cellOf = (cell) => {
    const [b, p, d] = cell;
    const chosen = String(cell) === String(tensor.cell);
    const select = () => { if (String(cell) !== String(tensor.cell)) update({ cell }); };
    return h("td", {}, h("button", {
      "data-cell": cell, "data-name": `cell ${cell}`, "data-value": y[b][p][d], tabindex: chosen ? "0" : "-1",
      class: [chosen ? "chosen" : "", pool.has(String(cell)) ? "pooled" : ""].join(" "),
      "aria-label": t("tensor.cell", { b: b + 1, p: p + 1, d: d + 1, value: plain(x[b][p][d]) }) + (pool.has(String(cell)) ? t("tensor.pooled") : ""),
      onmouseenter: select, onfocus: select, onclick: select, onkeydown: (event) => move(event, cell),
    }, tensor.outputs ? shown(y[b][p][d]) : plain(x[b][p][d])));
  };
  const grids = x.map((tokens, b) => h("table", { class: "grid" }, h("caption", {}, t("tensor.sample", { number: b + 1 })),
    h("tbody", {}, tokens.map((features, p) => h("tr", {}, h("th", { scope: "row" }, t("tensor.token", { number: p + 1 })), features.map((_, d) => cellOf([b, p, d])))))));
  const outputs = h("label", {}, h("input", { type: "checkbox", "data-name": "outputs", checked: tensor.outputs, onchange: (event) => update({ outputs: event.target.checked }) }), t("tensor.outputs"));
  redraw(root, normChoice(norms, tensor.norm, (name) => update({ norm: name })),
    h("div", { class: "grids" }, grids), outputs, readTensor(x, y, norm));
}

/** The pool of the chosen cell, its mean and variance, and the calculation of the output. */
function readTensor(x, y, norm) {
  const [b, p, d] = tensor.cell;
  const value = x[b][p][d];
  const box = h("div", { class: "readout", "aria-live": "polite" });
  if (!norm.pools.length) return h("div", { class: "readout" }, t("tensor.nothing"));
  const { pool, mean, variance, center, divisor } = lineOf(x, norm, tensor.cell);
  const values = pool.map(([sample, token, feature]) => plain(x[sample][token][feature])).join(" ");
  box.append(h("p", {}, t("tensor.pool", { count: pool.length }), h("code", {}, values)),
    h("p", { "data-mean": mean, "data-variance": variance }, t("tensor.moments", { mean: shown(mean), variance: shown(variance) })),
    h("p", {}, h("code", { "data-output": y[b][p][d] }, `(${plain(value)} − ${norm.center ? shown(center) : 0}) / ${shown(divisor, 3)} = ${shown(y[b][p][d], 3)}`)));
  if (!norm.center) box.append(h("p", { class: "quiet" }, t("tensor.rms")));
  return box;
}
