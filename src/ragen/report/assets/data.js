// Where the data comes from: blocks of this page, or the server that watches a run. Steps are opened when they are needed.

const data = { head: null, live: false, indices: [] };

/** The first data of the page; a page without any asks its server. */
async function openData() {
  const head = JSON.parse($("head").textContent);
  data.live = head === null;
  data.source = data.live ? serverSource : pageSource;
  data.head = head || (await serverSource.head());
  data.indices = data.head.runs.map(() => new Map());
}

const indexing = []; // the reading of all columns of each run: one after the other

/** Read the columns of every stored step of a run into `data.indices`; what is known already is not asked for again. */
function openIndex(run) {
  const before = indexing[run] || Promise.resolve();
  indexing[run] = before.catch(() => {}).then(() => readIndex(run));
  return indexing[run];
}

/** As `openIndex`; with a step, that one is enough. */
async function readIndex(run, only = null) {
  const known = data.indices[run];
  const wanted = new Map(data.head.runs[run].steps);
  for (const [step, index] of known) if (wanted.get(step) !== index.version) known.delete(step);
  const missing = [...wanted.keys()].filter((step) => !known.has(step) && (only === null || step === only));
  for await (const index of data.source.indices(run, missing)) {
    index.version = wanted.get(index.step);
    known.set(index.step, index);
  }
}

const kept = new Map(); // the last steps that were opened
const KEPT = 6;

/** The records of a step's trajectories. */
function openStep(run, step) {
  const version = new Map(data.head.runs[run].steps).get(step);
  const key = `${run}/${step}/${version}`;
  if (!kept.has(key)) {
    const opened = data.source.step(run, step);
    opened.catch(() => kept.delete(key));
    kept.set(key, opened);
  }
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return kept.get(key);
}

const pageSource = {
  async *indices(run, steps) {
    if (!steps.length) return;
    for (const index of await openBlock(`run${run}-index`)) yield index;
  },
  step: (run, step) => openBlock(`run${run}-step${step}`),
};

/** A block of this page: base64 of gzipped JSON. It may stand further down than the browser has read yet. */
async function openBlock(name) {
  while (!$(name) && document.readyState === "loading") await new Promise((resolve) => setTimeout(resolve, 30));
  if (!$(name)) throw new Error(`this file lacks the block ${name}: it was cut; write the report again`);
  const text = atob($(name).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const serverSource = {
  head: () => ask("head"),
  async *indices(run, steps) {
    for (const step of steps.reverse()) yield ask(`index?step=${step}`);
  },
  step: (run, step) => ask(`body?step=${step}`),
};

async function ask(what) {
  const answer = await fetch(what, { cache: "no-store" });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || `the server says ${answer.status}`);
  return told;
}

const POLL_MS = 2000;

/** Ask for what is new as long as the page is open; `changed` is called with a new head. */
async function follow(changed) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    try {
      const head = await serverSource.head();
      const different = JSON.stringify(head) !== JSON.stringify(data.head);
      data.head = head;
      if (different) await changed();
      sayLive();
    } catch (error) {
      sayLive(String(error.message || error));
    }
  }
}

function sayLive(problem) {
  const run = data.head.runs[0];
  const box = $("live");
  box.hidden = false;
  box.classList.toggle("off", Boolean(problem) || !run.running);
  box.textContent = problem
    ? visible(problem.includes("fetch") ? "ragen watch has ended" : problem)
    : `${run.running ? "running" : "not running"}: step ${run.done} of ${run.planned}`;
}
