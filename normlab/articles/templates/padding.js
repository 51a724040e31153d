// Article 1's batch: add and remove sentences, and include or exclude padding.

const padding = { sentences: [1, 2], norm: "bn", count: false };
const FOX = 2;

piece("padding", {
  options: () => [0, 1, 2].map((number) => t(`padding.options.${number}`)),
  right: () => {
    const left_out = { norm: "bn", count: false };
    const moves = distance(batchOf({ ...left_out, sentences: [1, 2] }), batchOf({ ...left_out, sentences: [0, 1, 2] }));
    return moves > 1e-6 ? 2 : 0;
  },
  why: () => {
    const left_out = { norm: "bn", count: false };
    return t("padding.why", { moves: shown(distance(batchOf({ ...left_out, sentences: [1, 2] }), batchOf({ ...left_out, sentences: [0, 1, 2] }))) });
  },
  draw: drawPadding,
});

/** A batch of sentences, padded with zeros to the longest, and a norm's output for it. */
function batchOf({ sentences, norm, count }) {
  const all = DATA.pieces.padding;
  const length = Math.max(...sentences.map((number) => all.words[number].length));
  const width = all.x[0][0].length;
  const pad = (number, at) => all.x[number][at] ?? new Array(width).fill(0);
  const x = sentences.map((number) => Array.from({ length }, (_, at) => pad(number, at)));
  const real = sentences.map((number) => Array.from({ length }, (_, at) => at < all.words[number].length));
  const chosen = all.norms[norm];
  return { sentences, x, real, length, y: normalized(x, chosen, count ? null : real), norm: chosen, mask: count ? null : real };
}

/** How much the output for the fox sentence differs between two batches, as a root mean square. */
function distance(first, second) {
  const [a, b] = [first, second].map((batch) => batch.y[batch.sentences.indexOf(FOX)].flat());
  const tokens = DATA.pieces.padding.words[FOX].length * DATA.pieces.padding.x[FOX][0].length;
  return Math.sqrt(a.slice(0, tokens).reduce((sum, value, place) => sum + (value - b[place]) ** 2, 0) / tokens);
}

function drawPadding(root) {
  const all = DATA.pieces.padding;
  const update = (changes) => {
    Object.assign(padding, changes);
    drawPadding(root);
  };
  const put = (number, inside) => {
    if (number === FOX) return;
    const others = padding.sentences.filter((each) => each !== number);
    update({ sentences: (inside ? [...others, number] : others).sort() });
  };
  const drop = (inside) => ({
    ondragover: (event) => event.preventDefault(),
    ondrop: (event) => {
      event.preventDefault();
      put(Number(event.dataTransfer.getData("text/plain")), inside);
    },
  });
  const chip = (number) => {
    const inside = padding.sentences.includes(number);
    const fox = number === FOX;
    return h("button", {
      class: "chip", draggable: fox ? "false" : "true", disabled: fox, "data-name": `sentence ${number}`, "aria-pressed": String(inside),
      title: t(fox ? "padding.stays" : inside ? "padding.take_out" : "padding.put_in"),
      onclick: () => put(number, !inside),
      ondragstart: (event) => event.dataTransfer.setData("text/plain", String(number)),
    }, all.words[number].join(" "), fox ? "" : h("span", { class: "sign", "aria-hidden": "true" }, inside ? " −" : " +"));
  };
  const numbers = all.words.map((_, number) => number);
  const outside = numbers.filter((number) => !padding.sentences.includes(number));
  const batch = batchOf(padding);
  const single = batch.sentences.map((number) => batchOf({ ...padding, sentences: [number] }));
  const moved = distance(single[batch.sentences.indexOf(FOX)], batch);
  const token = (row, at) => {
    const number = batch.sentences[row];
    const real = batch.real[row][at];
    const changed = real && batch.y[row][at].some((value, d) => Math.abs(value - single[row].y[0][at][d]) > 1e-6);
    const counted = real || (padding.count && !alone(batch.norm));
    return h("td", { class: [real ? "real" : "pad", counted ? "counted" : "", changed ? "moved" : ""].join(" ") },
      h("b", {}, real ? all.words[number][at] : "PAD"),
      real ? batch.y[row][at].map((value) => h("span", { "data-output": value }, shown(value, 1))) : "");
  };
  const rows = batch.sentences.map((_, row) => h("tr", {}, Array.from({ length: batch.length }, (__, at) => token(row, at))));
  const cells = batch.real.flat();
  redraw(root,
    normChoice(all.norms, padding.norm, (norm) => update({ norm })),
    h("div", { class: "shelves" },
      h("div", { class: "shelf in", ...drop(true) }, h("p", {}, t("padding.in")), padding.sentences.map(chip)),
      h("div", { class: "shelf out", ...drop(false) }, h("p", {}, t("padding.out")), outside.map(chip))),
    h("label", {}, h("input", { type: "checkbox", "data-name": "count", checked: padding.count, onchange: (event) => update({ count: event.target.checked }) }), t("padding.count")),
    scrolling(t("padding.batch"), "batch", h("tbody", {}, rows)),
    h("div", { class: "readout", "aria-live": "polite" },
      h("p", {}, t("padding.cells", { pads: cells.filter((real) => !real).length, cells: cells.length })),
      h("p", { "data-moved": moved }, h("b", {}, moved < 1e-6 ? t("padding.same") : t("padding.moved", { moved: shown(moved) }))),
      lonely(batch) ? h("p", {}, t("padding.lonely", { words: lonely(batch) })) : ""));
}

/** The words of the fox sentence that become 0, because they are alone in their pool. */
function lonely(batch) {
  const row = batch.sentences.indexOf(FOX);
  const found = DATA.pieces.padding.words[FOX].filter((_, at) => batch.y[row][at].every((value) => value === 0));
  return found.join(t("comma"));
}
