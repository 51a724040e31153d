// A live piece begins with a question, and opens when the reader has answered it.

const PIECES = {};
const guesses = {}; // by piece: the number of the answer, or -1 for none

/**
 * Register a piece. `options()` returns the answers as text, `right()` the index of the right one,
 * and `why()` the explanation. `draw(root)` draws the piece itself.
 */
function piece(name, parts) {
  PIECES[name] = parts;
}

function drawPiece(name) {
  const root = h("section", { class: "piece", id: name, "aria-labelledby": `${name}-title` });
  const fill = () => {
    const guess = guesses[name];
    const heading = h("h4", { id: `${name}-title` }, t(`${name}.title`));
    root.replaceChildren(heading, question(name, fill));
    if (guess === undefined) return;
    const live = h("div", { class: "live" });
    root.append(live);
    PIECES[name].draw(live);
  };
  fill();
  return root;
}

function question(name, fill) {
  const { options, right, why } = PIECES[name];
  const guess = guesses[name];
  const answered = guess !== undefined;
  const answer = (number) => {
    guesses[name] = number;
    fill();
    drawPieceList();
    document.querySelector(`#${name} .why`).focus();
  };
  const buttons = options().map((text, number) => {
    const state = !answered ? "" : number === right() ? "right" : number === guess ? "wrong" : "other";
    const mark = { right: "✓ ", wrong: "✗ " }[state] ?? "";
    return h("button", { class: state, disabled: answered, onclick: () => answer(number) }, mark, text);
  });
  const box = h("div", { class: "question" }, h("p", {}, h("b", {}, t("question")), prose(t(`${name}.question`))), h("div", { class: "options" }, buttons));
  if (!answered) {
    box.append(h("p", {}, h("button", { class: "skip-question", onclick: () => answer(-1) }, t("no_guess"))));
  } else {
    const said = guess === -1 ? "" : t(guess === right() ? "right" : "wrong");
    box.append(h("p", { class: "why", tabindex: "-1" }, said && h("b", {}, said), prose(why())));
  }
  return box;
}

/** The list of pieces at the top, with the reader's guesses. */
function drawPieceList() {
  const items = Object.keys(PIECES).map((name) => {
    const guess = guesses[name];
    const mark = guess === undefined || guess === -1 ? "" : guess === PIECES[name].right() ? " ✓" : " ✗";
    return h("li", {}, h("a", { href: `#${name}` }, t(`${name}.title`)), mark);
  });
  byId("pieces").replaceChildren(h("p", {}, t("pieces")), h("ul", {}, items));
  byId("pieces").setAttribute("aria-label", t("pieces"));
}
