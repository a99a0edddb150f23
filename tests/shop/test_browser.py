"""The shop in a real headless Chromium: an episode clicked to its purchase, a stored one turned with arrow keys."""

import json

import pytest
from tests.report.browser import Browser, find_chromium
from tests.shop.conftest import EVIL

from ragen.envs import environment_factory
from ragen.report.file import write_report

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium here: apt-get install chromium, or set RAGEN_CHROMIUM"),
]


@pytest.fixture
def browser():
    with Browser() as opened:
        yield opened
        assert opened.errors == []
        assert all(url.startswith(("data:", "file:", "http://127.0.0.1:")) for url in opened.requests)


def press(browser, label):
    browser.follow(lambda: browser.click(f"button[value={json.dumps(label)}]"))


def search(browser, words):
    browser.click("input[name=search]")
    browser.call("Input.insertText", text=words)
    browser.follow(lambda: browser.click(".searchbox button"))


@pytest.mark.parametrize("dark", [False, True])
def test_an_episode_is_clicked_to_its_purchase(browser, shopping, dark):
    browser.dark(dark)
    env = environment_factory({"name": "webshop"})()
    env.reset(instance_seed=5, dynamics_seed=0)
    with shopping() as server:
        browser.open(f"{server.address}?goal=5")
        browser.follow(lambda: browser.click("button.buy"))
        while (plan := env.plan()) is not None:
            verb, _, argument = plan[0].removesuffix("]").partition("[")
            step = env.step(plan[0])
            (search if verb == "search" else press)(browser, argument)
            assert browser.run("document.getElementById('text').textContent") == step.observation
        assert step.reward == 1.0
        assert browser.text("#score") == "Score 1"
        assert "Reward 1." in browser.text(".end")
        assert browser.run("document.querySelectorAll('.page button').length") == 1
        background = browser.run("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
        browser.follow(lambda: browser.click(".end + p button + button"))
        assert browser.text("h1").startswith("WebShop, goal 6")


def test_enter_searches_and_an_old_address_is_a_picture_of_the_past(browser, shopping):
    with shopping() as server:
        browser.open(server.address)
        browser.follow(lambda: browser.click("button.buy"))
        browser.wait("document.activeElement.name === 'search'")
        first = browser.run("location.href")
        browser.call("Input.insertText", text="leggings")
        enter = {"key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
        browser.follow(lambda: browser.call("Input.dispatchKeyEvent", type="keyDown", **enter))
        assert browser.text("q") == "leggings"
        browser.open(first)
        assert "You have gone on from here" in browser.text("main")
        assert browser.run("document.querySelector('.searchbox button').disabled")


def test_hostile_products_are_shown_as_text_and_can_be_chosen(browser, shopping, evil):
    with shopping(**evil) as server:
        browser.open(server.address)
        browser.follow(lambda: browser.click("button.buy"))
        search(browser, "hoodie")
        assert browser.run("document.querySelectorAll('.cards li').length") > 5
        press(browser, "B0")
        assert EVIL[0] in browser.text("h2")
        browser.follow(lambda: browser.run("document.querySelectorAll('.value')[7].click()"))
        assert browser.run("document.querySelectorAll('.value[aria-pressed=true]').length") == 1
        assert browser.run("document.querySelectorAll('script, img, iframe').length") == 0
        assert browser.run("document.querySelectorAll('form').length") == 1


def test_a_stored_episode_is_turned_with_the_arrow_keys(browser, make_run, replaying):
    run = make_run()
    turns = run.trajectories()[0].trajectory.turns
    with replaying(run) as server:
        browser.open(server.address)
        browser.follow(lambda: browser.click("td a"))
        for at, turn in enumerate(turns):
            assert f"page {at + 1} of {len(turns) + 1}" in browser.text(".ways")
            assert browser.text(".reply") == turn.completion.text
            assert browser.run("document.querySelectorAll('.clicked').length") == 1
            browser.follow(lambda: browser.press("ArrowRight"))
        assert browser.text("#score") == "Score 1"
        browser.press("ArrowRight")
        browser.follow(lambda: browser.press("ArrowLeft"))
        assert browser.text(".clicked") == "Buy Now"


@pytest.mark.parametrize("dark", [False, True])
def test_the_report_draws_the_pages(browser, make_run, evil, tmp_path, dark):
    browser.dark(dark)
    run = make_run(**evil)
    turns = run.trajectories()[0].trajectory.turns
    write_report([run], tmp_path / "report.html")
    browser.open(f"{(tmp_path / 'report.html').as_uri()}#rollouts/0/1/0")
    browser.wait("document.querySelector('#reader .shop')")
    assert browser.text(".shopscore").startswith("Score ")
    seen = []
    for _ in turns:
        browser.press(",")
        seen.append(browser.run("document.querySelector('.shop').getAttribute('aria-label')"))
        assert browser.run("document.querySelectorAll('.shop .clicked').length") == 1
    assert seen[-1] == "Shop: search"
    assert seen[0] == "Shop: item"
    search = turns[0].actions[0]
    assert browser.text(".shopfield") in search
    browser.press(".")
    assert "<script>alert(1)</script>" in browser.text(".shop")
    assert browser.run("document.querySelectorAll('.shop script, .shop img, .shop form').length") == 0


def test_pages_fit_a_narrow_window(browser, shopping, make_run, replaying):
    browser.resize(360, 700)
    with shopping() as server:
        browser.open(server.address)
        browser.follow(lambda: browser.click("button.buy"))
        search(browser, "hoodie")
        assert browser.run("document.documentElement.scrollWidth") <= 360
    with replaying(make_run()) as server:
        browser.open(f"{server.address}0/2")
        assert browser.run("document.documentElement.scrollWidth") <= 360
