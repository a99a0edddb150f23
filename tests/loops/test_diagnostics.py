"""Which reasonings are scored under which prompts."""

from collections.abc import Sequence

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.loops.diagnostics import first_reasonings

WORDS = {1: "prompt", 2: "go ", 3: "up", 4: "</thi", 5: "nk>", 6: "<answer>", 7: "</think>"}


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[i] for i in ids)


def group(index: int, prompt: tuple[int, ...], *replies: tuple[int, ...]) -> Group:
    def episode(member: int, ids: tuple[int, ...]) -> Trajectory:
        zeros = (0.0,) * len(ids)
        first = Turn(prompt, False, Completion(ids, zeros, zeros, decode(ids), StopReason.END), "", (), True, 0.0)
        later = Turn((9,), True, Completion((3, 7), (0.0,) * 2, (0.0,) * 2, "up</think>", StopReason.END), "", (), True, 0.0)
        return Trajectory("test", index, member, (first, later), EndReason.TERMINATED, success=True)

    return Group(index, tuple(episode(m, ids) for m, ids in enumerate(replies)))


def test_a_reasoning_ends_with_its_tag_and_is_the_first_turns() -> None:
    groups = [group(0, (1, 1), (2, 3, 4, 5, 6, 7, 6), (3, 7, 6)), group(1, (1,), (7, 6))]
    prompts, reasonings, own = first_reasonings(groups, decode, 8, 2)
    assert prompts == [(1, 1), (1,)]
    assert reasonings == [(2, 3, 4, 5), (3, 7), (7,)]
    assert own == [0, 0, 1]


def test_replies_without_the_tag_and_prompts_seen_before_are_left_out() -> None:
    none, same = group(0, (1, 2), (2, 3, 4), ()), group(2, (1, 1), (3, 3, 7))
    groups = [none, group(1, (1, 1), (2, 4), (3, 7)), same, group(3, (1, 3), (7,)), Group(4, ())]
    assert first_reasonings(groups, decode, 8, 1) == ([(1, 1), (1, 3)], [(3, 7), (7,)], [0, 1])
    assert first_reasonings(groups, decode, 1, 5) == ([(1, 1)], [(3, 7)], [0])
