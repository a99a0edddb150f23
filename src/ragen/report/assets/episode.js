// One episode: what was said, turn by turn, with the environment beside it.

const FLAGS = [
  [1, "lost", "the environment failed: not trained"],
  [2, "invalid", "a turn without valid format or valid action"],
  [4, "loop", "a reply repeats itself: at most half of its word pairs differ"],
  [8, "common", "no success, and only the reply that more than half of the step's turns give"],
  [16, "cut", "a reply was cut by its token budget"],
];

/**
 * The article of an episode. `episode`: {run, step, place, index, record, peers, top}; `compact` is for a column beside others.
 * The article's `move(by)` steps through the environment's states.
 */
function episodeView(episode, compact) {
  const { record, index, place } = episode;
  const world = worldView(episode);
  const turns = record.turns.map((turn, k) => turnView(episode, turn, k, world));
  const made = el(
    compact ? `article.episode.compact${place === view.place ? ".chosen" : ""}` : "article.episode",
    { "aria-label": `Group ${groupName(episode.run, index, place)}, member ${index.member[place]}` },
    episodeHead(episode, compact),
    record.error ? el("p.problem", {}, `${data.head.runs[episode.run].trains ? "the environment failed" : "lost"}: ${visible(record.error)}`) : null,
    record.rows || !record.turns.length || !data.head.runs[episode.run].tokens ? null : el("p.note", {}, "This episode's tokens are not in the page: `ragen report … --all-tokens` keeps all."),
    el("div.inside", {}, el("div.talk", {}, turns), el("div.beside", {}, world.node)),
  );
  made.move = world.move;
  return made;
}

/** A group's number in its step; where steps begin different numbers of groups, that in the run. */
function numberInStep(run, group) {
  const each = data.head.runs[run].groups_a_step;
  return each === null ? group : group % each;
}

/** A group's number in its step, and in the run where that differs. */
function groupName(run, index, place) {
  const group = index.group[place];
  if (group < 0) return "lost";
  const inStep = numberInStep(run, group);
  return inStep === group ? String(group) : `${inStep} (${group} of the run)`;
}

/** The step, before the rest of a title; an evaluation has none. */
const stepName = (episode) => (data.head.runs[episode.run].trains ? `step ${episode.step} · ` : "");

function episodeHead(episode, compact) {
  const { index, place, record, run } = episode;
  const { trains } = data.head.runs[run];
  const title = compact ? `member ${index.member[place]}` : `${stepName(episode)}group ${groupName(run, index, place)} · member ${index.member[place]}`;
  const won = index.success[place] === 1;
  const facts = [
    `return ${number(index.ret[place])}`,
    record.task === index.ret[place] ? null : `task return ${number(record.task)}`,
    `ended: ${data.head.ends[index.end[place]]}`,
    index.trained[place] || !trains ? null : "not trained (left out)",
    compact ? null : `instance ${index.seed[place]}`,
    compact || !trains ? null : `policy after ${record.version} steps`,
    compact ? null : visible(record.env),
  ];
  return el(
    "header.episodehead",
    {},
    el("h3", {}, title),
    el(`span.badge.${won ? "won" : "lost"}`, {}, won ? "✓ success" : "✗ no success"),
    FLAGS.filter(([bit]) => index.flags[place] & bit).map(([, name, about]) => el("span.badge.flag", { title: about }, name)),
    el("p.note", {}, facts.filter(Boolean).join(" · ")),
  );
}

function turnView(episode, turn, k, world) {
  const spans = episode.record.rows ? episode.record.rows.flat() : null;
  const at = spans ? spans.findIndex((span) => span[0] === k) : -1;
  const given = at > 0 && spans[at - 1][0] === -1 ? spans[at - 1] : null;
  const context = tokenState.exact && given ? visible(given[2]) : visible(turn.seen);
  const { trains } = data.head.runs[episode.run];
  const facts = { adv: turn.adv, top: episode.top, trains, trained: !trains || episode.index.trained[episode.place] === 1 };
  return el(
    "section.turn",
    { "aria-label": `Turn ${k + 1}` },
    turn.fresh && k > 0 ? el("p.note", {}, "— history dropped: a new training row begins —") : null,
    el("div.said.given", {}, el("span.who", {}, tokenState.exact && given ? `context, ${given[1].length} tokens as they are` : "environment"), el("div.text", {}, context)),
    el(
      "div.said.reply",
      {},
      el("span.who", {}, "policy"),
      el("div.text", {}, at >= 0 ? tokenRow(spans[at], facts) : visible(turn.said) || el("span.note", {}, "(nothing)")),
      el("div.outcome", {}, outcome(turn), el("button.small", { type: "button", onclick: () => world.show(k + 1) }, "show the state after")),
    ),
  );
}

/** Actions, rewards, advantage and what was wrong, in a line. */
function outcome(turn) {
  const parts = Object.entries(turn.parts).map(([name, value]) => `${name.replace("_", " ")} ${number(value)}`);
  if (turn.score !== null) parts.push(`process score ${number(turn.score, 2)}`);
  if (turn.adv !== null) parts.push(`advantage ${signed(turn.adv)}`);
  if (turn.skipped) parts.push(`${turn.skipped} invalid skipped`);
  if (turn.stop !== "end") parts.push(turn.stop === "length" ? "cut by the token budget" : "ended by a stop string");
  return [
    turn.actions.length ? turn.actions.map((action) => el("span.action", {}, visible(action))) : el("span.note", {}, "no action"),
    turn.valid ? null : el("span.badge.flag", {}, "invalid"),
    el("span.note", {}, parts.join(" · ")),
  ];
}

/** The members of a group in columns. */
function groupView(episodes) {
  const first = episodes[0];
  const { index } = first;
  const returns = episodes.map((e) => index.ret[e.place]);
  const won = episodes.filter((e) => index.success[e.place]).length;
  const spread = `returns ${number(Math.min(...returns))} to ${number(Math.max(...returns))}`;
  return el(
    "div.group",
    {},
    el("h3", {}, `${stepName(first)}group ${groupName(first.run, index, first.place)} · ${episodes.length} members, ${won} with success, ${spread}`),
    el("p.note", {}, `instance ${index.seed[first.place]}`),
    el("div.columns", { tabIndex: 0, role: "region", "aria-label": "Members side by side" }, episodes.map((e) => episodeView(e, true))),
  );
}
