// An article in its own order. Its sentences and cells open to show what was found on them.

let article = DATA.articles[0];
let filter = ""; // a verdict whose sentences stand out, or none
const openSentences = new Set();
let lastShown = null; // the button of the explanation that opened last

/** The sentences and the cells of an article's tables. */
function judgedIn(each) {
  const passages = each.sections.flatMap((section) => section.body);
  return passages.flatMap((passage) => (passage.table ? each.tables[passage.table].rows.flat() : [passage]));
}

function drawArticle() {
  const sections = article.sections.map((section, number) => h("section", {},
    h("h3", {}, prose(both(section.title))),
    section.body.map((passage, place) => drawPassage(passage, `s${article.id}-${number + 1}-${place + 1}`)),
  ));
  byId("content").replaceChildren(h("h2", {}, both(article.title)), ...sections);
  fade();
}

/** Highlight the sentences with the chosen verdict. */
function fade() {
  document.querySelectorAll("#content .opener").forEach((each) => each.classList.toggle("faded", filter !== "" && !each.parentNode.matches(`.${style(filter)}`)));
}

function drawPassage(passage, id) {
  if (passage.piece) return drawPiece(passage.piece);
  if (passage.table) return drawTable(article.tables[passage.table], id);
  const text = prose(both(passage.text));
  if (!passage.explanations.length) return h("p", { class: "plain" }, text);
  const panel = h("div", { class: "explanation", id: `${id}-explanation`, hidden: true });
  const button = opener(passage, id, panel, h("span", { class: "said" }, text));
  return h("div", { class: `passage ${style(passage.verdict)}`, id }, button, panel);
}

/** The CSS class of a verdict, which sets its colour and line. */
function style(verdict) {
  return verdict ? verdict.replace(" ", "-") : "remark";
}

/** The button of a sentence or a cell, which shows and hides the panel with its explanation. */
function opener(judged, id, panel, label, select = () => {}) {
  const mark = MARKS[judged.verdict] ?? "i";
  const word = judged.verdict ? verdictWord(judged.verdict) : t("remark");
  const button = h("button", { class: "opener", "aria-expanded": "false", "aria-controls": panel.id, title: word },
    h("span", { class: "mark", "aria-hidden": "true" }, mark), label, h("span", { class: "sr" }, ` (${word})`));
  const toggle = (show) => {
    button.setAttribute("aria-expanded", String(show));
    panel.hidden = !show;
    if (!show) return openSentences.delete(id);
    openSentences.add(id);
    lastShown = button;
    panel.replaceChildren(...explanationsOf(judged));
    return select(button);
  };
  button.addEventListener("click", () => toggle(button.getAttribute("aria-expanded") !== "true"));
  button.show = toggle;
  if (openSentences.has(id)) toggle(true);
  return button;
}

/** Arrow keys move between sentences. If an explanation is open, left and right open the next one instead; Escape closes it. */
function walk(event) {
  const { key, target } = event;
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[key];
  const sideways = /t$/.test(key);
  const panel = target.closest(".explanation");
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

/** What was found: each explanation with its place and how we know, the answers to whole claims, and commands. */
function explanationsOf(judged) {
  const explanations = judged.explanations.map(explanationAt);
  const wholes = judged.claims.map((number) => h("p", { class: "whole" }, h("span", { class: "label" }, t("claim", { number })), prose(both(DATA.claims[number]))));
  const commands = [...new Set([judged.command, ...explanations.flatMap(commandsOf)].filter(Boolean))];
  return [...judged.explanations.map(drawExplanation), ...wholes, commands.length ? h("p", { class: "how" }, t("try")) : "", ...commands.map(command)].filter((each) => each !== "");
}

function commandsOf({ claim, check, study }) {
  return [claim && `normlab claims ${claim}${check ? " --compute" : ""}`, study && `normlab study run ${study.replace("/", " scale=")}`];
}

/** Draw an explanation, preceded by what it is about if the sentence says several things. */
function drawExplanation(reference) {
  const [explanation, subject] = [explanationAt(reference), DATA.subjects[[reference].flat()[1]]];
  const statement = explanation.statement ? both(explanation.statement) : "";
  const verdict = explanation.verdict ? [h("b", { class: "verdict" }, `${MARKS[explanation.verdict]} ${verdictWord(explanation.verdict)}`), statement && t("colon")] : [];
  const about = subject ? [h("i", {}, prose(both(subject))), explanation.verdict ? " · " : ""] : [];
  const lines = [h("p", {}, about, verdict, prose(statement))];
  const label = (name) => h("span", { class: "label" }, t(name));
  if (explanation.texts.length) lines.push(h("p", { class: "number" }, label("number"), prose(explanation.texts.map(both).join(t("then")))));
  if (explanation.kind !== "remark") lines.push(h("p", { class: "how" }, label("how.label"), how(explanation)));
  if (explanation.command) lines.push(h("p", { class: "how", lang: "en" }, label("to_measure"), h("code", {}, explanation.command)));
  return h("div", { class: `found ${style(explanation.verdict)}` }, lines);
}

/** How we know, in words. */
function how({ kind, check, seeds, rounds, confidence, grade: number, study }) {
  const counted = kind === "runs" && !confidence;
  const percent = confidence && shown(100 * confidence, 1).replace(".0", "");
  const words = prose(t(`how.${counted ? "counted" : kind}`, { check, seeds, rounds, percent }));
  if (study) words.push(t("how.records"), h("code", {}, `results/${study}`));
  // Last, because nothing may follow a grade on its line.
  if (number != null) words.push(t("also"), grade(both(DATA.grades[number])));
  return words;
}

/** A grade. Pressing it shows what its letter means. */
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

/** A table of the article. The explanation of a cell opens below the cell's row. */
function drawTable(table, id) {
  const panel = h("div", { class: "explanation", id: `${id}-explanation`, hidden: true });
  const explanationRow = h("tr", { class: "explanation-row" }, h("td", { colspan: table.columns.length }, panel));
  let last = null;
  const cell = (own, row, column) => {
    if (!own.explanations.length) return h(column ? "td" : "th", column ? {} : { scope: "row" }, prose(both(own.text)));
    const select = (button) => {
      if (last && last !== button) {
        const found = [...panel.childNodes];
        last.show(false);
        panel.replaceChildren(...found);
        panel.hidden = false;
      }
      last = button;
      button.closest("tr")?.after(explanationRow);
      panel.prepend(h("p", { class: "cell" }, prose(both(table.rows[row][0].text) + t("colon") + both(own.text))));
    };
    const button = opener(own, `${id}-${row}-${column}`, panel, h("span", { class: "said" }, prose(both(own.text))), select);
    return h("td", { class: style(own.verdict) }, button);
  };
  const head = h("tr", {}, table.columns.map((words) => h("th", { scope: "col" }, both(words))));
  const rows = table.rows.map((row, number) => h("tr", {}, row.map((own, column) => cell(own, number, column))));
  const remark = (each) => explanationAt(each).kind === "remark";
  const below = table.below.filter((each) => !remark(each)).map(drawExplanation);
  const own = OWN.test(JSON.stringify(table.rows)) ? [t("own")] : [];
  const notes = [...own, ...table.below.filter(remark).map((each) => both(explanationAt(each).statement))].map((text) => h("p", { class: "quiet" }, prose(text)));
  const body = h("tbody", {}, rows, explanationRow);
  last?.closest("tr").after(explanationRow);
  return h("div", { class: "tabled" },
    scrolling(both(table.title), null, h("thead", {}, head), body),
    notes, below.length ? h("details", {}, h("summary", {}, t("below")), below) : "");
}

/** The verdicts with their counts in the article shown. Pressing one highlights its sentences. */
function drawLegend() {
  const judged = judgedIn(article);
  const button = (name) => {
    const count = judged.filter((each) => each.verdict === name).length;
    return h("button", { class: style(name), "data-name": name, "aria-pressed": String(filter === name), onclick: () => {
      filter = filter === name ? "" : name;
      fade();
      drawLegend();
    } }, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[name]), h("span", { class: "said" }, verdictWord(name)), ` ${count}`);
  };
  const names = ["supported", "mixed", "contradicted", "no difference", "undecided", "not measured"];
  redraw(byId("legend"), h("span", { class: "quiet" }, t("article", { number: article.id }) + t("colon")), names.map(button));
  byId("legend").setAttribute("aria-label", t("legend"));
}

function drawArticleList() {
  const links = DATA.articles.map((each) => h("a", { href: `#${each.id}`, "aria-current": each === article ? "page" : null, title: both(each.title) }, t("article", { number: each.id })));
  const nav = byId("articles");
  nav.replaceChildren(...links);
  nav.setAttribute("aria-label", t("articles"));
}
