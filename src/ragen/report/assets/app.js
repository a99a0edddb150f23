// The start, and the way from the address (#part/run/step/place/group) to what is shown.

const drawn = new Set();
const DRAW = { summary: drawSummary, curves: drawCurves, rollouts: drawRollouts };

/** Go somewhere in the report; the address tells where, so that it can be kept and sent. */
function goto(place) {
  const step = place.step === null || place.step === undefined ? "" : place.step;
  const hash = place.part === "rollouts" ? `#rollouts/${[place.run, step, place.place ?? "", place.side ? "group" : ""].join("/").replace(/\/+$/, "")}` : `#${place.part}`;
  if (location.hash === hash) show();
  else location.hash = hash;
}

/** Read the address and show that part. */
function show() {
  const [part, run, step, place, side] = location.hash.slice(1).split("/");
  view.part = part in DRAW ? part : "summary";
  if (view.part === "rollouts" && run !== undefined) {
    view.run = Math.min(data.head.runs.length - 1, Number(run) || 0);
    view.step = /^\d+$/.test(step) ? Number(step) : null;
    view.place = /^\d+$/.test(place) ? Number(place) : null;
    view.side = side === "group";
  }
  for (const name of PARTS) {
    $(name).hidden = name !== view.part;
    if (name === view.part) $(`tab-${name}`).setAttribute("aria-current", "page");
    else $(`tab-${name}`).removeAttribute("aria-current");
  }
  if (!drawn.has(view.part)) {
    drawn.add(view.part);
    DRAW[view.part]();
  } else if (view.part === "rollouts") openRollouts().catch(fail);
}

/** Draw parts again: the one in sight now, others when they are next shown. */
function redraw(...parts) {
  for (const part of parts) drawn.delete(part);
  if (!parts.includes(view.part)) return;
  drawn.add(view.part);
  DRAW[view.part]();
}

/** Draw the charts again, but not under the hands of somebody who is typing. */
function redrawCharts() {
  const typing = document.activeElement && document.activeElement.matches("#curves input");
  if (!typing) return redraw("summary", "curves");
  redraw("summary");
  fillGroups();
}

/** A head with news has come. */
async function changed() {
  redrawCharts();
  openIndex(0).then(redrawCharts).catch(fail);
  const { steps } = data.head.runs[0];
  if (view.part !== "rollouts" || !steps.length) return;
  if (view.follow) goto({ ...view, step: steps[steps.length - 1][0], place: null });
  else await openRollouts();
}

/** Told on the page's element and in its timing, for tests and measurements. */
function reached(what) {
  document.documentElement.dataset[what] = "yes";
  performance.mark(what);
}

async function start() {
  setTheme(THEMES.includes(stored.get("theme")) ? stored.get("theme") : "auto");
  listenToKeys();
  await openData();
  nameReport();
  addEventListener("hashchange", show);
  addEventListener("unhandledrejection", (event) => fail(event.reason));
  show();
  reached("ready");
  if (data.live) {
    sayLive();
    follow(changed);
  }
  for (let run = 0; run < data.head.runs.length; run++) await openIndex(run);
  redrawCharts(); // now with the intervals of the training steps
  reached("indexed");
}

start().catch(fail);
