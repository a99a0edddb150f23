// Keys, and the page that explains keys and words.

const KEYS = [
  ["1 2 3", "summary, curves, rollouts", null],
  ["j", "next episode in the list", () => moveInList(1)],
  ["k", "episode before", () => moveInList(-1)],
  ["]", "next step", () => moveStep(1)],
  ["[", "step before", () => moveStep(-1)],
  [".", "state of the environment after", () => moveFrame(1)],
  [",", "state before", () => moveFrame(-1)],
  ["g", "members of the group side by side", toggleSide],
  ["c", "next colour of the tokens", nextColour],
  ["x", "given text exactly as the model reads it", toggleExact],
  ["/", "search", () => $("search") && $("search").focus()],
  ["t", "theme: as the system, light, dark", nextTheme],
  ["?", "this page", showHelp],
  ["← →", "in a chart: read the steps (Enter opens one); in a reply: read the tokens", null],
  ["↑ ↓", "in the list: choose an episode", null],
];
const PARTS = ["summary", "curves", "rollouts"];

const WORDS = [
  ["group, member", "a group is the episodes that share one initial state; its members differ by chance and sampling"],
  ["mask", "the tokens that the policy sampled; only they carry loss. Given text never does"],
  ["trained / left out", "whether the group took part in the update, or the filter left it out"],
  ["log-probability", "of the sampled token, under the distribution it was drawn from (nats)"],
  ["entropy", "of the whole distribution at that token (nats)"],
  ["advantage", "mean over the turn's tokens: how much better than expected the turn was judged"],
  ["collapsed", "signs of the Echo Trap: a reply that goes in circles, or the one wording that most turns give, without success"],
  ["tokens", "kept for whole groups drawn at random (16 episodes a step at least) and for every episode out of the ordinary"],
];

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") tip.hide();
    if (event.target.matches("input, select, textarea") || $("keys").open) return;
    if (["1", "2", "3"].includes(event.key)) return goto({ ...view, part: PARTS[event.key - 1] });
    const found = KEYS.find(([key, , act]) => act && key === event.key);
    if (!found) return;
    const inViewer = found[2] !== nextTheme && found[2] !== showHelp;
    if (inViewer && view.part !== "rollouts") return;
    event.preventDefault();
    found[2]();
  });
  $("help").addEventListener("click", showHelp);
  $("theme").addEventListener("click", nextTheme);
}

function showHelp() {
  const list = (rows, tag) => el("dl.help", {}, rows.map(([what, about]) => el("div", {}, el("dt", {}, el(tag, {}, what)), el("dd", {}, about))));
  const close = el("button", { type: "button", onclick: () => $("keys").close() }, "Close");
  put($("keys"), el("div.dialoghead", {}, el("h2", {}, "Keys"), close), list(KEYS, "kbd"), el("h2", {}, "Words"), list(WORDS, "strong"));
  $("keys").showModal();
}

function nextColour() {
  const modes = Object.keys(MODES);
  setColour(modes[(modes.indexOf(tokenState.mode) + 1) % modes.length]);
}

const THEMES = ["auto", "light", "dark"];

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % THEMES.length]);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  stored.set("theme", theme);
}
