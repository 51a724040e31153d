// Elements, words in both languages, and numbers as text.

let shared; // the texts that the data has more than once; "=3" stands for number 3
const DATA = JSON.parse(document.getElementById("data").textContent, (key, value) => {
  if (key === "shared") shared = value;
  return shared && typeof value === "string" && value[0] === "=" ? shared[value.slice(1)] : value;
});
const MARKS = { supported: "✓", contradicted: "✗", mixed: "◐", "no difference": "=", undecided: "?", "not measured": "○" };
let language = 0; // 0 Chinese, 1 English

/** An element with attributes, listeners (onclick) and children. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
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

/** Words of the page by dotted key, with {names} filled in. */
function t(key, values = {}) {
  const pair = key.split(".").reduce((node, name) => node?.[name], DATA.words);
  if (!pair) throw new Error(`no words ${key}`);
  return both(pair).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** Text in which `code` stands between backticks. */
function prose(text) {
  return text.split("`").map((part, number) => (number % 2 ? h("code", {}, part) : part));
}

function verdictWord(name) {
  return both(DATA.verdicts[name]);
}

/** A number as people read it: a few digits, a true minus, no minus zero. */
function shown(value, digits = 2) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  let text = size >= 1e6 || (digits > 2 && size > 0 && size < 10 ** -digits / 2) ? value.toExponential(1).replace(/e([+-])(\d+)/, (_, sign, power) => `·10${[...(sign === "-" ? `-${power}` : power)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`) : size >= 1000 ? Math.round(value).toLocaleString("en-US") : value.toFixed(size >= 100 ? 0 : digits);
  if (/^-[0.]+$/.test(text)) text = text.slice(1);
  return text.replace("-", "−");
}

/** An input as it was typed: 0.1, 999, -5. */
function plain(value) {
  return String(Math.round(value * 1e4) / 1e4).replace("-", "−");
}

/** A row of buttons of which one is pressed. */
function choice(label, options, chosen, choose) {
  const buttons = options.map(([name, text, title]) => h("button", {
    type: "button", "aria-pressed": String(name === chosen), "data-name": name, title,
    onclick: () => choose(name),
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** A field for a number; `change` gets each number that is typed. */
function field(name, value, label, change) {
  return h("input", { type: "text", inputmode: "decimal", autocomplete: "off", value: String(value), "data-name": name, "aria-label": label, oninput: (event) => {
    const text = event.target.value.trim().replace("−", "-");
    if (text !== "" && Number.isFinite(Number(text)) && Math.abs(Number(text)) <= 1e9) change(Number(text));
  } });
}

/** Redraw an element's content; the control with the focus keeps it, and what was typed. */
function redraw(root, ...children) {
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const kept = focused && { name: focused.dataset.name, value: focused.value, at: focused.selectionStart };
  root.replaceChildren(...children.flat(Infinity).filter((child) => child !== ""));
  const control = kept?.name && root.querySelector(`[data-name="${CSS.escape(kept.name)}"]`);
  if (!control) return;
  control.focus({ preventScroll: true });
  if (control.type !== "text") return;
  control.value = kept.value;
  control.setSelectionRange(kept.at, kept.at);
}
