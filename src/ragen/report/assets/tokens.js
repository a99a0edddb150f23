// Sampled tokens, coloured by what was recorded of them. Colour is never alone: the tooltip tells the number.

const UNIT = 1e-4; // log-probabilities and entropies come in units of 1e-4 nats
const SURPRISE = 5; // nats: −log p and entropies of this and more get the full colour
const MODES = {
  mask: "mask",
  logprob: "log-probability",
  advantage: "advantage",
  entropy: "entropy",
  none: "no colour",
};
const tokenState = { mode: stored.get("colour") in MODES ? stored.get("colour") : "mask", exact: false };

/** The tokens of a reply: `span` is [turn, ids, pieces, log-probabilities, entropies]; `facts` has adv, top, trains, trained. */
function tokenRow(span, facts) {
  const [turn, ids, pieces, logprobs, entropies] = span;
  const about = (i) => ({ id: ids[i], text: pieces[i], logprob: scaled(logprobs[i]), entropy: scaled(entropies[i]), ...facts });
  const marks = pieces.map((piece, i) => {
    const mark = el("span.tok", {}, tokenText(piece));
    paint(mark, about(i));
    return mark;
  });
  const row = el("span.tokens", { tabIndex: 0, role: "group", "aria-label": `Reply of turn ${turn + 1}, ${ids.length} tokens; ← → read them` }, marks);
  const said = el("span.hidden", { "aria-live": "polite" });
  readTokens(row, marks, about, said);
  return [row, said];
}

const scaled = (value) => (value === null ? null : value * UNIT);

/** A token's text: a line break is shown, and a part of a character that the next token ends is a dot. */
const tokenText = (piece) => (piece === "" ? "·" : visible(piece).replace(/\n/g, "↵\n"));

function readTokens(row, marks, about, said) {
  let at = -1;
  const tell = (i, x, y) => tip.show(tokenWords(about(i)), x, y);
  row.addEventListener("pointermove", (event) => {
    const i = marks.indexOf(event.target);
    if (i >= 0) tell(i, event.clientX, event.clientY);
    else tip.hide();
  });
  row.addEventListener("pointerleave", () => tip.hide());
  const choose = (i) => {
    if (marks[at]) marks[at].classList.remove("read");
    at = Math.max(0, Math.min(marks.length - 1, i));
    marks[at].classList.add("read");
    const place = marks[at].getBoundingClientRect();
    tell(at, place.left, place.bottom);
    said.textContent = tokenWords(about(at));
  };
  row.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: marks.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    choose(moves[event.key]);
  });
  row.addEventListener("blur", () => {
    if (marks[at]) marks[at].classList.remove("read");
    tip.hide();
  });
}

function tokenWords(token) {
  const text = JSON.stringify(token.text).slice(1, -1);
  const lines = [`“${visible(text)}” · id ${token.id}`];
  const chance = token.logprob === null ? "–" : `${number(token.logprob)} nats (p = ${number(Math.exp(token.logprob), 3)})`;
  lines.push(`log-probability ${chance}`);
  lines.push(`entropy ${token.entropy === null ? "–" : `${number(token.entropy)} nats`}`);
  if (!token.trained) lines.push("on the mask, but not trained: its group was left out");
  else if (token.trains) lines.push(`turn's mean advantage ${token.adv === null ? "–" : signed(token.adv)}`);
  return lines.join("\n");
}

/** The background of a token: hue says what, strength how much. */
function paint(mark, token) {
  const shade = {
    mask: () => (token.trained ? ["--green", 0.3] : ["--pink", 0.3]),
    logprob: () => ["--orange", token.logprob === null ? 0 : Math.min(1, -token.logprob / SURPRISE) * 0.75],
    entropy: () => ["--sky", token.entropy === null ? 0 : Math.min(1, token.entropy / SURPRISE) * 0.8],
    advantage: () => advantageShade(token),
    none: () => ["--sky", 0],
  }[tokenState.mode]();
  mark.style.backgroundColor = `color-mix(in srgb, var(${shade[0]}) ${(100 * shade[1]).toFixed(1)}%, transparent)`;
}

function advantageShade(token) {
  if (token.adv === null) return ["--sky", 0];
  const strength = token.top > 0 ? Math.min(1, Math.abs(token.adv) / token.top) : 0;
  return [token.adv > 0 ? "--blue" : "--red", 0.6 * strength];
}

/** What the colours of the run in sight mean now; without tokens there are none. */
function tokenKey(top) {
  const { trains, tokens } = data.head.runs[view.run];
  if (!tokens) return null;
  const maskKey = () =>
    trains
      ? [sample({}, "trained"), sample({ trained: false }, "sampled, not trained"), el("span.note", {}, "plain: given text, never trained")]
      : [sample({}, "sampled"), el("span.note", {}, "plain: given text")];
  const sample = (token, text) => {
    const mark = el("span.tok", {}, text);
    paint(mark, { trained: true, logprob: 0, entropy: 0, adv: null, top, ...token });
    return mark;
  };
  const keys = {
    mask: maskKey,
    logprob: () => [0, -0.7, -2.3, -4.6].map((lp) => sample({ logprob: lp }, `p = ${number(Math.exp(lp), 1)}`)),
    entropy: () => [0, 0.5, 1.5, 3, 5].map((h) => sample({ entropy: h }, `${h} nats`)),
    advantage: () => [-1, -0.5, 0, 0.5, 1].map((share) => sample({ adv: share * top }, signed(share * top))),
    none: () => [],
  };
  const about = { advantage: "mean of the turn, scaled to the step's largest; a turn's tokens share it", logprob: "of the sampled token" }[tokenState.mode];
  return el("p.key", {}, keys[tokenState.mode](), about ? el("span.note", {}, about) : null);
}
