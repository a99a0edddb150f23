"""Workers: whatever an environment does there costs its own episode, and nothing is left running."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import environments, find_environment
from ragen.envs.guard import guarded
from ragen.envs.workers import InTurn, Pool
from ragen.envs.workers.host import ProcessHost, ThreadHost
from ragen.envs.workers.remote import Remote
from ragen.envs.workers.stage import MAKE, Answer, Question, Stage
from ragen.errors import ConfigError, EnvironmentFault

WORLDS = Path(__file__).parent / "worlds.py"
MODES = ("process", "thread")


def factory(name: str) -> Any:
    return find_environment({"name": f"{WORLDS}:{name}"}).make


@pytest.fixture(params=MODES)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with closing(Pool(2, request.param, timeout_s=30)) as made:
        yield made


def pid(pool: Pool, number: int = 0) -> int:
    host = pool._hosts[number]
    assert isinstance(host, ProcessHost)
    assert host._process is not None
    return host._process.pid


def test_an_environment_in_a_worker_answers_as_one_here(pool: Pool) -> None:
    make = find_environment({"name": "sokoban"}).make
    here, (there,) = make(), pool.environments(make, 1)
    for env in (here, there):
        assert env.reset(instance_seed=5, dynamics_seed=0).text == here.reset(instance_seed=5, dynamics_seed=0).text
    for action in ("Up", "Left", "Up"):
        assert there.step(action) == here.step(action)
    for method in ("actions", "instructions", "content", "facts", "anchor", "plan", "best_success"):
        assert getattr(there, method)() == getattr(here, method)()
    assert (there.success, there.settings) == (here.success, here.settings)
    assert [there.match(text) for text in (" up. ", "jump")] == ["Up", None]


def test_answers_come_in_the_order_of_the_questions(pool: Pool) -> None:
    envs = pool.environments(factory("Lumbers"), 8)
    pool.each([(env, partial(env.reset, instance_seed=4, dynamics_seed=n)) for n, env in enumerate(envs)])
    for _ in range(2):
        steps = pool.each([(env, partial(env.step, "Up")) for env in envs])
    assert [step.observation for step in steps] == ["Stair 2 of 7."] * 8
    one = pool.each([(env, partial(env.step, "Up" if n % 3 else "Down")) for n, env in enumerate(envs)])
    assert [step.reward for step in one] == [1.0 if n % 3 == 0 else 3.0 for n in range(8)]


def test_what_raises_says_the_same_as_without_workers(pool: Pool) -> None:
    said = []
    for workers in (InTurn(), pool):
        (env,) = workers.environments(factory("Raises"), 1)
        env = guarded(env)
        env.reset(instance_seed=0, dynamics_seed=13)
        env.step("Up")
        env.step("Up")
        with pytest.raises(EnvironmentFault) as caught:
            env.step("Up")
        said.append(str(caught.value))
    line = 1 + WORLDS.read_text().splitlines().index('            raise RuntimeError("the stairs broke")')
    assert said == [f"Raises.step('Up') raised RuntimeError: the stairs broke (worlds.py, line {line})"] * 2
    assert pool.replaced == 0


def test_one_whose_constructor_leaves_is_an_answer_too() -> None:
    def leave(source: Any) -> Any:
        sys.exit(source)

    said = Stage(leave).answer(Question(0, MAKE, {"forget": [], "source": 3}))
    assert said == Answer(fault="an environment could not be made: SystemExit: 3")


@pytest.mark.parametrize(
    ("name", "mode", "says"),
    [
        ("Stalls", "process", r"gave no answer in 1 s \(rollout.env_timeout_s\)"),
        ("Stalls", "thread", r"gave no answer in 1 s \(rollout.env_timeout_s\)"),
        ("Trails", "process", r"gave only a part of a message in 1 s \(rollout.env_timeout_s\)"),
        ("Crashes", "process", r"ended its process after .* s \(exit code 7\)"),
        ("Killed", "process", r"ended its process after .* s \(signal 9\)"),
        ("Leaves", "process", r"Leaves.step\('Up'\) raised SystemExit: 3"),
        ("Leaves", "thread", r"Leaves.step\('Up'\) raised SystemExit: 3"),
        ("Unsendable", "process", r"cannot be sent to another process"),
    ],
)
def test_a_fault_costs_its_episode_only(name: str, mode: Any, says: str) -> None:
    with closing(Pool(1, mode, timeout_s=1 if name in ("Stalls", "Trails") else 30)) as pool:
        envs = pool.environments(factory(name), 3)
        for seed, env in zip((1, 13, 2), envs, strict=True):
            env.reset(instance_seed=4, dynamics_seed=seed)
            env.step("Up")
            env.step("Up")
        with pytest.raises(EnvironmentFault, match=says):
            envs[1].step("Up")
        for env in (envs[0], envs[2]):  # kept: played again in the new worker
            assert (env.step("Up").observation, env.success, env.anchor()) == ("Stair 3 of 7.", False, "3")
        assert pool.replaced == (0 if name in ("Leaves", "Unsendable") else 1)
        (fresh,) = pool.environments(factory(name), 1)
        assert fresh.reset(instance_seed=1, dynamics_seed=0).text == "Stair 0 of 4."


def test_one_that_sometimes_cannot_be_made_costs_its_episode_only() -> None:
    fails = iter((True, False, True))  # here, here again, in the worker

    def make() -> Any:
        if next(fails, False):
            raise OSError("no connection")
        return guarded(find_environment({"name": "sokoban"}).make())

    with closing(Pool(1, "thread", timeout_s=30)) as pool:
        lost, sound = pool.environments(make, 2)
        with pytest.raises(EnvironmentFault, match="an environment could not be made: OSError: no connection"):
            lost.reset(instance_seed=1, dynamics_seed=0)
        assert sound.reset(instance_seed=1, dynamics_seed=0).text


def test_one_that_can_never_be_made_is_a_fault_in_each_episode(pool: Pool) -> None:
    def make() -> Any:
        raise OSError("no connection")

    for env in pool.environments(make, 3):
        with pytest.raises(EnvironmentFault, match="an environment could not be made: OSError: no connection"):
            env.reset(instance_seed=1, dynamics_seed=0)


def test_what_cannot_be_played_again_is_lost_and_said_to_be() -> None:
    with closing(Pool(1, "process", timeout_s=30)) as pool:
        bad, innocent = pool.environments(factory("Drifts"), 2)
        for env, seed in ((bad, 13), (innocent, 1)):
            env.reset(instance_seed=4, dynamics_seed=seed)
            env.step("Up")
        bad.step("Up")
        with pytest.raises(EnvironmentFault, match="exit code 7"):
            bad.step("Up")
        with pytest.raises(EnvironmentFault, match=r"its worker was replaced, and step\(\) did not give the same again"):
            innocent.step("Up")


def test_a_worker_that_is_killed_between_questions_costs_nothing() -> None:
    with closing(Pool(1, "process", timeout_s=30)) as pool:
        (env,) = pool.environments(factory("Stairs"), 1)
        env.reset(instance_seed=4, dynamics_seed=0)
        env.step("Up")
        os.kill(pid(pool), signal.SIGKILL)
        os.waitid(os.P_PID, pid(pool), os.WEXITED | os.WNOWAIT)
        assert env.step("Up").observation == "Stair 2 of 7."
        assert pool.replaced == 1


def test_a_worker_that_dies_by_itself_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen.envs.workers.host.FOUND_DEAD", 1)
    with closing(Pool(1, "process", timeout_s=30)) as pool:
        (env,) = pool.environments(factory("Stairs"), 1)
        env.reset(instance_seed=4, dynamics_seed=0)
        for last in (False, True):
            os.kill(pid(pool), signal.SIGKILL)
            pool._hosts[0]._process.wait()  # type: ignore[attr-defined]
            if last:
                with pytest.raises(EnvironmentFault, match="ended by itself 1 times"):
                    env.step("Up")
            else:
                env.step("Up")


def test_worker_processes_load_no_torch() -> None:
    with closing(Pool(2, "process", timeout_s=30)) as pool:
        said = [env.reset(instance_seed=0, dynamics_seed=0).text for env in pool.environments(factory("Modules"), 2)]
        assert said == [f"process {pid(pool, 0)} []", f"process {pid(pool, 1)} []"]
    with closing(Pool(1, "thread", timeout_s=30)) as pool:
        (env,) = pool.environments(factory("Modules"), 1)
        assert env.reset(instance_seed=0, dynamics_seed=0).text.startswith(f"process {os.getpid()} ")


def test_environments_that_nobody_has_are_forgotten() -> None:
    with closing(Pool(1, "thread", timeout_s=30)) as pool:
        for _ in range(5):
            (env,) = pool.environments(factory("Stairs"), 1)
            env.reset(instance_seed=0, dynamics_seed=0)
            del env
            gc.collect()
        host = pool._hosts[0]
        assert isinstance(host, ThreadHost)
        assert len(host._stage._envs) == 1


class Interrupted(Exception): ...


@pytest.mark.parametrize("mode", MODES)
def test_an_interruption_gives_the_workers_up_and_others_come(mode: Any) -> None:
    def handler(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with closing(Pool(2, mode, timeout_s=300)) as pool:
            envs = pool.environments(factory("Stalls"), 4)
            for env in envs:
                env.reset(instance_seed=4, dynamics_seed=13)
                env.step("Up")
                env.step("Up")
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(Interrupted):
                pool.each([(env, partial(env.step, "Up")) for env in envs])
            (env,) = pool.environments(factory("Stalls"), 1)
            assert env.reset(instance_seed=1, dynamics_seed=0).text == "Stair 0 of 4."
    finally:
        signal.signal(signal.SIGALRM, before)


def test_nothing_runs_after_the_end() -> None:
    with closing(Pool(2, "process", timeout_s=30)) as pool:
        for env in pool.environments(factory("Stairs"), 2):
            env.reset(instance_seed=0, dynamics_seed=0)
        pids = [pid(pool, 0), pid(pool, 1)]
    assert not any(Path(f"/proc/{each}").exists() for each in pids)
    before = set(threading.enumerate())
    with closing(Pool(2, "thread", timeout_s=30)) as pool:
        envs = pool.environments(factory("Stairs"), 2)
        pool.each([(env, partial(env.reset, instance_seed=0, dynamics_seed=0)) for env in envs])
        # The threads that ask are started as they are needed: the second one only where the first is still busy.
        born = [thread.name for thread in set(threading.enumerate()) - before]
        assert born.count("environments") == 2 < len(born)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_orphan_is_left_when_the_asker_ends(number: int) -> None:
    code = (
        "from contextlib import closing\n"
        "from ragen.envs import find_environment\n"
        "from ragen.envs.workers import Pool\n"
        f"make = find_environment({{'name': '{WORLDS}:StallsAtOnce'}}).make\n"
        "import os; os.environ['STALL'] = '1'\n"
        "with closing(Pool(2, 'process', timeout_s=600)) as pool:\n"
        "    envs = pool.environments(make, 2)\n"
        "    pool.each([(env, lambda env=env: env.reset(instance_seed=0, dynamics_seed=0)) for env in envs])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["stalling\n"] * 2
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    born = [int(word) for task in children.parents[1].iterdir() for word in (task / "children").read_text().split()]
    assert len(born) == 2
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: everybody gets it
    else:
        process.send_signal(number)
    process.wait(60)
    process.stdout.close()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{each}").exists() for each in born):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_worker_cannot_make_is_refused_with_the_way_out() -> None:
    with closing(Pool(1, "process", timeout_s=30)) as pool:
        with pytest.raises(ConfigError, match="needs an environment with a name"):
            pool.environments(factory("Stairs").make, 1)
        made = find_environment({"name": f"{WORLDS}:Stairs"}).make
        import __main__

        __main__.Stairs = type("Stairs", (type(made()),), {"__module__": "__main__"})  # type: ignore[attr-defined]
        hand_made = find_environment({}, __main__.Stairs).make  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match=r"a worker process cannot make 'Stairs'.*file of its own.*'thread'"):
            pool.try_out(hand_made)
        del __main__.Stairs  # type: ignore[attr-defined]
        pool.try_out(made)
        pool.try_out(find_environment({"name": f"{WORLDS}:make_stairs"}).make)


def test_other_settings_there_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "moody.py"
    file.write_text(
        f"import os, sys\nsys.path.insert(0, {str(WORLDS.parent)!r})\nfrom worlds import Stairs, EnvSettings\n"
        f"class Moody(Stairs):\n    def __init__(self, settings=None):\n"
        f"        super().__init__(EnvSettings(max_turns=1 if os.getpid() == {os.getpid()} else 2))\n"
    )
    with (
        closing(Pool(1, "process", timeout_s=30)) as pool,
        pytest.raises(ConfigError, match="there it is Moody with other settings"),
    ):
        pool.try_out(find_environment({"name": f"{file}:Moody"}).make)


def test_plugins_are_loaded_in_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_items", dict(environments._items))
    plugin = tmp_path / "plug.py"
    plugin.write_text(
        f"import sys\nsys.path.insert(0, {str(WORLDS.parent)!r})\nfrom worlds import Stairs\n"
        "from ragen.envs import EnvPreset, environments\n"
        "environments.register('plugged-stairs')(EnvPreset(Stairs, 'stairs'))\n"
    )
    from ragen.modules import load_plugins

    load_plugins((str(plugin),))
    make = find_environment({"name": "plugged-stairs", "max_turns": 3}).make
    with closing(Pool(1, "process", timeout_s=30, plugins=(str(plugin),))) as pool:
        pool.try_out(make)
        (env,) = pool.environments(make, 1)
        assert isinstance(env, Remote)
        assert env.reset(instance_seed=0, dynamics_seed=0).text == "Stair 0 of 3."
    with closing(Pool(1, "process", timeout_s=30)) as pool, pytest.raises(ConfigError, match="name what registers it in"):
        pool.try_out(make)
    with (
        closing(Pool(1, "process", timeout_s=30, plugins=(str(tmp_path / "gone.py"),))) as pool,
        pytest.raises(ConfigError, match="does not start: there is no file"),
    ):
        pool.try_out(make)


def test_a_worker_that_ends_before_it_says_a_word_is_an_error_in_words(tmp_path: Path) -> None:
    plugin = tmp_path / "leaves.py"
    plugin.write_text("import os\nos._exit(3)\n")
    with (
        closing(Pool(1, "process", timeout_s=30, plugins=(str(plugin),))) as pool,
        pytest.raises(ConfigError, match="does not start: see what it printed above"),
    ):
        pool.try_out(factory("Stairs"))


def test_an_interruption_that_comes_with_the_question_is_not_missed() -> None:
    host = ThreadHost(timeout_s=1)

    class Interrupting:
        def put(self, asked: object) -> None:
            del asked
            host.interrupt()

    host._questions = Interrupting()  # type: ignore[assignment]
    assert host.ask(Question(0, "actions", {})).fault == "was given up"
