"""Ctrl-C, once, twice and three times."""

import signal

import pytest

from ragen.runs.interrupt import Interrupt, StepAbandoned


def test_the_first_asks_and_changes_nothing_else():
    said = []
    with Interrupt(said.append) as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
    assert len(said) == 1
    assert "Ctrl-C again" in said[0]


@pytest.mark.parametrize("work", ["step", "evaluation"])
def test_n19_what_stops_is_named(work):
    said = []

    def work_on(stop):
        with stop.abandonable(work):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with Interrupt(said.append) as stop, pytest.raises(StepAbandoned):
        work_on(stop)
    assert said[0].startswith(f"Stopping after this {work}.")
    assert said[1].startswith(f"Abandoning the {work}, then saving.")


def test_the_second_abandons_only_work_that_may_be_abandoned():
    said = []
    with Interrupt(said.append) as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert said[1].startswith("Finishing the update, which cannot be abandoned, then saving.")
        with pytest.raises(StepAbandoned), stop.abandonable():
            pytest.fail("the next abandonable work must not begin")


def test_the_second_inside_abandonable_work_ends_it_at_once():
    with Interrupt() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(StepAbandoned), stop.abandonable():
            signal.raise_signal(signal.SIGINT)


def test_the_third_ends_at_once():
    with Interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_sigterm_stops_as_ctrl_c_does_and_the_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Interrupt() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
