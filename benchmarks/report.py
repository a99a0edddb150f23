"""How large a report is, how long it takes to write, and how soon a browser shows it.

    python benchmarks/report.py [--steps 200] [--groups 8] [--members 16] [--turns 5] [--tokens 60] [--all-tokens] [--keep D]

Makes a run directory with invented episodes (random words, random log-probabilities: they compress worse than real ones; a
quarter of the episodes is out of the ordinary), reports it as `ragen report` does, and opens it in headless Chromium: first
paint, summary drawn, columns of all steps read, one step's episodes shown.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ragen.config import load_config
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.models.resolve import resolve_model
from ragen.report.file import write_report
from ragen.runs.directory import RunDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
from browser import Browser, find_chromium

SENTENCE = "Goal is my way I walk there Let me head up down left right So choosing That two three the hole ice"
METRICS = (
    "success",
    "return_mean",
    "return_std",
    "entropy",
    "valid_format",
    "self_similarity",
    "distinct_2",
    "turns",
    "actions",
)


class Inventor:
    """Episodes out of nothing."""

    def __init__(self, given):
        self.given, self.rng, self.words = given, np.random.default_rng(0), SENTENCE.split()
        self.tokenizer = Tokenizer.from_file(str(resolve_model("tiny") / "tokenizer.json"))

    def reply(self):
        said = " ".join(self.rng.choice(self.words, self.given.tokens))
        text = f"{said}.</think><answer>Up || Left</answer>"
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False).ids[: self.given.tokens])
        surprise = self.rng.exponential(0.4, len(ids)) * (self.rng.random(len(ids)) < 0.6)
        entropy = self.rng.exponential(0.5, len(ids))
        return Completion(ids, tuple((-surprise).tolist()), tuple(entropy.tolist()), text, StopReason.END)

    def trajectory(self, seed, member, grid):
        odd = self.rng.random() < 0.25
        turns = []
        for k in range(self.given.turns):
            seen = f"FrozenLake: walk to the goal, never into a hole.\n{grid}\n{10 - k} actions left. Think, then answer."
            ids = tuple(self.tokenizer.encode(seen, add_special_tokens=False).ids)
            info = {"next_observation": grid, "success": False}
            reward = float(self.rng.random() < 0.2)
            turns.append(Turn(ids, k > 0, self.reply(), seen, ("Up", "Left"), not (odd and k == 0), reward, info=info))
        return Trajectory("frozen_lake", seed, member, tuple(turns), EndReason.BUDGET, bool(self.rng.random() < 0.4))

    def group(self, number):
        grid = "\n".join("".join(row) for row in self.rng.choice(list("__O"), (4, 4)))
        seed = int(self.rng.integers(2**62))
        return Group(number, tuple(self.trajectory(seed, member, grid) for member in range(self.given.members)))

    def run(self, folder):
        words = ["--run.root", str(folder), "--run.name", "invented", "--steps", str(self.given.steps)]
        run = RunDirectory.create(load_config("frozen_lake-starpo-s-grpo-tiny", words))
        for step in range(1, self.given.steps + 1):
            numbers = {f"rollout/{name}": float(self.rng.random()) for name in METRICS}
            numbers |= {"update/grad_norm": float(self.rng.exponential()), "time/rollout_s": 5.0, "time/update_s": 7.0}
            run.append_metrics(step, numbers)
            groups = [self.group((step - 1) * self.given.groups + g) for g in range(self.given.groups)]
            kept = {(g.index, t.member): (0.5,) * len(t.turns) for g in groups[::2] for t in g.trajectories}
            run.write_trajectories(step, groups, [], kept)
        return run


def look(page, steps):
    """Milliseconds in the browser, from the beginning of the navigation."""
    with Browser() as browser:
        browser.open(page.absolute().as_uri())
        browser.wait("document.documentElement.dataset.indexed")
        paint = browser.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        marks = browser.run("['ready', 'indexed'].map((n) => performance.getEntriesByName(n)[0].startTime)")
        opened = browser.run(
            f"(async () => {{ const t = performance.now(); location.hash = '#rollouts/0/{steps}'; "
            "while (!document.querySelector('article') || !document.querySelector('.row')) "
            "await new Promise((r) => setTimeout(r, 5)); return performance.now() - t })()"
        )
        started = time.perf_counter()
        browser.run("(async () => { filters.scope = 'all'; filters.query = 'choosing'; await listEpisodes() })()")
        searched = 1000 * (time.perf_counter() - started)
        return [paint, *marks, opened, searched], browser.errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"steps": 200, "groups": 8, "members": 16, "turns": 5, "tokens": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--all-tokens", action="store_true")
    parser.add_argument("--keep", metavar="DIR", help="where the run and its report stay")
    given = parser.parse_args()
    folder = Path(given.keep or tempfile.mkdtemp(prefix="ragen-report-"))
    try:
        run = RunDirectory.open(folder / "invented") if (folder / "invented").is_dir() else Inventor(given).run(folder)
        stored = sum(file.stat().st_size for file in run.path.rglob("step-*.jsonl"))
        started = time.perf_counter()
        made = write_report([run], folder / "report.html", all_tokens=given.all_tokens)
        took = time.perf_counter() - started
        print(
            f"{made.steps} steps, {made.trajectories} episodes, {made.with_tokens} with tokens; stored {stored / 1e6:.0f} MB"
        )
        print(f"report {made.bytes / 1e6:.1f} MB, written in {took:.1f} s")
        if find_chromium():
            times, errors = look(folder / "report.html", given.steps)
            names = ("first paint", "summary drawn", "all columns read", "a step opened in", "all steps searched in")
            print(", ".join(f"{name} {ms:.0f} ms" for name, ms in zip(names, times, strict=True)), *errors)
    finally:
        if not given.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
