// Which episodes are listed: filters, search, order. The list draws only the rows that are seen.

const view = { part: "summary", run: 0, step: null, place: null, side: false };
const filters = { outcome: "all", sign: "all", training: "all", tokens: "all", order: "stored", query: "", scope: "step" };
const ROW = 28; // pixels
let listed = []; // [step, place] of each episode in the list
let searching = 0; // the newest search; an older one gives up

const SIGNS = { all: "any", odd: "out of the ordinary", collapsed: "collapsed", invalid: "invalid format", lost: "lost to an error", cut: "cut short" };
const SIGN_BITS = { odd: 1 | 2 | 4 | 8, collapsed: 4 | 8, invalid: 2, lost: 1, cut: 16 };
const CHOICES = {
  outcome: ["Outcome", { all: "any", won: "success", failed: "no success" }],
  sign: ["Sign", SIGNS],
  training: ["Training", { all: "any", trained: "trained", left: "not trained" }],
  tokens: ["Tokens", { all: "any", here: "in this page" }],
  order: ["Order", { stored: "as stored", best: "highest return", worst: "lowest return", longest: "most tokens" }],
  scope: ["Steps", { step: "this step", all: "all steps" }],
};

/** The filters, the search field and the place of the list. */
function filterBar() {
  const choice = (name) => {
    const [title, options] = CHOICES[name];
    const change = (event) => {
      filters[name] = event.target.value;
      listEpisodes();
    };
    const box = el("select", { onchange: change }, Object.entries(options).map(([value, text]) => el("option", { value }, text)));
    box.value = filters[name];
    return el("label.field", {}, title, box);
  };
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "search texts",
    "aria-label": "Search replies and observations",
    value: filters.query,
    oninput: debounced((event) => {
      filters.query = event.target.value;
      listEpisodes();
    }),
  });
  const { runs } = data.head;
  const idle = { training: !runs.some((run) => run.trains), tokens: !runs.some((run) => run.tokens), scope: runs.every((run) => !run.trains) };
  return el("div.filters", {}, search, Object.keys(CHOICES).filter((name) => !idle[name]).map(choice));
}

function debounced(f, wait = 250) {
  let timer;
  return (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(event), wait);
  };
}

/** Make the list anew: columns first, then, where a text is looked for, the texts step by step. */
async function listEpisodes() {
  const mine = ++searching;
  const indices = data.indices[view.run];
  const steps = filters.scope === "all" ? [...indices.keys()].sort((a, b) => a - b) : [view.step];
  const chosen = steps.filter((step) => indices.has(step)).flatMap((step) => placesIn(indices.get(step)).map((place) => [step, place]));
  const total = steps.reduce((sum, step) => sum + (indices.has(step) ? indices.get(step).group.length : 0), 0);
  if (filters.query.trim()) {
    listed = [];
    await search(chosen, filters.query.trim().toLowerCase(), mine, total);
  } else {
    listed = chosen;
    showCount(`${listed.length} of ${total} episodes`);
  }
  if (mine !== searching) return;
  order(indices);
  drawList();
}

function placesIn(index) {
  const places = [];
  for (let i = 0; i < index.group.length; i++) if (passes(index, i)) places.push(i);
  return places;
}

function passes(index, i) {
  if (filters.outcome !== "all" && (index.success[i] === 1) !== (filters.outcome === "won")) return false;
  if (filters.sign !== "all" && !(index.flags[i] & SIGN_BITS[filters.sign])) return false;
  if (filters.tokens !== "all" && !index.detail[i]) return false;
  return filters.training === "all" || (index.trained[i] === 1) === (filters.training === "trained");
}

/** Keep the chosen episodes in which the words stand, in a reply or an observation. */
async function search(chosen, words, mine, total) {
  const byStep = new Map();
  for (const [step, place] of chosen) byStep.set(step, [...(byStep.get(step) || []), place]);
  let seen = 0;
  for (const [step, places] of byStep) {
    const records = await openStep(view.run, step);
    if (mine !== searching) return;
    for (const place of places) if (holds(records[place], words)) listed.push([step, place]);
    seen += 1;
    showCount(`${listed.length} of ${total} episodes; searched ${seen} of ${byStep.size} steps`);
  }
}

const holds = (record, words) =>
  record.error.toLowerCase().includes(words) ||
  record.turns.some((turn) => [turn.said, turn.seen, turn.next].some((text) => text.toLowerCase().includes(words)));

function order(indices) {
  if (filters.order === "stored") return;
  const value = (row) => {
    const index = indices.get(row[0]);
    return filters.order === "longest" ? index.tokens[row[1]] : index.ret[row[1]];
  };
  const sign = filters.order === "worst" ? 1 : -1;
  listed = listed.map((row) => [value(row), row]).sort((a, b) => sign * (a[0] - b[0])).map(([, row]) => row);
}

function showCount(text) {
  $("count").textContent = text;
}

function listBox() {
  const box = el("div.list", { id: "list", tabIndex: 0, role: "listbox", "aria-label": "Episodes", onscroll: drawRows, onkeydown: listKeys });
  box.append(el("div", { id: "rows", role: "presentation" }));
  return el("div.listpart", {}, el("p.note", { id: "count", role: "status" }), el("div.listhead", { "aria-hidden": "true" }, ROW_TITLES.map((t) => el("span", {}, t))), box);
}

const ROW_TITLES = ["step", "group", "mem.", "", "return", "turns", "signs"];

function drawList() {
  $("rows").style.height = `${listed.length * ROW}px`;
  const at = listedAt();
  const box = $("list");
  if (at >= 0 && (at * ROW < box.scrollTop || (at + 1) * ROW > box.scrollTop + box.clientHeight)) {
    box.scrollTop = Math.max(0, at * ROW - box.clientHeight / 2);
  }
  drawRows();
}

const listedAt = () => listed.findIndex(([step, place]) => step === view.step && place === view.place);

/** Only the rows in sight, and a few around them. */
function drawRows() {
  const box = $("list");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
  const last = Math.min(listed.length, Math.ceil((box.scrollTop + (box.clientHeight || 400)) / ROW) + 5);
  const rows = [];
  for (let i = first; i < last; i++) rows.push(listRow(i));
  put($("rows"), rows);
  box.setAttribute("aria-activedescendant", listedAt() >= first && listedAt() < last ? `row${listedAt()}` : "");
}

function listRow(i) {
  const [step, place] = listed[i];
  const index = data.indices[view.run].get(step);
  const won = index.success[place] === 1;
  const signs = FLAGS.filter(([bit]) => index.flags[place] & bit).map(([, name]) => name);
  const { trains } = data.head.runs[view.run];
  if (trains && !index.trained[place]) signs.push("left out");
  const group = index.group[place] < 0 ? "–" : numberInStep(view.run, index.group[place]);
  const cells = [trains ? step : "–", group, index.member[place], won ? "✓" : "✗", number(index.ret[place], 3), index.turns[place], signs.join(" ")];
  const row = el(
    "div.row",
    {
      id: `row${i}`,
      role: "option",
      "aria-selected": String(step === view.step && place === view.place),
      "aria-setsize": listed.length,
      "aria-posinset": i + 1,
      "aria-label": `${trains ? `step ${step}, ` : ""}group ${group}, member ${index.member[place]}, ${won ? "success" : "no success"}, return ${number(index.ret[place], 3)}, ${signs.join(", ")}`,
      onclick: () => goto({ ...view, part: "rollouts", step, place }),
    },
    cells.map((cell) => el("span", {}, cell)),
  );
  row.style.top = `${i * ROW}px`;
  return row;
}

function listKeys(event) {
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };
  if (!(event.key in moves)) return;
  event.preventDefault();
  moveInList(moves[event.key]);
}

/** Go so many episodes further in the list. */
function moveInList(by) {
  if (!listed.length) return;
  const at = Math.max(0, Math.min(listed.length - 1, (listedAt() < 0 ? -1 : listedAt()) + by));
  goto({ ...view, part: "rollouts", step: listed[at][0], place: listed[at][1] });
}
