// 我 爱 吃: what a norm turns the 999 into, and how it changes the attention between the words.

const NAMES = ["我", "爱", "吃"];
const words = { value: 999, width: 4, norm: "ln", projected: false };
const drawn = new Map(); // projections by width

piece("words", {
  options: () => [0, 1, 2].map((number) => t(`words.options.${number}`)),
  right: () => {
    const y = sentenceOf({ value: 999, width: 4, norm: "ln" }).y;
    return Math.abs(y[0][2] - y[1][1]) < 0.01 ? 2 : y[0][2] > y[1][1] ? 0 : 1;
  },
  why: () => {
    const y = sentenceOf({ value: 999, width: 4, norm: "ln" }).y;
    return t("words.why", { first: shown(y[0][2], 4), second: shown(y[1][1], 4) });
  },
  draw: drawWords,
});

/** The sentence at a width: the article's four features, then random ones of the same size. */
function sentenceOf({ value, width, norm }) {
  const { x, norms } = DATA.pieces.words;
  const sizes = [(n) => n, (n) => 0.1 * n, () => 5];
  const before = x.map((features, row) => {
    const own = row === 0 ? features.map((each, d) => (d === 2 ? value : each)) : features;
    return [...own, ...normals(width - own.length, row + 1).map(sizes[row])];
  });
  return { x: before, y: normalized([before], norms[norm])[0] };
}

/** Logits, weights and slopes of the words' attention to each other. */
function attention(y, width, projected) {
  let queries = y;
  let keys = y;
  if (projected) {
    if (!drawn.has(width)) drawn.set(width, [7, 8].map((seed) => normals(width * width, seed)));
    [queries, keys] = drawn.get(width).map((matrix) => y.map((features) => {
      const out = new Array(width).fill(0);
      features.forEach((feature, row) => {
        for (let column = 0; column < width; column += 1) out[column] += feature * matrix[row * width + column];
      });
      return out.map((each) => each / Math.sqrt(width));
    }));
  }
  const dot = (a, b) => a.reduce((sum, each, place) => sum + each * b[place], 0);
  const logits = queries.map((q) => keys.map((k) => dot(q, k) / Math.sqrt(width)));
  const weights = logits.map(softmax);
  return { logits, weights, slopes: weights.map(slope) };
}

function drawWords(root) {
  const { norms, widths } = DATA.pieces.words;
  const { x, y } = sentenceOf(words);
  const { logits, weights, slopes } = attention(y, words.width, words.projected);
  const update = (changes) => {
    Object.assign(words, changes);
    drawWords(root);
  };
  const edit = field("value", words.value, t("words.edit"), (value) => update({ value }));
  const vectors = scrolling(t("words.vectors"), "numbers",
    h("tbody", {}, x.map((features, row) => h("tr", {}, h("th", { scope: "row" }, NAMES[row]),
      features.slice(0, 4).map((each, d) => h("td", {}, row === 0 && d === 2 ? edit : plain(each), h("br"), h("b", { "data-output": y[row][d] }, `→ ${shown(y[row][d])}`)))))));
  const rows = weights.map((row, from) => h("tr", {}, h("th", { scope: "row" }, t("words.from", { word: NAMES[from] })),
    row.map((weight, to) => h("td", { class: "heat", style: `--heat:${(100 * weight).toFixed(0)}%`, "data-logit": logits[from][to], "data-weight": weight },
      h("b", {}, shown(weight, 3)), h("small", {}, t("words.logit", { value: shown(logits[from][to], 1) })))),
    h("td", { "data-slope": slopes[from] }, h("b", {}, shown(slopes[from], 3)), slopes[from] < 0.01 ? h("small", { class: "dead" }, t("words.dead")) : "")));
  const looks = scrolling(t("words.attention"), "numbers",
    h("thead", {}, h("tr", {}, h("td"), NAMES.map((word) => h("th", { scope: "col" }, word)), h("th", { scope: "col" }, t("words.slope")))), h("tbody", {}, rows));
  redraw(root,
    normChoice(norms, words.norm, (norm) => update({ norm })),
    h("div", { class: "controls" }, h("span", {}, t("words.width")), choice(t("words.width"), widths.map((width) => [width, String(width)]), words.width, (width) => update({ width }))),
    h("label", {}, h("input", { type: "checkbox", "data-name": "projected", checked: words.projected, onchange: (event) => update({ projected: event.target.checked }) }), t("words.projected")),
    vectors, words.width > 4 ? h("p", { class: "quiet" }, t("words.more", { count: words.width - 4 })) : "", looks,
    h("p", { class: "readout", "aria-live": "polite" }, t("words.read"), words.norm === "ln" && !words.projected ? ` ${t("words.artefact", { root: shown(Math.sqrt(words.width), 1) })}` : ""));
}
