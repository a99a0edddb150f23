"""The server of `ragen watch`: new steps appear, half-written lines do not matter, other names are refused."""

import gzip
import http.client
import json
import os
import threading

import pytest
from tests.report.conftest import evaluation

from ragen.errors import ConfigError
from ragen.report.live import KEPT_BODIES, LiveRun, Watch


@pytest.fixture
def watch(run):
    with Watch(run.path, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path, host=None, method="GET"):
    connection = http.client.HTTPConnection(*server.server_address)
    connection.request(method, path, headers={"Host": host or f"localhost:{server.server_address[1]}"})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    return answer.status, json.loads(data) if answer.headers.get_content_type() == "application/json" else data


def test_the_page_and_its_data(watch, run):
    status, page = ask(watch, "/")
    assert status == 200
    assert b'id="head">null</script>' in page
    head = ask(watch, "/head")[1]
    assert [step for step, _ in head["runs"][0]["steps"]] == [1, 2, 3]
    assert ask(watch, "/index?step=2")[1]["step"] == 2
    assert len(ask(watch, "/body?step=2")[1]) == 12


def test_a_run_that_goes_on_appears_and_half_a_line_does_not(watch, run, maker):
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step":4,"rollout/succ')
        file.flush()
        assert ask(watch, "/head")[1]["runs"][0]["done"] == 3
        file.write('ess":0.4}\n')
    run.write_trajectories(4, maker.groups(4), [], {})
    told = ask(watch, "/head")[1]["runs"][0]
    assert (told["done"], told["steps"][-1][0]) == (4, 4)
    assert ask(watch, "/body?step=4")[0] == 200


def test_a_head_is_made_again_only_where_a_file_has_changed(run, monkeypatch):
    from ragen.report import live

    made = []
    real = live.overview_of
    monkeypatch.setattr(live, "overview_of", lambda run: made.append(1) or real(run))
    watched = LiveRun(run.path)
    assert watched.head() == watched.head()
    assert len(made) == 1
    changes = [
        lambda: run.append_metrics(4, {"rollout/success": 0.5}),
        lambda: run.write_eval("before", 0, evaluation()),
        lambda: run.write_rollback(1, {"rollback": 1, "at_step": 3, "to_step": 2}, []),
        lambda: (run.path / ".lock").write_text(f"{os.getpid()}\n"),
    ]
    for number, change in enumerate(changes, start=2):
        change()
        watched.head()
        assert len(made) == number


def test_a_step_that_is_made_again_is_read_again(watch, run, maker):
    first = ask(watch, "/index?step=3")[1]
    before = dict(ask(watch, "/head")[1]["runs"][0]["steps"])[3]
    run.write_trajectories(3, maker.groups(3, groups=1), [], {})
    os.utime(run.trajectory_file(3), ns=(1, 2_000_000_000_000_000_000))
    assert dict(ask(watch, "/head")[1]["runs"][0]["steps"])[3] != before
    assert len(first["group"]) == 12
    assert len(ask(watch, "/index?step=3")[1]["group"]) == 4


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example:8808", "[::1]", ""]
)
def test_other_names_are_refused(watch, host):
    connection = http.client.HTTPConnection(*watch.server_address)
    connection.putrequest("GET", "/head", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:1"])
def test_the_machines_own_names_are_served(watch, host):
    assert ask(watch, "/head", host)[0] == 200


@pytest.mark.parametrize(
    "path", ["/nosuch", "/body", "/body?step=x", "/body?step=-1", "/body?step=1e3", "/../config.yaml", "/config.yaml"]
)
def test_nothing_else_is_there(watch, path):
    assert ask(watch, path)[0] == 404


def test_a_step_that_is_not_there_and_a_damaged_run_are_said(watch, run):
    status, said = ask(watch, "/body?step=99")
    assert (status, "no trajectories of step 99" in said["error"]) == (503, True)
    (run.path / "metrics.jsonl").write_text("nonsense\n\n{}\n")
    status, said = ask(watch, "/head")
    assert (status, "is not JSON" in said["error"]) == (503, True)
    assert ask(watch, "/")[0] == 200  # and the server goes on


def test_a_change_is_not_taken(watch):
    assert ask(watch, "/head", method="POST")[0] == 501


def test_a_taken_port_is_said(watch, run):
    with pytest.raises(ConfigError, match="cannot be used"):
        Watch(run.path, watch.server_address[1])


def test_only_the_last_bodies_are_kept_in_memory(maker):
    run = maker.run(steps=KEPT_BODIES + 3, groups=1, members=2)
    live = LiveRun(run.path)
    bodies = [live.body(step) for step in range(1, KEPT_BODIES + 4)]
    assert len(live._bodies) == KEPT_BODIES
    assert live.body(1) == bodies[0]
