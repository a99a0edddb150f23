// The environment drawn. One function a kind of drawing: (facts, frame, episode) → element. A kind without a function, and an
// environment without frames, is shown as its text. `worlds.NAME = …` adds one; Python names the kind (report/drawing.py).

const worlds = {
  text: (facts, frame) => el("pre.worldtext", { tabIndex: 0 }, visible(String(frame)) || "(no text)"),
  grid: drawGrid,
  numbers: drawNumbers,
  arms: drawArms,
};

/** The picture with its step-through: {node, show(k), move(by)}; `episode` has run, record and peers. */
function worldView(episode) {
  const drawing = data.head.runs[episode.run].drawing;
  const { turns } = episode.record;
  const texts = turns.length ? [turns[0].seen, ...turns.map((turn) => turn.next)] : [];
  const frames = episode.record.frames || texts;
  const picture = el("div.picture", {});
  const caption = el("p.caption", { "aria-live": "polite" });
  let at = 0;
  const show = (k) => {
    at = Math.max(0, Math.min(frames.length - 1, k));
    const drawn = frames[at] !== null && episode.record.frames ? worlds[drawing.kind] : null;
    put(picture, (drawn || worlds.text)(drawing.facts, drawn ? frames[at] : texts[at], episode));
    const said = at === 0 ? "before the first turn" : `after turn ${at}: ${turns[at - 1].actions.join(", ") || "no action"}`;
    caption.textContent = `${at + 1} of ${frames.length} · ${visible(said)}`;
    back.disabled = at === 0;
    on.disabled = at === frames.length - 1;
  };
  const button = (sign, name, by) =>
    el("button", { type: "button", "aria-label": name, title: `${name} (${by < 0 ? "," : "."})`, onclick: () => show(at + by) }, sign);
  const back = button("◀", "State before", -1);
  const on = button("▶", "State after", 1);
  if (!frames.length) return { node: el("p.note", {}, "No turn was played."), show: () => {}, move: () => {} };
  const node = el("div.world", { role: "group", "aria-label": "The environment" }, picture, el("div.steps", {}, back, on, caption));
  show(frames.length - 1);
  return { node, show, move: (by) => show(at + by) };
}

const CELL = 30;

/** A grid of characters as tiles; what lies in a cell is drawn from the lowest to the highest. */
function drawGrid(facts, rows) {
  const parts = [];
  const found = {};
  rows.forEach((row, r) => {
    [...row].forEach((character, c) => {
      const roles = facts.cells[character] || [];
      const tile = svg("g", { transform: `translate(${c * CELL} ${r * CELL})` });
      roles.forEach((role) => fill(tile, (TILES[role] || TILES.unknown)(character)));
      parts.push(tile);
      for (const role of roles) if (!["ice", "floor", "wall"].includes(role)) (found[role] ||= []).push(`(${r}, ${c})`);
    });
  });
  const [width, height] = [Math.max(...rows.map((row) => [...row].length)) * CELL, rows.length * CELL];
  const told = Object.entries(found).map(([role, places]) => `${role} ${places.join(" ")}`);
  const label = `Grid of ${rows.length} rows, by (row, column): ${told.join("; ")}`;
  return svg("svg", { viewBox: `-1 -1 ${width + 2} ${height + 2}`, class: "grid", role: "img", "aria-label": label, width, height }, parts);
}

const square = (kind) => svg("rect", { width: CELL, height: CELL, class: `tile ${kind}` });

const TILES = {
  ice: () => square("ice"),
  floor: () => square("floor"),
  wall: () => [square("wall"), svg("path", { d: "M0 15H30M10 0V15M20 15V30", class: "bricks" })],
  hole: () => [square("ice"), svg("ellipse", { cx: 15, cy: 16, rx: 12, ry: 10, class: "hole" })],
  goal: () => [square("goal"), svg("path", { d: "M10 26V4l13 5.5L10 15", class: "flag" })],
  target: () => [square("floor"), svg("path", { d: "M8 8L22 22M22 8L8 22", class: "cross" })],
  box: () => svg("path", { d: "M5 5H25V25H5ZM5 5L25 25M25 5L5 25", class: "box" }),
  player: () => [svg("circle", { cx: 15, cy: 9.5, r: 4.5, class: "player" }), svg("path", { d: "M7 26a8 10 0 0 1 16 0Z", class: "player" })],
  unknown: (character) => svg("text", { x: 15, y: 20, class: "middle" }, visible(character)),
};

/** A square of numbers: boxes are framed and the first frame's numbers printed bold, or cells shaded by their number. */
function drawNumbers(facts, rows, episode) {
  const given = facts.box ? episode.record.frames[0] : null;
  const side = rows.length * CELL;
  const parts = rows.flatMap((row, r) =>
    row.map((word, c) => {
      const shade = facts.shades && word !== facts.blank ? Math.min(1, Math.log2(Number(word)) / Math.log2(facts.shades)) : 0;
      const kind = given && given[r][c] !== facts.blank ? "middle given" : "middle";
      return svg(
        "g",
        { transform: `translate(${c * CELL} ${r * CELL})` },
        square("floor"),
        shade ? svg("rect", { width: CELL, height: CELL, class: "shade", "fill-opacity": shade.toFixed(2) }) : null,
        word === facts.blank ? null : svg("text", { x: 15, y: 20, class: word.length > 3 ? `${kind} long` : kind }, visible(word)),
      );
    }),
  );
  for (let at = facts.box; at && at < rows.length; at += facts.box) {
    parts.push(svg("path", { d: `M${at * CELL} 0V${side}M0 ${at * CELL}H${side}`, class: "boxline" }));
  }
  const label = `Numbers, row by row: ${rows.map((row) => row.map((word) => (word === facts.blank ? "blank" : word)).join(" ")).join("; ")}`;
  const attributes = { viewBox: `-1 -1 ${side + 2} ${side + 2}`, class: "grid", role: "img", "aria-label": label, width: side, height: side };
  return svg("svg", attributes, parts);
}

/** Two arms with what they pay, what this episode pulled, and what its group pulled. */
function drawArms(facts, frame, episode) {
  const pulls = episode.peers.flatMap((peer) => (peer.frames && peer.frames.length ? peer.frames[peer.frames.length - 1].pulls : []));
  return el("div.arms", {}, frame.arms.map((name) => arm(name, facts.arms[name], frame.pulls, pulls)));
}

function arm(name, about, own, group) {
  const mine = own.filter(([pulled]) => pulled === name);
  const theirs = group.filter(([pulled]) => pulled === name);
  const mean = theirs.reduce((sum, [, payoff]) => sum + payoff, 0) / theirs.length;
  const tally = `in this group: ${theirs.length} of ${group.length} pulls${theirs.length ? `, mean payoff ${number(mean, 3)}` : ""}`;
  return el(
    mine.length ? "div.arm.pulled" : "div.arm",
    {},
    armPicture(mine.length > 0),
    el("strong", {}, visible(name)),
    el("span.note", {}, visible(about || "")),
    el("span", {}, mine.length ? `pulled: paid ${mine.map(([, payoff]) => number(payoff, 3)).join(", ")}` : "not pulled"),
    el("span.note", {}, tally),
  );
}

const armPicture = (pulled) =>
  svg(
    "svg",
    { viewBox: "0 0 60 50", class: "machine", "aria-hidden": "true" },
    svg("rect", { x: 6, y: 12, width: 36, height: 34, rx: 4, class: "machinebody" }),
    svg("rect", { x: 12, y: 20, width: 24, height: 10, rx: 2, class: "machineface" }),
    svg("path", { d: pulled ? "M42 30H50V40" : "M42 30H50V12", class: "lever" }),
    svg("circle", { cx: 50, cy: pulled ? 41 : 11, r: 4.5, class: "knob" }),
  );
