// The viewer: choose run, step, group and member; the list on one side, the episode or its whole group on the other.

let shown = null; // the article in sight
let opening = 0; // the newest step asked for; what comes late is dropped

/** The fixed parts of the viewer; `openRollouts` fills them. */
function drawRollouts() {
  put(
    $("rollouts"),
    el("div.bar", { id: "chooser" }),
    el("div.viewer", {}, el("aside", { "aria-label": "Episodes to choose from" }, filterBar(), listBox()), el("div", { id: "reader" })),
  );
  openRollouts();
}

/** Show what `view` names. */
async function openRollouts() {
  const mine = ++opening;
  const run = data.head.runs[view.run];
  if (!run.steps.length) {
    put($("reader"), el("p.note", {}, run.trains ? "No step's episodes are stored (run.trajectories_every 0, or no step is done yet)." : "No episode has been played yet."));
    return;
  }
  const steps = run.steps.map(([step]) => step);
  if (!steps.includes(view.step)) view.step = nearestStep(steps, view.step);
  await readIndex(view.run, view.step);
  const index = data.indices[view.run].get(view.step);
  view.place = view.place === null ? firstPlace(index) : Math.min(view.place, index.group.length - 1);
  const records = await openStep(view.run, view.step);
  if (mine !== opening) return;
  drawChooser(steps, index);
  drawReader(index, records);
  await listEpisodes();
}

/** The first trained episode with all tokens of its group, of its group's or its own at least; else any such. */
function firstPlace(index) {
  const whole = index.group.map((group) => isWhole(index, group));
  const wishes = [(i) => whole[i] && index.trained[i], (i) => whole[i], (i) => index.detail[i]];
  return Math.max(0, wishes.map((wish) => index.group.findIndex((_, i) => wish(i))).find((i) => i >= 0) ?? 0);
}

const nearestStep = (steps, wanted) =>
  wanted === null ? steps[steps.length - 1] : steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best));

function drawChooser(steps, index) {
  const focused = document.activeElement && document.activeElement.id;
  put(
    $("chooser"),
    data.head.runs.length > 1 ? picker("pick-run", "Run", data.head.runs.map((run, i) => [i, visible(run.name)]), view.run, (run) => goto({ ...view, run, place: null })) : null,
    data.head.runs[view.run].trains ? stepChooser(steps) : null,
    picker("pick-group", "Group", groupsOf(index), index.group[view.place], (group) => goto({ ...view, place: index.group.indexOf(group) })),
    picker("pick-member", "Member", membersOf(index).map((i) => [i, index.member[i]]), view.place, (place) => goto({ ...view, place })),
    el("button", { id: "side", type: "button", "aria-pressed": String(view.side), title: "Members side by side (g)", onclick: toggleSide }, "Side by side"),
    data.head.runs[view.run].tokens ? tokenControls() : null,
    data.live ? followButton() : null,
  );
  if (focused && $(focused) && $("chooser").contains($(focused))) $(focused).focus();
}

/** How the sampled tokens are coloured, and whether the given ones are shown as they are. */
const tokenControls = () => [
  picker("pick-colour", "Colour", Object.entries(MODES), tokenState.mode, setColour),
  el("button", { id: "exact", type: "button", "aria-pressed": String(tokenState.exact), title: "Given text as the model reads it, with its control tokens (x)", onclick: toggleExact }, "Exact context"),
];

function picker(id, title, options, chosen, change) {
  const values = options.map(([value]) => value);
  const box = el("select", { id, onchange: () => change(values[box.selectedIndex]) }, options.map(([, text]) => el("option", {}, text)));
  box.selectedIndex = values.indexOf(chosen);
  return el("label.field", {}, title, box);
}

function stepChooser(steps) {
  const at = steps.indexOf(view.step);
  const slider = el("input", {
    id: "pick-step",
    type: "range",
    min: 0,
    max: steps.length - 1,
    value: at,
    "aria-valuetext": `step ${view.step}`,
    oninput: () => (said.textContent = String(steps[slider.value])),
    onchange: () => goto({ ...view, step: steps[slider.value], place: null }),
  });
  const said = el("output", {}, String(view.step));
  const button = (sign, name, by) =>
    el("button", { type: "button", "aria-label": name, title: `${name} (${by < 0 ? "[" : "]"})`, disabled: !steps[at + by], onclick: () => moveStep(by) }, sign);
  return el("span.field.stepper", {}, el("label", { htmlFor: "pick-step" }, "Step"), button("◀", "Step before", -1), slider, button("▶", "Next step", 1), said);
}

function moveStep(by) {
  const steps = data.head.runs[view.run].steps.map(([step]) => step);
  const step = steps[steps.indexOf(view.step) + by];
  if (step !== undefined) goto({ ...view, step, place: null });
}

const groupsOf = (index) => {
  const first = [...new Set(index.group)];
  return first.map((group) => [group, groupName(view.run, index, index.group.indexOf(group)) + tokensKept(index, group)]);
};

/** Why a step opens at a group in the middle: it is the one whose tokens are all in the page. */
const tokensKept = (index, group) => (isWhole(index, group) && index.detail.includes(0) ? " · with all tokens" : "");

const isWhole = (index, group) => group >= 0 && index.group.every((other, i) => other !== group || index.detail[i]);

const membersOf = (index) => index.group.flatMap((group, i) => (group === index.group[view.place] ? [i] : []));

function drawReader(index, records) {
  const top = Math.max(0, ...records.flatMap((record) => record.turns.map((turn) => Math.abs(turn.adv || 0))));
  const places = membersOf(index);
  const peers = places.map((place) => records[place]);
  const episode = (place) => ({ run: view.run, step: view.step, place, index, record: records[place], peers, top });
  shown = view.side ? groupView(places.map(episode)) : episodeView(episode(view.place), false);
  put($("reader"), tokenKey(top), shown);
  for (const text of shown.querySelectorAll(".given .text")) text.scrollTop = text.scrollHeight; // the state stands last
  const chosen = shown.querySelector("article.chosen");
  if (chosen) chosen.parentElement.scrollLeft = chosen.offsetLeft - 40;
}

function toggleSide() {
  goto({ ...view, side: !view.side });
}

function toggleExact() {
  tokenState.exact = !tokenState.exact;
  openRollouts();
}

function setColour(mode) {
  tokenState.mode = mode;
  stored.set("colour", mode);
  openRollouts();
}

function moveFrame(by) {
  const articles = shown ? [shown, ...shown.querySelectorAll("article")] : [];
  for (const article of articles) if (article.move) article.move(by);
}

/** In a page that watches: go to each new step as it comes. */
function followButton() {
  const change = () => {
    view.follow = !view.follow;
    if (view.follow) goto({ ...view, step: data.head.runs[0].steps[data.head.runs[0].steps.length - 1][0], place: null });
    openRollouts();
  };
  return el("button", { id: "follow", type: "button", "aria-pressed": String(Boolean(view.follow)), onclick: change }, "Follow the newest step");
}
