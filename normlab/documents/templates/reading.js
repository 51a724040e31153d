// An article in its own order: sentences and cells that open to what was found on them.

let article = DATA.articles[0];
let filter = ""; // a verdict whose sentences stand out, or none
const openSentences = new Set();
let lastShown = null; // the button of the answer that opened last

/** The sentences and the cells of an article's tables. */
function judgedIn(each) {
  const passages = each.sections.flatMap((section) => section.body);
  return passages.flatMap((passage) => (passage.table ? each.tables[passage.table].rows.flat() : [passage]));
}

/** The answer that a reference names: a number, or a list of it and what the answer is about. */
function answerAt(reference) {
  return DATA.answers[[reference].flat()[0]];
}

for (const judged of DATA.articles.flatMap(judgedIn)) {
  if (judged.a) judged.v ??= answerAt(judged.a[0]).v ?? "";
}

function drawArticle() {
  const sections = article.sections.map((section, number) => h("section", {},
    h("h3", {}, prose(both(section.title))),
    section.body.map((passage, place) => drawPassage(passage, `s${article.id}-${number + 1}-${place + 1}`)),
  ));
  byId("content").replaceChildren(h("h2", {}, both(article.title)), ...sections);
  fade();
}

/** Let the sentences of the chosen verdict stand out. */
function fade() {
  document.querySelectorAll("#content .opener").forEach((each) => each.classList.toggle("faded", filter !== "" && !each.parentNode.matches(`.${style(filter)}`)));
}

function drawPassage(passage, id) {
  if (passage.piece) return drawPiece(passage.piece);
  if (passage.table) return drawTable(article.tables[passage.table], id);
  const text = prose(both(passage.t));
  if (!passage.a) return h("p", { class: "plain" }, text);
  const panel = h("div", { class: "answer", id: `${id}-answer`, hidden: true });
  const button = opener(passage, id, panel, h("span", { class: "said" }, text));
  return h("div", { class: `passage ${style(passage.v)}`, id }, button, panel);
}

/** The class of a verdict: its colour and line. */
function style(verdict) {
  return verdict ? verdict.replace(" ", "-") : "remark";
}

/** The button of a sentence or a cell, which shows and hides the panel with its answer. */
function opener(judged, id, panel, label, select = () => {}) {
  const mark = MARKS[judged.v] ?? "i";
  const word = judged.v ? verdictWord(judged.v) : t("remark");
  const button = h("button", { class: "opener", "aria-expanded": "false", "aria-controls": panel.id, title: word },
    h("span", { class: "mark", "aria-hidden": "true" }, mark), label, h("span", { class: "sr" }, ` (${word})`));
  const toggle = (show) => {
    button.setAttribute("aria-expanded", String(show));
    panel.hidden = !show;
    if (!show) return openSentences.delete(id);
    openSentences.add(id);
    lastShown = button;
    panel.replaceChildren(...answerOf(judged));
    return select(button);
  };
  button.addEventListener("click", () => toggle(button.getAttribute("aria-expanded") !== "true"));
  button.show = toggle;
  if (openSentences.has(id)) toggle(true);
  return button;
}

/** Arrow keys go from sentence to sentence; left and right take an open answer along. Escape closes it. */
function walk(event) {
  const { key, target } = event;
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[key];
  const sideways = /t$/.test(key);
  const panel = target.closest(".answer");
  let button = target.closest("#content .opener");
  if (!button && (sideways || !step)) button = panel ? document.querySelector(`[aria-expanded="true"][aria-controls="${panel.id}"]`) : target === document.body && lastShown;
  if (!button || (!step && key !== "Escape")) return;
  const open = button.getAttribute("aria-expanded") === "true";
  if (!step) {
    button.show(false);
    return button.focus();
  }
  const all = [...document.querySelectorAll("#content .opener")].filter((each) => !filter || each.closest(`.${style(filter)}`));
  const next = all[all.indexOf(button) + step];
  if (!next) return;
  event.preventDefault();
  if (open && sideways) {
    button.show(false);
    next.show(true);
  }
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** What was found: each answer with its number and how we know, the claims as a whole, commands. */
function answerOf(judged) {
  const answers = judged.a.map(answerAt);
  const wholes = (judged.w ?? []).map((number) => {
    return h("p", { class: "whole" }, h("span", { class: "label" }, t("claim", { number })), prose(both(DATA.claims[number])));
  });
  const commands = [...new Set([judged.c, ...answers.flatMap(commandsOf)].filter(Boolean))];
  return [...judged.a.map(drawAnswer), ...wholes, commands.length ? h("p", { class: "how" }, t("try")) : "", ...commands.map(command)].filter((each) => each !== "");
}

function commandsOf({ c, check, r }) {
  return [c && `normlab claims ${c}${check ? " --compute" : ""}`, r && `normlab study run ${r.replace("/", " scale=")}`];
}

/** An answer by its number, and by what it is about, if the sentence says several things. */
function drawAnswer(reference) {
  const [answer, [, ...about]] = [answerAt(reference), [reference].flat()];
  const said = answer.s ? both(answer.s) : "";
  const verdict = answer.v ? [h("b", { class: "verdict" }, `${MARKS[answer.v]} ${verdictWord(answer.v)}`), said && t("colon")] : [];
  const named = about.length ? [h("i", {}, both(about)), answer.v ? " · " : ""] : [];
  const lines = [h("p", {}, named, verdict, prose(said))];
  const found = answer.f && both(answer.f);
  const number = Array.isArray(found) ? found.join(t("then")) : numberOf(answer, found);
  const label = (name) => h("span", { class: "label" }, t(name));
  if (number) lines.push(h("p", { class: "number" }, label("number"), number));
  if (answer.k || answer.check) lines.push(h("p", { class: "how" }, label("how.label"), how(answer)));
  if (answer.m) lines.push(h("p", { class: "how", lang: "en" }, label("to_measure"), h("code", {}, answer.m)));
  return h("div", { class: `found ${style(answer.v)}` }, lines);
}

/** A number of runs or timings: what it is, its value, both sides, what would be no difference, why it is open. */
function numberOf({ v, u, x, d, l, y }, found) {
  const [value, sides] = [found ?? x, sidesOf(d)];
  const shownValue = value && sides ? `${value}${t("brackets", { sides })}` : value || sides;
  const limits = l ? t(v === "no difference" ? "inside" : "margin", { limits: l }) : "";
  return [shownValue && `${u === undefined ? "" : `${both(DATA.names[u])} `}${shownValue}`, limits, y ? both(y) : ""].filter(Boolean).join(t("also")).replace(/([：）]) /, "$1").replace(/([ [])-(?=\d)/g, "$1−");
}

/** Both sides with their names, in the order of the statement; those of an interaction by place. */
function sidesOf(sides = []) {
  return sides.map(([name, value, least, place], number) => {
    const opens = place != null && place !== sides[number - 1]?.[3];
    const before = [number && t(opens ? "also" : "listed"), opens && both(DATA.names[place]) + t("colon")].filter(Boolean).join("");
    const after = least ? t("brackets", { sides: t("least", { least }) }) : "";
    return before + t("side", { name: both(DATA.names[name]), value }) + after;
  }).join("");
}

/** How we know, in words. */
function how({ k = "computed", check, n, i, g, r }) {
  const percent = i && shown(100 * i, 1).replace(".0", "");
  const said = prose(t(`how.${k === "runs" && !i ? "counted" : k}`, { check, n: n ?? 0, i: percent }));
  if (r) said.push(t("how.records"), h("code", {}, `results/${r}`));
  // Last, as nothing stands after it on its line.
  if (g !== undefined) said.push(t("also"), grade(both(DATA.grades[g])));
  return said;
}

/** A grade; a press on it says what its letter means. */
function grade(text) {
  const meaning = t(`grades.${text[0]}`);
  return h("details", { class: "grade" }, h("summary", { title: meaning }, t("how.grade", { grade: text })), ` (${meaning})`);
}

/** A command to type, with a button that copies it. */
function command(text) {
  const code = h("code", {}, text);
  const button = h("button", { class: "copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = t("copied");
    } catch {
      getSelection().selectAllChildren(code);
    }
  } }, t("copy"));
  return h("p", { class: "command" }, h("span", { "aria-hidden": "true" }, "$ "), code, button);
}

function drawTable(table, id) {
  const panel = h("div", { class: "answer", id: `${id}-answer`, hidden: true });
  let last = null;
  const cell = (own, row, column) => {
    if (!own.a) return h(column ? "td" : "th", column ? {} : { scope: "row" }, prose(both(own.t)));
    const select = (button) => {
      if (last && last !== button) {
        const found = [...panel.childNodes];
        last.show(false);
        panel.replaceChildren(...found);
        panel.hidden = false;
      }
      last = button;
      panel.prepend(h("p", { class: "cell" }, prose(both(table.rows[row][0].t) + t("colon") + both(own.t))));
    };
    const button = opener(own, `${id}-${row}-${column}`, panel, h("span", { class: "said" }, prose(both(own.t))), select);
    return h("td", { class: style(own.v) }, button);
  };
  const head = h("tr", {}, table.columns.map((words) => h("th", { scope: "col" }, both(words))));
  const rows = table.rows.map((row, number) => h("tr", {}, row.map((own, column) => cell(own, number, column))));
  const remark = (each) => !answerAt(each).f && !answerAt(each).v;
  const below = table.below.filter((each) => !remark(each)).map(drawAnswer);
  const own = OWN.test(JSON.stringify(table.rows)) ? [t("own")] : [];
  const notes = [...own, ...table.below.filter(remark).map((each) => both(answerAt(each).s))].map((text) => h("p", { class: "quiet" }, prose(text)));
  return h("div", { class: "tabled" },
    scrolling(both(table.title), null, h("thead", {}, head), h("tbody", {}, rows)),
    notes, panel, below.length ? h("details", {}, h("summary", {}, t("below")), below) : "");
}

/** The verdicts with their counts in this article; a press lets one of them stand out. */
function drawLegend() {
  const judged = judgedIn(article);
  const button = (name) => {
    const count = judged.filter((each) => each.v === name).length;
    return h("button", { class: style(name), "data-name": name, "aria-pressed": String(filter === name), onclick: () => {
      filter = filter === name ? "" : name;
      fade();
      drawLegend();
    } }, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[name]), h("span", { class: "said" }, verdictWord(name)), ` ${count}`);
  };
  const names = ["supported", "mixed", "contradicted", "undecided", "not measured"];
  redraw(byId("legend"), names.map(button));
  byId("legend").setAttribute("aria-label", t("legend"));
}

function drawArticleList() {
  const links = DATA.articles.map((each) => h("a", { href: `#${each.id}`, "aria-current": each === article ? "page" : null, title: both(each.title) }, t("article", { number: each.id })));
  const nav = byId("articles");
  nav.replaceChildren(...links);
  nav.setAttribute("aria-label", t("articles"));
}
