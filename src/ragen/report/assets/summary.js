// The first part: what ran, what came out, where the time went.

const FIRST_CHARTS = ["rollout/success", "rollout/return_std", "rollout/entropy", "update/grad_norm"];

function drawSummary() {
  const { runs } = data.head;
  const several = runs.length > 1;
  const named = (run, i) => (several ? el("h2.run", {}, lineSwatch(i), visible(run.name)) : null);
  put(
    $("summary"),
    runs.map((run, i) => el("div.runpart", {}, named(run, i), outcomeOf(run))),
    runs.some((run) => run.trains) ? mainCurves(several) : null,
    runs.map((run, i) => el("div.runpart", {}, named(run, i), detailsOf(run))),
  );
}

const mainCurves = (several) => [
  el("h2", {}, "Main curves"),
  several ? legend() : null,
  eventKey(),
  el("div.charts", {}, FIRST_CHARTS.filter((name) => data.head.metrics[name]).map((name) => metricChart(name))),
];

function nameReport() {
  const { runs } = data.head;
  $("title").textContent = runs.length === 1 ? visible(runs[0].name) : `${runs.length} runs`;
  document.title = `${$("title").textContent} – RAGEN report`;
}

/** What came out: how the run stands, success before and after, notes, events. */
const outcomeOf = (run) => [
  el("p.label", {}, visible(run.label)),
  el("p.status", {}, el("strong", {}, visible(run.status))),
  beforeAfter(run),
  run.notes.length ? el("ul.notes", {}, run.notes.map((note) => el("li", {}, visible(note)))) : null,
  run.events.length ? el("ul.events", {}, run.events.map(eventLine)) : null,
];

const detailsOf = (run) => [
  run.evaluations.length ? evaluationTable(run) : el("p.note", {}, "No evaluation is stored."),
  timeSplit(run),
  el("h3", {}, "Settings and origin"),
  el("dl.facts", {}, run.facts.map(([what, said]) => el("div", {}, el("dt", {}, what), el("dd", {}, visible(said))))),
  el("details", {}, el("summary", {}, "All settings"), el("pre", { tabIndex: 0 }, visible(run.settings))),
];

const eventLine = (event) =>
  el("li", {}, el(`span.mark.${event.kind}`, {}, EVENT_LETTERS[event.kind]), ` step ${event.step}: ${visible(event.about)}`);

/** Success before and after training, or of the one evaluation, as bars with their intervals. */
function beforeAfter(run) {
  const shown = run.evaluations.filter((e) => e.own && ["before", "after", "evaluation"].includes(e.name));
  if (!shown.length) return null;
  return el("div.results", {}, shown.map((e) => resultCard(e)));
}

function resultCard(evaluation) {
  const [agent] = evaluation.scores;
  return el(
    "div.card",
    {},
    el("div.cardname", {}, evaluationName(evaluation)),
    el("div.big", {}, percent(agent.success), el("span.interval", {}, ` ${interval(agent.interval)}`)),
    scoreBar(agent),
    el("div.note", {}, `success rate, 95 % interval, ${visible(evaluation.about)}`),
  );
}

function scoreBar(score) {
  const x = (value) => 2 + 196 * Math.min(1, Math.max(0, value));
  const [low, high] = score.interval || [score.success, score.success];
  return svg(
    "svg",
    { viewBox: "0 0 200 14", class: "scorebar", role: "img", "aria-label": `${percent(score.success)} ${interval(score.interval)}` },
    svg("line", { x1: 2, x2: 198, y1: 7, y2: 7, class: "track" }),
    svg("rect", { x: x(low), width: Math.max(1, x(high) - x(low)), y: 3, height: 8, class: "range" }),
    svg("circle", { cx: x(score.success), cy: 7, r: 4, class: "dot" }),
  );
}

const evaluationName = (e) => ({ before: "before training", after: `after ${e.step} steps` })[e.name] || visible(e.name.replace("step-", "step "));

/** The agent's evaluations; below each environment's last one the reference players on the same instances. */
function evaluationTable(run) {
  const last = new Map(run.evaluations.map((e) => [e.env, e]));
  const rows = run.evaluations.flatMap((e) => e.scores.filter((_, i) => i === 0 || last.get(e.env) === e).map((score) => evaluationRow(e, score)));
  const titles = ["evaluation", "environment", "who", "success", "95 % interval", "", "return", "details"];
  const about = [...new Set(run.evaluations.map((e) => e.method))].join(" / ");
  return el(
    "div.scroll",
    { tabIndex: 0, role: "region", "aria-label": "Evaluations" },
    el("h3", {}, "Evaluations"),
    el(
      "table",
      {},
      el("caption", {}, `On fixed instances, with the reference players on the same ones. 95 % intervals; ${visible(about)}`),
      el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, rows),
    ),
  );
}

function evaluationRow(e, score) {
  const first = score === e.scores[0];
  const returns = first && e.total_return !== null ? `${number(e.total_return, 3)} ${interval(e.return_interval)}` : "";
  const details = first ? [e.about, ...e.facts.map(([what, said]) => `${what} ${said}`)].join(" · ") : "";
  return el(
    first ? "tr.first" : "tr",
    {},
    el("th", { scope: "row" }, first ? evaluationName(e) : ""),
    el("td", {}, first ? visible(e.env) : ""),
    el("td", {}, visible(score.who)),
    el("td.num", {}, percent(score.success)),
    el("td.num", {}, interval(score.interval)),
    el("td.barcell", {}, scoreBar(score)),
    el("td.num", {}, returns),
    el("td.details", {}, visible(details)),
  );
}

/** One bar for the seconds of sampling, update, diagnostics and evaluation; the rest (loading, warm-up) is not stored. */
function timeSplit(run) {
  const total = run.times.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (!total) return null;
  let at = 0;
  const parts = run.times.map(([name, seconds], i) => {
    const width = (100 * seconds) / total;
    at += width;
    return svg("rect", { x: at - width, width, y: 0, height: 8, fill: colour(i) });
  });
  const words = run.times.map(([name, seconds]) => `${name} ${duration(seconds)} (${Math.round((100 * seconds) / total)} %)`);
  return el(
    "div.times",
    {},
    el("h3", {}, `Time: ${duration(total)}`, el("small", {}, " without loading, warm-up and checkpoints")),
    svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": words.join(", ") }, parts),
    el("p.key", {}, words.map((text, i) => el("span", {}, swatch(i), text))),
  );
}

/** A run's or part's colour; the palette's black follows the theme. */
const colour = (i) => {
  const chosen = data.head.colours[i % data.head.colours.length];
  return chosen === "#000000" ? "var(--ink)" : chosen;
};

function swatch(i) {
  const box = svg("svg", { viewBox: "0 0 12 12", class: "swatch", "aria-hidden": "true" });
  box.append(svg("rect", { width: 12, height: 12, fill: colour(i) }));
  return box;
}
