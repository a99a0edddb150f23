// All curves in their groups; runs are drawn over each other and can be hidden in the legend.

const curveState = { hidden: new Set(), log: new Map(), find: "" };
const GROUP_TITLES = {
  learning: "Learning: what the policy achieves",
  collapse: "Collapse: the signs of the Echo Trap",
  update: "Update: what the learner does",
  collection: "Collection: the episodes and what the filter keeps",
  speed: "Speed and memory",
};
const BAND_WORDS = { "rollout/success": "95 % interval over groups", "rollout/return_mean": "95 % interval over groups" };

function drawCurves() {
  const find = el("input", {
    type: "search",
    placeholder: "find a metric",
    "aria-label": "Find a metric by name or meaning",
    value: curveState.find,
    oninput: (event) => {
      curveState.find = event.target.value.toLowerCase();
      fillGroups();
    },
  });
  put(
    $("curves"),
    el("div.bar", {}, find, data.head.runs.length > 1 ? legend() : null),
    eventKey(),
    el("p.note", {}, "Point at a chart to read it, or focus it and use ← →. A click or Enter opens the step's episodes."),
    el("div", { id: "groups" }),
  );
  fillGroups();
}

function fillGroups() {
  const names = Object.keys(data.head.metrics).filter((name) => matchesFind(name));
  const parts = data.head.groups.map((group) => {
    const inside = names.filter((name) => data.head.metrics[name].group === group);
    if (!inside.length) return null;
    return el("section", {}, el("h2", {}, GROUP_TITLES[group] || group), el("div.charts", {}, inside.map(metricChart)));
  });
  const nothing = data.head.runs.some((run) => run.trains) ? "No metric has this in its name or meaning." : "Evaluations have no curves: see the rollouts.";
  put($("groups"), parts.some(Boolean) ? parts : el("p.note", {}, nothing));
}

function matchesFind(name) {
  const { about } = data.head.metrics[name];
  return `${name} ${about}`.toLowerCase().includes(curveState.find);
}

/** The chart of a metric over all runs that are not hidden. */
function metricChart(name) {
  const metric = data.head.metrics[name];
  const shown = data.head.runs.map((run, i) => [run, i]).filter(([, i]) => !curveState.hidden.has(i));
  const several = data.head.runs.length > 1;
  const lines = shown.filter(([run]) => run.curves[name]).map(([run, i]) => metricLine(name, run, i, several));
  const band = metric.band ? "band: smallest to largest group" : BAND_WORDS[name] ? `band: ${BAND_WORDS[name]}` : "";
  return chart({
    title: name.replace(/^rollout\//, "").replace(/_/g, " "),
    unit: metric.unit,
    about: [visible(metric.about), band].filter(Boolean).join("; ") + (name === "rollout/success" ? "; squares: evaluations" : ""),
    lines,
    points: name === "rollout/success" ? shown.flatMap(([run, i]) => evaluationPoints(run, i)) : [],
    events: shown.flatMap(([run, i]) => run.events.map((event) => ({ ...event, run: i, several }))),
    log: curveState.log.get(name),
    onlog: (log) => {
      curveState.log.set(name, log);
      redraw("summary", "curves");
    },
    onpick: (step) => goto({ ...view, part: "rollouts", run: shown.length ? shown[0][1] : 0, step, place: null }),
  });
}

function metricLine(name, run, i, several) {
  const line = { run: i, label: several ? visible(run.name) : "", steps: run.curve_steps, values: run.curves[name] };
  const { band } = data.head.metrics[name];
  if (band && run.curves[band[0]]) return { ...line, low: run.curves[band[0]], high: run.curves[band[1]] };
  const indices = data.indices[i];
  if (!BAND_WORDS[name] || !indices.size) return line;
  const edges = run.curve_steps.map((step) => (indices.get(step) ? indices.get(step).bands[name] : null));
  return { ...line, low: edges.map((e) => e && e[0]), high: edges.map((e) => e && e[1]) };
}

function evaluationPoints(run, i) {
  return run.evaluations
    .filter((e) => e.own)
    .map((e) => ({
      run: i,
      label: visible(run.name),
      about: `evaluation ${e.name}`,
      step: e.step,
      value: e.scores[0].success,
      interval: e.scores[0].interval,
      hollow: e.name === "before",
    }));
}

/** The runs' names with their lines; a click hides a run or shows it again. */
function legend() {
  const item = (run, i) =>
    el(
      "button.run",
      {
        type: "button",
        "aria-pressed": String(!curveState.hidden.has(i)),
        onclick: () => {
          if (!curveState.hidden.delete(i)) curveState.hidden.add(i);
          redraw("summary", "curves");
        },
      },
      lineSwatch(i),
      visible(run.name),
    );
  return el("div.legend", { role: "group", "aria-label": "Runs" }, data.head.runs.map(item));
}

function lineSwatch(i) {
  const line = svg("line", { x1: 0, x2: 24, y1: 6, y2: 6, stroke: colour(i), "stroke-width": 2.5 });
  line.setAttribute("stroke-dasharray", DASHES[i % DASHES.length]);
  const box = svg("svg", { viewBox: "0 0 24 12", class: "lineswatch", "aria-hidden": "true" });
  box.append(line);
  return box;
}

/** What the letters above a chart mean, where there are any. */
function eventKey() {
  const words = { warning: "early warning", spike: "gradient spike", collapse: "collapse", rollback: "rollback to here" };
  const kinds = Object.keys(words).filter((kind) => data.head.runs.some((run) => run.events.some((e) => e.kind === kind)));
  if (!kinds.length) return null;
  return el("p.key", {}, "Echo Trap: ", kinds.map((kind) => el("span", {}, el(`span.mark.${kind}`, {}, EVENT_LETTERS[kind]), words[kind])));
}
