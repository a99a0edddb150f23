"""Stored episodes as pages: each page is the one the agent was told, and where that is not so its text is shown."""

import pytest
from tests.shop.conftest import EVIL, Visitor, serving

from ragen.cli.shop import shop_of
from ragen.envs.webshop.replay import replay
from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.runs.events import StoredTrajectory
from ragen.shop.record import Records
from ragen.shop.server import ReplayServer


@pytest.mark.parametrize("form", ["full", "compact"])
def test_every_page_of_a_stored_episode_is_the_one_the_agent_was_told(make_run, form):
    run = make_run(observation=form)
    env = shop_of(run.config.env)
    for stored in run.trajectories():
        seen = replay(env, stored.trajectory)
        turns = stored.trajectory.turns
        assert len(seen) == len(turns) + 1
        assert seen[0].text in turns[0].observation
        assert [sight.text for sight in seen[1:]] == [turn.info["next_observation"] for turn in turns]
    assert run.trajectories()[0].trajectory.success
    score = replay(env, run.trajectories()[0].trajectory)[-1].score
    assert score is not None
    assert score.full


def test_conditions_met_are_those_the_score_counts(make_run):
    run = make_run()
    env = shop_of(run.config.env)
    bought = 0
    for goal in range(40):
        env.reset(instance_seed=goal, dynamics_seed=0)
        for action in (env.actions()[0], None, "click[Buy Now]"):
            env.step(action or next(word for word in env.actions() if word.startswith("click[B0")))
        sight = env.sight()
        assert sight.score is not None
        met = {
            part: sum(each.met for each in sight.conditions if each.part == part)
            for part in ("attribute", "option", "price")
        }
        assert met == {"attribute": sight.score.attributes, "option": sight.score.options, "price": int(sight.score.price)}
        assert len(sight.conditions) == sight.score.asked
        bought += met["attribute"] < len(sight.goal.attributes)
    assert bought  # not everything was met everywhere


def test_pages_are_turned_and_the_click_is_marked(make_run, replaying):
    run = make_run()
    turns = run.trajectories()[0].trajectory.turns
    with replaying(run) as server:
        visitor = Visitor(server)
        visitor.get("/")
        assert visitor.text.count(">watch</a>") == 2
        page = visitor.get("/0/0")
        for at, turn in enumerate(turns):
            action = turn.actions[0]
            assert turn.completion.text in visitor.text.replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'")
            (marked,) = [have for _, have in page.elements if "clicked" in str(have.get("class", ""))]
            style = "button" if at == 0 else "title" if at == 1 else "buy" if action == "click[Buy Now]" else "value"
            assert marked["class"] == f"{style} clicked"
            assert f"page {at + 1} of {len(turns) + 1}" in visitor.text
            assert len(page.all("a", rel="prev")) == (at > 0)
            page = visitor.get(page.all("a", rel="next")[0]["href"])
        assert page.all("a", rel="next") == []
        assert "Score 1" in visitor.text
        assert "ended: terminated" in visitor.text
        for path in (f"/0/{len(turns) + 1}", "/2/0", "/x/0", "/0/-1", "/0", "/0/0/0"):
            visitor.get(path)
            assert visitor.status == 404
        assert visitor.ask("POST", "/0/0", "click=x") == 501


def test_another_shop_than_the_runs_shows_the_texts(make_run, replaying):
    run = make_run()
    stored = run.trajectories()[0].trajectory
    other = shop_of({**run.config.env, "catalogue_seed": 5})
    assert replay(other, stored) == ()
    with replaying(run, catalogue_seed=5) as server:
        visitor = Visitor(server)
        visitor.get("/0/2")
        assert "other products or rules" in visitor.text
        assert stored.turns[1].info["next_observation"].splitlines()[0][:40] in visitor.text
    assert len(replay(shop_of({**run.config.env, "show_chosen": False}), stored)) < len(stored.turns) + 1


def turn_of(action, after, said="x"):
    done = Completion((1,), (0.0,), (0.0,), said, StopReason.END)
    return Turn((1,), False, done, "first", (action,) if action else (), bool(action), 0.0, info={"next_observation": after})


def test_an_episode_that_no_shop_gives_ends_where_it_does(replaying):
    env = shop_of({"name": "webshop", "observation": "compact"})
    env.reset(instance_seed=4, dynamics_seed=0)
    first = f"{env.instructions()}\n{env.sight().text}"
    done = Completion((1,), (0.0,), (0.0,), "x", StopReason.END)
    start = Turn((1,), False, done, first, (), False, 0.0, info={"next_observation": env.sight().text})
    strange = Trajectory("webshop", 4, 0, (start, turn_of("click[Buy Now]", "bought")), EndReason.TERMINATED, True)
    assert [sight.page.kind for sight in replay(env, strange)] == ["search", "search"]
    assert len(replay(env, Trajectory("webshop", 4, 0, (), EndReason.ERROR, False))) == 1


def test_hostile_replies_stay_text(make_run):
    run = make_run()
    turns = tuple(turn_of("", evil, f"{evil} \ud800") for evil in EVIL)
    item = StoredTrajectory(None, Trajectory("webshop", 4, 0, turns, EndReason.ERROR, False, error=EVIL[0]))
    with serving(ReplayServer(Records(shop_of(run.config.env), [item], EVIL[0]), 0)) as server:
        visitor = Visitor(server)
        for at in range(len(turns) + 1):
            page = visitor.get(f"/0/{at}")
            assert visitor.status == 200
            assert len(page.all("script")) == 1
            assert not page.all("img")
            assert len(page.all("style")) == 1
        visitor.get("/")
        assert visitor.at == "/0/0"  # one episode: no list
