// Helpers for DOM elements, for words in both languages, and for numbers as text.

const DATA = JSON.parse(document.getElementById("data").textContent);


/**
 * The types of `normlab/articles/page_data.py`, and all fields of the classes in `explanation.py`:
 * @typedef {[string] | [string, string]} Pair a text in Chinese and in English, or a single text if both are the same
 * @typedef {number | [number, number]} Reference an explanation, and the subject that it is about
 * @typedef {{text: Pair, explanations: Reference[], claims: number[], verdict: string, command?: string}} Sentence
 * @typedef {{kind: string, statement?: Pair, claim?: number, verdict: string, grade?: number, finding?: Pair,
 *   findings?: number[], texts: Pair[], seeds?: number, confidence?: number, rounds?: number, check?: string,
 *   study?: string, command?: string}} Explanation
 */

/** Turn a row into an object. The data has the names of its values, keyed by the row's kind. */
function named(kind, values) {
  return { kind, ...Object.fromEntries(values.map((value, place) => [DATA.columns[kind][place], value])) };
}

const KINDS = Object.keys(DATA.columns);
const EXPLANATIONS = DATA.explanations.map(([kind, ...values]) => named(KINDS[kind], values));
for (const explanation of EXPLANATIONS) {
  explanation.texts = [explanation.finding ?? [], ...(explanation.findings ?? []).map((number) => DATA.findings[number])].filter((pair) => pair.length);
  explanation.study = DATA.studies[explanation.study];
  explanation.verdict = DATA.verdict_names[explanation.verdict] ?? (explanation.kind in DATA.verdicts ? explanation.kind : ""); // "not measured" is both
}

for (const piece of Object.values(DATA.pieces)) piece.norms = Object.fromEntries(piece.norms.map((name) => [name, DATA.norms[name]]));

/** The explanation of a reference: its index, or its index and that of the subject that it is about. */
function explanationAt(reference) {
  return EXPLANATIONS[[reference].flat()[0]];
}

/** A sentence or a cell. If it has no verdict of its own, it gets that of the first explanation. */
function sentence(values) {
  const { verdict, explanations = [], claims = [], ...rest } = named("sentence", values);
  return { explanations, claims, verdict: DATA.verdict_names[verdict] || (explanations.length && explanationAt(explanations[0]).verdict), ...rest };
}

for (const { sections, tables } of DATA.articles) {
  for (const section of sections) section.body = section.body.map((each) => (Array.isArray(each) ? sentence(each) : each));
  for (const table of Object.values(tables)) table.rows = table.rows.map((row) => row.map(sentence));
}
const MARKS = { supported: "✓", contradicted: "✗", mixed: "◐", "no difference": "=", undecided: "?", "not measured": "○" };
const OWN = /(✅|❌|⚠️)/;
const FIRST = 4; // the norms that are shown before a press on "more"
let allNorms = false;
let language = 0; // 0 Chinese, 1 English

const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (onclick) and children. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (tag === "button") element.type = "button"; // submits nothing
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== ""));
  return element;
}

/** The text of a pair [Chinese, English] in the language of the page. */
function both(pair) {
  return pair[language] ?? pair[0];
}

/** The words of the page at a dotted key, with {names} filled in. */
function t(key, values = {}) {
  const pair = key.split(".").reduce((node, name) => node?.[name], DATA.words);
  if (!pair) throw new Error(`no words ${key}`);
  return both(pair).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** Text with `code` in backticks as code elements, and the articles' ticks and crosses in spans. */
function prose(text) {
  const own = (part) => part.split(OWN).map((each) => (OWN.test(each) ? h("span", { class: "own", title: t("own") }, each) : each));
  return text.split("`").map((part, number) => (number % 2 ? h("code", {}, part) : own(part)));
}

function verdictWord(name) {
  return both(DATA.verdicts[name]);
}

/** A number with a few digits, a true minus sign, and 0 instead of -0. */
function shown(value, digits = 2) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  const power = size >= 1e6 || (digits > 2 && size > 0 && size < 10 ** -digits / 2);
  let text = size >= 1000 ? Math.round(value).toLocaleString("en-US") : value.toFixed(size >= 100 ? 0 : digits);
  if (power) text = value.toExponential(1).replace(/e\+?(.*)/, (_, raised) => `·10${[...raised].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`);
  if (/^-[0.]+$/.test(text)) text = text.slice(1);
  return text.replace("-", "−");
}

/** An input as it was typed: 0.1, 999, -5. */
function plain(value) {
  return String(Math.round(value * 1e4) / 1e4).replace("-", "−");
}

/** A row of buttons, one of which is pressed. */
function choice(label, options, chosen, choose) {
  const buttons = options.map(([name, text, title]) => h("button", {
    "aria-pressed": String(name === chosen), "data-name": name, title,
    onclick: () => choose(name),
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** The choice of a norm, by its Chinese or its config name, and below it what it pools. "More" shows all but the first four norms. */
function normChoice(norms, chosen, choose, says = both(DATA.words.norms[chosen])) {
  const names = Object.keys(norms);
  const folded = !allNorms && names.length > FIRST;
  const row = choice(t("norm"), (folded ? names.slice(0, FIRST) : names).map((name) => [name, language ? name : DATA.words.norms[name][0].split("：")[0], both(DATA.words.norms[name])]), chosen, choose);
  const more = () => {
    allNorms = true;
    choose(chosen);
  };
  if (folded) row.append(h("button", { "data-name": names[FIRST], onclick: more }, t("more", { count: names.length - FIRST })));
  return [row, h("p", { class: "quiet" }, says)];
}

/** A table in a box that scrolls sideways. If it is wider than the box, a line above says so, and the edge fades. */
function scrolling(label, style, ...rows) {
  const table = h("table", { class: style }, h("caption", {}, label), rows);
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
  const hint = h("p", { class: "hint quiet", "aria-hidden": "true" }, t("scroll"));
  const look = () => {
    const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("goes-on", left > 2);
    hint.hidden = box.scrollWidth - box.clientWidth <= 2;
  };
  box.addEventListener("scroll", look);
  const observer = new ResizeObserver(look);
  [box, table].forEach((each) => observer.observe(each));
  return h("div", {}, hint, box);
}

/** An input for a number. `change` is called with each number that is typed. */
function field(name, value, label, change) {
  return h("input", { type: "text", inputmode: "decimal", autocomplete: "off", value: String(value), "data-name": name, "aria-label": label, oninput: (event) => {
    const text = event.target.value.trim().replace("−", "-");
    if (text !== "" && Number.isFinite(Number(text)) && Math.abs(Number(text)) <= 1e9) change(Number(text));
  } });
}

/** Redraw an element's content. The focused control keeps the focus and what was typed. */
function redraw(root, ...children) {
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const kept = focused && { name: focused.dataset.name, value: focused.value, at: focused.selectionStart };
  const scrolled = [...root.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  root.replaceChildren(...children.flat(Infinity).filter((child) => child !== ""));
  root.querySelectorAll(".scroll").forEach((box, number) => { box.scrollLeft = scrolled[number]; });
  const control = kept?.name && root.querySelector(`[data-name="${CSS.escape(kept.name)}"]`);
  if (!control) return;
  control.focus({ preventScroll: true });
  if (control.type !== "text") return;
  control.value = kept.value;
  control.setSelectionRange(kept.at, kept.at);
}
