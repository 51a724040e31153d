// Marks of a class: batch norm compares the pupils in a subject, layer norm the subjects of a pupil.

const marks = { x: DATA.pieces.marks.x.map((row) => [...row]), norm: "ln", before: null };

piece("marks", {
  options: () => [0, 1, 2].map((number) => t(`marks.options.${number}`)),
  right: () => {
    const { x, norms } = DATA.pieces.marks;
    const half = x.map((row, pupil) => (pupil ? row : row.map((mark) => mark / 2)));
    const [first, second] = [x, half].map((each) => normalized([each], norms.ln)[0][0]);
    return first.every((value, subject) => Math.abs(value - second[subject]) < 0.005) ? 1 : 0;
  },
  why: () => t("marks.why", { values: normalized([DATA.pieces.marks.x], DATA.pieces.marks.norms.ln)[0][0].map((value) => shown(value)).join(t("comma")) }),
  draw: drawMarks,
});

function drawMarks(root) {
  const { norms } = DATA.pieces.marks;
  const y = normalized([marks.x], norms[marks.norm])[0];
  const update = (changes) => {
    Object.assign(marks, changes);
    drawMarks(root);
  };
  const change = (to) => update({ before: normalized([marks.x], norms[marks.norm])[0], x: marks.x.map((row, pupil) => row.map((mark) => to(mark, pupil))) });
  const subjects = [0, 1, 2].map((number) => t(`marks.subjects.${number}`));
  const pupils = [0, 1, 2].map((number) => t(`marks.pupils.${number}`));
  const edit = (pupil, subject) => field(`mark ${pupil} ${subject}`, marks.x[pupil][subject], pupils[pupil] + t("colon") + subjects[subject], (value) =>
    update({ before: y, x: marks.x.map((row, i) => row.map((mark, j) => (i === pupil && j === subject ? value : mark))) }));
  const rows = marks.x.map((row, pupil) => h("tr", {}, h("th", { scope: "row" }, pupils[pupil]), row.map((_, subject) => {
    const value = y[pupil][subject];
    const moved = marks.before && Math.abs(marks.before[pupil][subject] - value) > 0.005;
    const heat = Math.max(-1, Math.min(1, value / 1.5));
    return h("td", { class: `heat ${heat < 0 ? "cold" : ""}`, style: `--heat:${(60 * Math.abs(heat)).toFixed(0)}%` }, edit(pupil, subject),
      h("b", { class: moved ? "moved" : "", "data-output": value }, `→ ${value > 0 && marks.norm !== "none" ? "+" : ""}${shown(value)}${moved ? " ↺" : ""}`));
  })));
  const button = (name, to) => h("button", { "data-name": name, onclick: to }, t(`marks.${name}`));
  redraw(root,
    normChoice(norms, marks.norm, (norm) => update({ norm, before: null }), t(`marks.compares.${marks.norm}`)),
    scrolling(t("marks.table"), "numbers", h("thead", {}, h("tr", {}, h("td"), subjects.map((subject) => h("th", { scope: "col" }, subject)))), h("tbody", {}, rows)),
    h("div", { class: "controls" },
      button("half", () => change((mark, pupil) => (pupil ? mark : mark / 2))),
      button("others", () => change((mark, pupil) => (pupil ? mark + 20 : mark))),
      button("reset", () => update({ before: null, x: DATA.pieces.marks.x.map((row) => [...row]) }))),
    h("p", { class: "readout", "aria-live": "polite" }, t("marks.read")));
}
