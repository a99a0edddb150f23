"""The page in a real headless Chromium: what is shown, what a click and a key do, and that no text ever becomes markup."""

import json
import threading

import pytest
from tests.kept_evaluation import kept, spoken_episode
from tests.report.browser import Browser, find_chromium
from tests.report.conftest import HOSTILE, evaluation

from ragen.episode import EndReason
from ragen.report.file import write_report
from ragen.report.live import Watch
from ragen.runs.summary import DONE
from ragen.runs.tokens import Pieces, decoder

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium here: apt-get install chromium, or set RAGEN_CHROMIUM"),
]


@pytest.fixture
def browser():
    with Browser() as opened:
        yield opened
        assert opened.errors == []
        assert all(url.startswith(("file:", "data:", "http://127.0.0.1:")) for url in opened.requests)


@pytest.fixture
def show(browser, tmp_path):
    """Write the report of runs, open it at a place and wait until it is drawn."""

    def open_page(*runs, at="", **options):
        out = tmp_path / "report.html"
        write_report(runs, out, **options)
        browser.open(f"{out.as_uri()}{at}")
        browser.wait("document.documentElement.dataset.indexed")
        if at.startswith("#rollouts"):
            browser.wait("document.querySelector('#reader article') && document.querySelector('.row')")
        return browser

    return open_page


ROWS = "[...document.querySelectorAll('#reader article .tokens')].map((row) => [...row.querySelectorAll('.tok')].map({}))"
TOKENS = ROWS.format("(t) => t.textContent")
SHADES = ROWS.format("(t) => getComputedStyle(t).backgroundColor")
LISTED = "[...document.querySelectorAll('.row')].map((row) => row.getAttribute('aria-label'))"


def test_the_summary_tells_the_evaluations_and_the_time(maker, show):
    run = maker.run(steps=5)
    run.write_eval("before", 0, evaluation(success=0.25))
    run.write_eval("after", 5, evaluation(success=0.75, players={}, ceiling=1.0) | {"seconds": 5.0})
    run.write_end(DONE)
    page = show(run)
    text = page.text("#summary")
    assert ".250 [.100, .600]" in text
    assert ".750 [.100, .600]" in text
    assert "best possible" in text
    assert "sampling 10 s (50 %)" in text
    assert "all steps done" in text
    assert page.run("document.querySelectorAll('#summary .chart').length") == 4


def test_curves_are_drawn_read_and_lead_to_the_steps_episodes(run, show):
    page = show(run, at="#curves")
    assert page.run("document.querySelectorAll('#groups .chart').length") == 7
    page.run("document.querySelector('#groups .chart svg').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert page.text("#groups .readout").startswith("step 2: 0.2 [")
    page.press("Enter")
    page.wait("document.querySelector('#reader article')")
    assert page.run("location.hash") == "#rollouts/0/2"
    page.press("2")
    page.wait("!document.getElementById('curves').hidden")
    page.run("const f = document.querySelector('#curves input'); f.value = 'gradient'; f.dispatchEvent(new Event('input'))")
    assert page.run("[...document.querySelectorAll('#groups .name')].map((n) => n.textContent)") == ["update/grad norm"]
    assert "value (log)" in page.text("#groups .chart svg")  # 0.1 to 0.001
    page.click("#groups button")
    assert "log" not in page.text("#groups .chart svg")


def test_compared_runs_have_a_line_each_and_can_be_hidden(maker, show):
    page = show(maker.run("first"), maker.run("second", steps=4), at="#curves")
    lines = "document.querySelector('#groups .chart').querySelectorAll('.line').length"
    assert page.run(lines) == 2
    assert "2 runs" in page.text("#title")
    page.click("#curves .legend button")
    assert page.run(lines) == 1
    assert page.run("document.querySelector('#curves .legend button').getAttribute('aria-pressed')") == "false"


def test_tokens_are_those_of_the_record_and_their_numbers_too(run, show):
    page = show(run, at="#rollouts/0/1/5", all_tokens=True)
    turns = run.trajectories(1)[5].trajectory.turns
    pieces = Pieces(decoder(run))
    assert page.run(TOKENS) == [pieces(turn.completion.token_ids) for turn in turns]
    page.run("document.querySelector('.tokens').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    said = page.text("#tip")
    assert f"id {turns[0].completion.token_ids[2]}" in said
    assert f"log-probability −{-turns[0].completion.logprobs[2]:g} nats" in said
    assert "entropy 0.4 nats" in said
    assert "not trained" in said  # groups 1 and 4 … were left out
    page.press("x")
    assert page.text(".given .text") == "Turn 0"


def test_colours_follow_the_chosen_quantity(run, show):
    page = show(run, at="#rollouts/0/1/0", all_tokens=True)
    seen = {}
    for mode in ("mask", "log-probability", "entropy", "advantage", "no colour"):
        page.choose("#pick-colour", mode)
        page.wait(f"document.querySelector('#pick-colour').selectedOptions[0].text === '{mode}'")
        seen[mode] = page.run(SHADES)
    assert len(set(seen["mask"][0])) == 1
    assert len(set(seen["log-probability"][0])) == len(seen["log-probability"][0])  # each token has another one here
    assert len(set(seen["entropy"][0])) == len(seen["entropy"][0])
    first, second = (set(row) for row in seen["advantage"])
    assert len(first) == len(second) == 1
    assert first != second
    assert {"color(srgb 0 0 0 / 0)"} == {shade for row in seen["no colour"] for shade in row}
    page.run("location.hash = '#rollouts/0/1/4'")
    page.choose("#pick-colour", "mask")
    page.wait("document.querySelector('article').getAttribute('aria-label').startsWith('Group 1')")
    assert page.run(SHADES)[0][0] != seen["mask"][0][0]  # sampled, not trained


def test_no_text_becomes_markup_and_what_is_not_seen_is_spelled_out(maker, show):
    run = maker.run(steps=1)
    maker.add(run, 2, maker.groups(2), (maker.hostile(),))
    run.write_eval("before", 0, evaluation(notes=(HOSTILE.replace("\ud800", ""),)))
    page = show(run, at="#rollouts/0/2/12")
    text = page.text("#reader")
    for part in (
        "<script>alert(1)</script></script><img src=x onerror=alert(2)>--><!--",
        "\\u2028",
        "\\u0000",
        "\\u202ertl",
        "\\ud800",
        "é€😀",
    ):
        assert part in text
    assert "{{SCRIPT}}" in text
    scripts = page.run("[...document.scripts].map((s) => s.type)")
    assert scripts.count("") == 1  # the page's own
    page.press("1")
    page.wait("!document.getElementById('summary').hidden")
    assert "<script>alert(1)</script>" in page.text("#summary .notes")
    page.press("3")
    page.wait("!document.getElementById('rollouts').hidden")
    assert page.run("document.querySelectorAll('img, iframe, b, link, object').length") == 0


def test_the_list_filters_searches_and_sorts(maker, show):
    run = maker.run(steps=2)
    bad = maker.trajectory(5, turns=(maker.turn(0, "needle in hay", valid=False),))
    maker.add(run, 3, maker.groups(3), (maker.hostile(),))
    groups = maker.groups(4)
    groups[0] = type(groups[0])(groups[0].index, (*groups[0].trajectories, bad))
    maker.add(run, 4, groups)
    page = show(run, at="#rollouts/0/4")
    select = "#rollouts .filters label:nth-of-type({}) select"
    assert page.text("#count") == "13 of 13 episodes"
    page.choose(select.format(1), "success")
    assert page.text("#count") == "3 of 13 episodes"
    assert all("member 0, success" in label for label in page.run(LISTED))
    page.choose(select.format(1), "any")
    page.choose(select.format(2), "invalid format")
    assert page.run(LISTED)[0].startswith("step 4, group 0, member 5, no success")
    page.choose(select.format(6), "all steps")
    page.wait("document.querySelector('#count').textContent === '2 of 50 episodes'")
    page.choose(select.format(2), "any")
    page.run("const s = document.getElementById('search'); s.value = 'NEEDLE'; s.dispatchEvent(new Event('input'))")
    page.wait("document.querySelector('#count').textContent === '1 of 50 episodes; searched 4 of 4 steps'")
    page.wait("document.querySelector('.row')")
    page.click(".row")
    page.wait("document.querySelector('article .badge.flag')")
    assert "needle in hay" in page.text("#reader")


def test_a_long_list_draws_only_what_is_in_sight(maker, show):
    run = maker.run(steps=1, groups=50, members=20)
    page = show(run, at="#rollouts/0/1/999")
    assert page.text("#count") == "1000 of 1000 episodes"
    assert page.run("document.querySelectorAll('.row').length") < 60
    assert page.run("document.querySelector('.row[aria-selected=true]').id") == "row999"
    page.run("document.getElementById('list').focus()")
    page.press("Home")
    page.wait("document.querySelector('.row[aria-selected=true]').id === 'row0'")
    page.press("ArrowDown")
    page.wait("document.getElementById('list').getAttribute('aria-activedescendant') === 'row1'")


def test_keys_lead_everywhere(run, show):
    page = show(run, at="#rollouts/0/1/0")
    chosen = "location.hash"
    for key, place in (("j", "#rollouts/0/1/1"), ("k", "#rollouts/0/1/0"), ("]", "#rollouts/0/2"), ("[", "#rollouts/0/1")):
        page.press(key)
        page.wait(f"{chosen} === '{place}'")
        page.wait("document.querySelector('.row[aria-selected=true]')")
    page.press("g")
    page.wait("document.querySelectorAll('.columns article').length === 4")
    page.press("g")
    page.wait("!document.querySelector('.columns')")
    caption = "document.querySelector('.caption').textContent"
    assert page.run(caption).startswith("3 of 3")
    page.press(",")
    assert page.run(caption) == "2 of 3 · after turn 1: Left"
    page.press(".")
    assert page.run(caption).startswith("3 of 3")
    page.press("c")
    page.wait("document.getElementById('pick-colour').selectedOptions[0].text === 'log-probability'")
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.press("j")  # typed, no command
    assert page.run("document.getElementById('search').value") == "j"
    page.run("document.activeElement.blur()")
    page.press("?")
    assert page.run("document.getElementById('keys').open")
    assert "side by side" in page.text("#keys")
    page.run("document.getElementById('keys').close()")
    page.press("1")
    page.wait("document.getElementById('rollouts').hidden")


def test_the_grid_is_a_picture_with_words(run, show):
    page = show(run, at="#rollouts/0/1/0")
    assert page.run("document.querySelectorAll('.picture svg .tile').length") == 9
    label = page.run("document.querySelector('.picture svg').getAttribute('aria-label')")
    assert label == "Grid of 3 rows, by (row, column): hole (0, 2); player (1, 1); goal (2, 0)"
    page.click("#reader .turn .small")
    assert "player (1, 0)" in page.run("document.querySelector('.picture svg').getAttribute('aria-label')")


def test_number_grids_are_pictures_with_words(run, show):
    page = show(run, at="#rollouts/0/1/0")
    put = "document.querySelector('.picture').replaceChildren(drawNumbers({}, {}, {{record: {{frames: [{}]}}}}))"
    first, later = "[['1','_'],['_','2']]", "[['1','2'],['_','2']]"
    page.run(put.format("{box: 1, blank: '_'}", later, first))
    label = "document.querySelector('.picture svg').getAttribute('aria-label')"
    texts = "[...document.querySelectorAll('.picture svg text')].map((t) => [t.textContent, t.classList.contains('given')])"
    assert page.run(label) == "Numbers, row by row: 1 2; blank 2"
    assert page.run(texts) == [["1", True], ["2", False], ["2", True]]
    assert page.run("document.querySelectorAll('.picture .boxline').length") == 1
    page.run(put.format("{shades: 32, blank: '_'}", "[['32','2'],['_','1024']]", first))
    shades = "[...document.querySelectorAll('.picture .shade')].map((s) => s.getAttribute('fill-opacity'))"
    assert page.run(shades) == ["1.00", "0.20", "1.00"]


def test_light_and_dark(run, show, browser):
    page = show(run)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.run(background)
    browser.dark()
    dark = page.run(background)
    assert light != dark
    page.press("t")
    assert page.run(background) == light  # asked for, whatever the system prefers
    page.press("t")
    browser.dark(False)
    assert page.run(background) == dark
    assert page.text("#theme") == "Theme: dark"


@pytest.mark.parametrize("part", ["#summary", "#curves", "#rollouts/0/1/0", "#rollouts/0/1/0/group"])
def test_nothing_runs_out_of_a_narrow_window(maker, show, browser, part):
    browser.resize(400, 800)
    run = maker.run("a-run-with-a-rather-long-name-as-names-made-of-presets-and-times-are", steps=2)
    run.write_eval("before", 0, evaluation(players={}, ceiling=0.5))
    page = show(run, at=part, all_tokens=True)
    assert page.run("document.documentElement.scrollWidth") <= 400


def test_every_control_has_a_name(run, show):
    page = show(run, at="#rollouts/0/1/0")
    nameless = page.run(
        "[...document.querySelectorAll('button, select, input, [role=img], [tabindex]')].filter((e) => !e.hidden && "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length) || e.id === 'main'))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_a_page_that_watches_grows_with_the_run(run, maker, browser):
    with Watch(run.path, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        browser.open(f"{server.address}#rollouts")
        browser.wait("document.querySelector('.row')")
        assert browser.text("#live") == "not running: step 3 of 5"
        browser.click("#follow")
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step":4,"rollout')  # half a line
        browser.wait("document.getElementById('live').textContent.includes('step 3')")
        (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.metrics()))
        maker.add(run, 4, maker.groups(4))
        browser.wait("document.querySelector('.episodehead h3').textContent.startsWith('step 4')")
        assert browser.text("#live") == "not running: step 4 of 5"
        browser.press("2")
        browser.wait("document.querySelector('#groups .chart')")
        assert browser.run("document.querySelector('#groups .chart svg').getAttribute('aria-label')").endswith("last 0.4")
        server.shutdown()
        thread.join()
    browser.wait("document.getElementById('live').textContent.includes('ended')")
    browser.errors.clear()  # the connections refused since then


def test_an_evaluation_is_read_without_a_word_of_training_or_tokens(tmp_path, show):
    lost = spoken_episode(3, end=EndReason.ERROR, error="no reply")
    made = kept(tmp_path, [spoken_episode(1, "I go", "I won"), spoken_episode(2, HOSTILE), lost])
    made.write_report(evaluation(success=0.5, notes=("mind this",)))
    page = show(made)
    said = page.text("#summary")
    assert "evaluation of wise at http://here/v1" in said
    assert ".500 [.100, .600]" in said
    assert "mind this" in said
    assert "Main curves" not in said
    page.press("2")
    assert "Evaluations have no curves" in page.text("#curves")
    page.press("3")
    page.wait("document.querySelector('#reader article') && document.querySelector('.row')")
    assert page.run(LISTED) == [
        "group 0, member 0, success, return 0, ",
        "group 1, member 0, no success, return 0, ",
        "group –, member 0, no success, return 0, lost",
    ]
    assert page.text("#reader h3") == "group 0 · member 0"
    assert page.run("[...document.querySelectorAll('#reader .reply .text')].map((t) => t.textContent)") == ["I go", "I won"]
    shown = page.text("#rollouts")
    for word in ("train", "left out", "Colour", "Step", "policy after", "advantage", "all-tokens"):
        assert word not in shown, word
    page.press("j")
    page.press("j")
    page.wait("document.querySelector('#reader .problem')")
    assert page.text("#reader .problem") == "lost: no reply"


def test_a_run_and_an_evaluation_in_one_page(tmp_path, run, show):
    made = kept(tmp_path, [spoken_episode(1, "I won")])
    made.write_report(evaluation(success=0.5))
    page = show(run, made, at="#rollouts/0/2/0")
    assert page.run("document.querySelectorAll('#pick-step, #pick-colour').length") == 2
    assert "policy after" in page.text("#reader")
    page.run("location.hash = '#rollouts/1'")
    page.wait("document.querySelector('#reader .reply .text').textContent === 'I won'")
    assert page.run("document.querySelectorAll('#pick-step, #pick-colour').length") == 0
    assert page.run("document.querySelectorAll('#summary .card').length") == 0  # not drawn yet
    page.press("1")
    assert "Main curves" in page.text("#summary")
    assert page.run("document.querySelectorAll('#summary .card').length") == 1
