// One chart: lines with bands, points with error bars, marked events, a read-out under the pointer or by arrow keys.

const BOX = { width: 360, height: 190, left: 48, right: 10, top: 16, bottom: 32 };
const INNER = { x0: BOX.left, x1: BOX.width - BOX.right, y0: BOX.height - BOX.bottom, y1: BOX.top };
const DASHES = ["", "7 3", "2 2.5", "9 3 2 3"];
const EVENT_LETTERS = { warning: "W", spike: "S", collapse: "C", rollback: "R" };

/**
 * Draw a chart. `spec`: {title, unit, about, lines, points, events, log, onlog, onpick}; a line is {run, label, steps, values,
 * low, high}, a point {run, label, about, step, value, interval, hollow}, an event {step, kind, about}.
 */
function chart(spec) {
  const scales = chartScales(spec);
  const read = el("output.readout", {}, "");
  const cursor = svg("line", { y1: INNER.y0, y2: INNER.y1, class: "cursor", visibility: "hidden" });
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${BOX.width} ${BOX.height}`,
      tabindex: 0,
      role: "img",
      "aria-label": `${spec.title}, ${spec.unit || "no unit"}, over ${scales.steps.length} steps. ${lastValues(spec)}`,
    },
    axes(scales, spec),
    spec.events.filter((event) => event.step >= scales.x.low && event.step <= scales.x.high).map((e) => eventMark(e, scales)),
    spec.lines.map((line) => lineMarks(line, scales)),
    spec.points.map((point) => pointMarks(point, scales)),
    cursor,
  );
  followPointer(picture, scales, spec, cursor, read);
  return el(
    "figure.chart",
    {},
    el("figcaption", {}, el("span.name", {}, spec.title), el("span.unit", {}, spec.unit ? ` ${spec.unit}` : ""), logButton(spec, scales)),
    el("p.about", { title: spec.about }, spec.about),
    picture,
    read,
  );
}

const lastValues = (spec) =>
  spec.lines.map((line) => `${line.label}: last ${number(line.values.filter((v) => v !== null).pop())}`).join("; ");

function chartScales(spec) {
  const steps = [...new Set([...spec.lines.flatMap((l) => l.steps), ...spec.points.map((p) => p.step)])].sort((a, b) => a - b);
  const known = (values) => (values || []).filter((v) => v !== null && Number.isFinite(v));
  const values = spec.lines.flatMap((l) => [...known(l.values), ...known(l.low), ...known(l.high)]);
  values.push(...spec.points.flatMap((p) => [p.value, ...(p.interval || [])]));
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const positive = low > 0 && Number.isFinite(high);
  const log = positive && (spec.log === undefined ? spec.unit !== "share" && high / low > 50 : spec.log);
  const first = steps.length ? steps[0] : 0;
  const last = steps.length ? steps[steps.length - 1] : 1;
  const x = { low: first === last ? first - 1 : first, high: first === last ? last + 1 : last };
  const y = log ? logRange(low, high) : plainRange(low, high, spec.unit);
  const inside = (value, range) => (value - range.low) / (range.high - range.low || 1);
  return {
    steps,
    log,
    wide: positive && high / low > 4,
    x,
    y,
    ticks: log ? logTicks(y) : niceTicks(y.low, y.high, 5),
    px: (step) => INNER.x0 + inside(step, x) * (INNER.x1 - INNER.x0),
    py: (value) => INNER.y0 - inside(log ? Math.log10(value) : value, y) * (INNER.y0 - INNER.y1),
  };
}

function plainRange(low, high, unit) {
  if (!Number.isFinite(low)) return { low: 0, high: 1 };
  if (unit === "share") return { low: 0, high: high > 0.4 ? 1 : niceTop(high) };
  if (low >= 0 && low < 0.5 * high) return { low: 0, high: niceTop(high) };
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return { low: low - room, high: high + room };
}

const niceTop = (high) => (high > 0 ? niceTicks(0, high, 4).pop() : 1);
const logRange = (low, high) => ({ low: Math.log10(low) - 0.1, high: Math.log10(high) + 0.1 });

/** Round numbers from at most `low` up to at least `high` where the range is to be widened, about `count` of them. */
function niceTicks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); ; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
    if (i * step >= high - step * 1e-6) return ticks;
  }
}

function logTicks(range) {
  const wide = range.high - range.low > 1.5;
  const ticks = [];
  for (let power = Math.floor(range.low); power <= Math.ceil(range.high); power++) {
    for (const m of wide ? [1] : [1, 2, 5]) ticks.push(Number((m * 10 ** power).toPrecision(3)));
  }
  const every = Math.ceil(ticks.length / 8);
  return ticks.filter((tick, i) => i % every === 0);
}

function axes(scales, spec) {
  const parts = [];
  const { low, high } = scales.y;
  for (const tick of scales.ticks) {
    const at = scales.log ? Math.log10(tick) : tick;
    if (at < low - 1e-9 || at > high + 1e-9) continue;
    const y = scales.py(tick);
    parts.push(svg("line", { x1: INNER.x0, x2: INNER.x1, y1: y, y2: y, class: "grid" }));
    parts.push(svg("text", { x: INNER.x0 - 5, y: y + 3.5, class: "tick end" }, tickText(tick)));
  }
  const whole = niceTicks(scales.x.low, scales.x.high, 5).filter((t) => Number.isInteger(t) && t <= scales.x.high);
  for (const tick of whole) {
    parts.push(svg("text", { x: scales.px(tick), y: INNER.y0 + 13, class: "tick middle" }, String(tick)));
  }
  parts.push(svg("line", { x1: INNER.x0, x2: INNER.x1, y1: INNER.y0, y2: INNER.y0, class: "axis" }));
  parts.push(svg("text", { x: (INNER.x0 + INNER.x1) / 2, y: BOX.height - 5, class: "axisname middle" }, "training step"));
  const middle = (INNER.y0 + INNER.y1) / 2;
  const name = (spec.unit || "value") + (scales.log ? " (log)" : "");
  parts.push(svg("text", { x: 9, y: middle, class: "axisname middle", transform: `rotate(-90 9 ${middle})` }, name));
  return parts;
}

const tickText = (tick) => (Math.abs(tick) >= 1e4 || (tick && Math.abs(tick) < 1e-3) ? tick.toExponential(0) : String(tick)).replace("-", "−");

/** The band, then the line: broken where a step has no value, through where most steps have none (scheduled diagnostics). */
function lineMarks(line, scales) {
  const at = line.values.map((v, i) => (v === null ? null : [scales.px(line.steps[i]), scales.py(v)]));
  const known = at.filter((p) => p !== null);
  const sparse = known.length < 0.7 * at.length;
  const style = { stroke: colour(line.run), "stroke-dasharray": DASHES[line.run % DASHES.length] };
  const parts = [];
  if (line.low) parts.push(svg("path", { d: bandPath(line, scales), fill: colour(line.run), class: "band" }));
  parts.push(svg("path", { d: path(sparse ? known : at), class: "line", ...style }));
  const alone = (i) => !at[i - 1] && !at[i + 1];
  at.forEach((p, i) => {
    if (p && (sparse || known.length <= 30 || alone(i))) {
      parts.push(svg("circle", { cx: p[0], cy: p[1], r: known.length <= 60 ? 2.2 : 1.2, fill: colour(line.run) }));
    }
  });
  return parts;
}

const path = (points) =>
  points.map((p, i) => (p ? `${i && points[i - 1] ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}` : "")).join("");

function bandPath(line, scales) {
  const runs = [[]];
  line.low.forEach((low, i) => {
    if (low === null || line.high[i] === null) runs.push([]);
    else runs[runs.length - 1].push(i);
  });
  const point = (i, value) => `${scales.px(line.steps[i]).toFixed(1)} ${scales.py(value).toFixed(1)}`;
  return runs
    .filter((run) => run.length > 1)
    .map((run) => `M${run.map((i) => point(i, line.low[i])).join("L")}L${run.reverse().map((i) => point(i, line.high[i])).join("L")}Z`)
    .join("");
}

function pointMarks(point, scales) {
  const [x, y] = [scales.px(point.step), scales.py(point.value)];
  const parts = [];
  if (point.interval) {
    const [low, high] = point.interval.map(scales.py);
    parts.push(svg("path", { d: `M${x} ${low}V${high}M${x - 3} ${low}h6M${x - 3} ${high}h6`, class: "error" }));
  }
  const fillWith = point.hollow ? "var(--page)" : colour(point.run);
  parts.push(svg("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7, fill: fillWith, stroke: "var(--ink)" }));
  return parts;
}

function eventMark(event, scales) {
  const x = scales.px(event.step);
  return svg(
    "g",
    { class: `event ${event.kind}` },
    svg("line", { x1: x, x2: x, y1: INNER.y0, y2: INNER.y1 - 2, ...(event.several ? { stroke: colour(event.run) } : {}) }),
    svg("text", { x, y: INNER.y1 - 4, class: "middle" }, EVENT_LETTERS[event.kind] || "?"),
  );
}

function logButton(spec, scales) {
  if (!spec.onlog || !scales.wide) return null;
  const change = () => spec.onlog(!scales.log);
  return el("button.small", { type: "button", "aria-pressed": String(scales.log), title: "Logarithmic axis", onclick: change }, "log");
}

/** The values at the step nearest to the pointer, or at the one chosen by arrow keys; Enter opens that step's episodes. */
function followPointer(picture, scales, spec, cursor, read) {
  let place = -1;
  const show = (i) => {
    place = Math.max(0, Math.min(scales.steps.length - 1, i));
    const step = scales.steps[place];
    if (step === undefined) return;
    cursor.setAttribute("x1", scales.px(step));
    cursor.setAttribute("x2", scales.px(step));
    cursor.setAttribute("visibility", "visible");
    put(read, readout(spec, step));
  };
  const nearest = (event) => {
    const area = picture.getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * BOX.width;
    let best = 0;
    scales.steps.forEach((step, i) => {
      if (Math.abs(scales.px(step) - x) < Math.abs(scales.px(scales.steps[best]) - x)) best = i;
    });
    return best;
  };
  picture.addEventListener("pointermove", (event) => show(nearest(event)));
  picture.addEventListener("pointerleave", () => cursor.setAttribute("visibility", "hidden"));
  picture.addEventListener("click", (event) => spec.onpick(scales.steps[nearest(event)]));
  picture.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: scales.steps.length - 1 };
    if (event.key in moves) show(moves[event.key]);
    else if (event.key === "Enter" && place >= 0) spec.onpick(scales.steps[place]);
    else return;
    event.preventDefault();
  });
}

/** What a chart says at a step; of several runs each value has its line in front, and its name for a screen reader. */
function readout(spec, step) {
  const several = spec.lines.length > 1;
  const named = (one, text) => (several ? el("span", {}, lineSwatch(one.run), el("span.hidden", {}, one.label), text) : text);
  const parts = [];
  for (const line of spec.lines) {
    const i = line.steps.indexOf(step);
    if (i < 0 || line.values[i] === null) continue;
    const band = line.low && line.low[i] !== null ? ` [${number(line.low[i], 3)}, ${number(line.high[i], 3)}]` : "";
    parts.push(named(line, `${number(line.values[i])}${band}`));
  }
  for (const point of spec.points.filter((p) => p.step === step)) {
    parts.push(named(point, `${point.about} ${number(point.value)} ${interval(point.interval)}`));
  }
  parts.push(...spec.events.filter((e) => e.step === step).map((e) => named(e, visible(e.about))));
  return [`step ${step}: `, parts.length ? parts.flatMap((part, i) => (i ? [" · ", part] : [part])) : "no value"];
}
