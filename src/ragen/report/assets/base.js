"use strict";
// Elements, numbers and texts. All text from runs reaches the page as text nodes: nothing here makes HTML from strings.

const $ = (id) => document.getElementById(id);

/** An element: el("p.note", {title: "x", onclick: f}, "text", child, …). Null children are left out. */
function el(kind, properties, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && !name.includes("-")) made[name] = value;
    else made.setAttribute(name, value);
  }
  fill(made, ...children);
  return made;
}

/** An SVG element with attributes. */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  fill(made, ...children);
  return made;
}

/** Append children; strings become text. */
function fill(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

/** Replace what is inside an element. */
function put(parent, ...children) {
  parent.replaceChildren();
  return fill(parent, ...children);
}

/** Text in which characters that are not seen, or that turn the reading direction, are spelled out. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, (c) =>
    c === "\n" || c === "\t" ? c : "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"),
  );
}

/** A number in at most `digits` significant digits; "–" for none. */
function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

const signed = (value) => (value > 0 ? "+" : "") + number(value, 3);
const percent = (value) => (value === null || value === undefined ? "–" : value.toFixed(3).replace(/^(-?)0(?=\.)/, "$1").replace("-", "−"));
const interval = (pair) => (pair ? `[${pair.map(percent).join(", ")}]` : "");

function duration(seconds) {
  if (seconds < 100) return `${number(seconds, 3)} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${number(seconds / 3600, 3)} h`;
}

/** What was chosen in this browser; a report opened from disk may have no storage. */
const stored = {
  get(name) {
    try {
      return localStorage.getItem(`ragen-${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`ragen-${name}`, value);
    } catch {
      // the choice holds until the page is closed
    }
  },
};

/** The text beside the pointer or the focused token. */
const tip = {
  show(text, x, y) {
    const box = $("tip");
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(x + 12, innerWidth - box.offsetWidth - 8);
    const below = y + 18 + box.offsetHeight < innerHeight;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, below ? y + 18 : y - box.offsetHeight - 10)}px`;
  },
  hide() {
    $("tip").hidden = true;
  },
};

function fail(error) {
  const box = $("problem");
  box.hidden = false;
  box.textContent = visible(String(error && error.message ? error.message : error));
}
