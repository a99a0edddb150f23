// WebShop's pages: search box, results, item, sub-page, purchase. What was clicked next is marked.

worlds.shop = drawShop;

function drawShop(facts, frame) {
  const label = (name, shown, kinds = "") => {
    const clicked = name !== "" && name === frame.next;
    const kind = `span.shoplabel${kinds}${clicked ? ".clicked" : ""}`;
    return el(kind, clicked ? { title: "clicked next" } : {}, visible(shown), clicked ? el("span.hidden", {}, " (clicked next)") : null);
  };
  const ways = frame.labels.filter((name) => ["Back to Search", "< Prev", "Next >"].includes(name)).map((name) => label(name, name));
  return el(
    "div.shop",
    { role: "group", "aria-label": `Shop: ${frame.kind}` },
    el("p.shopgoal", {}, visible(frame.goal)),
    ways.length ? el("p", {}, ways) : null,
    (SHOP_PAGES[frame.kind] || shopProse)(frame, label),
  );
}

const SHOP_PAGES = { search: shopSearch, results: shopResults, item: shopItem, done: shopDone };

function shopSearch(frame) {
  return el("p.shopsearch", {}, el("span.shopfield", {}, visible(frame.query) || "\u00a0"), el(frame.query ? "span.shoplabel.clicked" : "span.shoplabel", {}, "Search"));
}

function shopResults(frame, label) {
  const cards = frame.results.map(([name, title, price]) => el("li", {}, label(name, title, ".shoptitle"), el("span.shopprice", {}, visible(price))));
  return [el("p.note", {}, `Page ${frame.number}, ${frame.total} results for “${visible(frame.query)}”`), el("ul.shopcards", {}, cards)];
}

function shopItem(frame, label) {
  const options = frame.options.map(([name, values]) =>
    el("p", {}, el("span.note", {}, `${visible(name)}: `), values.map(([value, key, chosen]) => label(key, (chosen ? "✓ " : "") + value, chosen ? ".chosen" : ""))),
  );
  const more = ["Description", "Features", "Reviews"].map((name) => label(name, name));
  return [shopHead(frame), options, el("p", {}, more), el("p", {}, label("Buy Now", "Buy Now", ".shopbuy"))];
}

const shopHead = (frame) => [el("p.shopname", {}, visible(frame.title)), el("p", {}, el("span.shopprice", {}, visible(frame.price)), el("span.note", {}, ` · rating ${visible(frame.rating)}`))];

const shopProse = (frame) => [shopHead(frame), el("p.note", {}, frame.kind), frame.prose.map((text) => el("p", {}, visible(text))), frame.prose.length ? null : el("p", {}, "Nothing here.")];

function shopDone(frame) {
  const chosen = frame.chosen.map(([name, value]) => `${name}: ${value}`).join(", ");
  const parts = frame.score.parts.map(([part, wanted, met]) =>
    el("tr", {}, el("th", { scope: "row" }, part), el("td", {}, visible(wanted)), el("td", {}, met ? "✓ met" : "✗ not met")),
  );
  const met = frame.score.parts.filter(([, , is]) => is).length;
  return [
    el("p.shopname", {}, `Bought: ${visible(frame.title)}`),
    el("p", {}, visible(chosen), el("span.shopprice", {}, `${chosen ? " · " : ""}${visible(frame.price)}`)),
    el("p.shopscore", {}, `Score ${number(frame.score.reward, 3)}`),
    el("p.note", {}, `= ${number(frame.score.kind)} for the kind of product × ${met} of ${parts.length} conditions`),
    el("table", {}, el("tbody", {}, parts)),
  ];
}
