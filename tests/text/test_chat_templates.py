"""Templates of the common families, and tokenizers that try to spoil them (cases A1, H1)."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ragen.episode import Completion, StopReason
from ragen.errors import TemplateError
from ragen.text.chat import ChatRenderer

QWEN3 = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- set content = m.content %}{%- set reasoning = '' %}
{%- if '</think>' in content %}
{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{%- if loop.index0 > ns.last %}
{{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}{%- endif %}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' "
    "+ m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}"
)
PHI = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
GLM = (
    "[gMASK]{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
LAST_TWO = (
    "{% for m in messages %}{% if loop.revindex <= 2 %}"
    "{{ '<|im_start|>' + m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)
FORGETS_LATE = (
    "{% for m in messages %}{% if messages | length < 5 or loop.index0 != 1 %}{{ m['content'] }}{% endif %}"
    "{{ '<|im_end|>' }}{% endfor %}"
)
ONE_MESSAGE = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0]['content'] }}:"
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CHATML_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FAMILIES: dict[str, tuple[str, dict[str, Any], str, str]] = {  # template, tokenizer, end of turn, blank the policy samples
    "llama3": (
        LLAMA3,
        {
            "specials": ("<bos>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "bos": "<bos>",
            "eos": "<|eot_id|>",
        },
        "<|eot_id|>",
        "",
    ),
    "gemma": (
        GEMMA,
        {
            "specials": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
            "bos": "<bos>",
            "eos": "<eos>",
            "adds_bos": True,
        },
        "<end_of_turn>",
        "",
    ),
    "mistral": (MISTRAL, {"specials": ("<s>", "</s>"), "bos": "<s>", "eos": "</s>", "adds_bos": True}, "</s>", " "),
    "phi": (
        PHI,
        {"specials": ("<eos>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), "eos": "<eos>"},
        "<|end|>",
        "",
    ),
    "glm": (
        GLM,
        {"specials": ("<eos>", "[gMASK]", "<|system|>", "<|user|>", "<|assistant|>"), "eos": "<eos>"},
        "<|user|>",
        "",
    ),
}
USERS = ("Which way?\nP__O", "Reward 0.5.", "Up or Left?")
REPLIES = ("<think>I will go Up.</think><answer>Up</answer>", "Left")
MakeTokenizer = Callable[..., Any]


def messages(users: Sequence[str], replies: Sequence[str]) -> list[dict[str, str]]:
    turns = [
        ({"role": "user", "content": u}, {"role": "assistant", "content": r}) for u, r in zip(users, replies, strict=False)
    ]
    said = [message for turn in turns for message in turn]
    return said + [{"role": "user", "content": user} for user in users[len(replies) :]]


def rendered(tokenizer: Any, users: Sequence[str], replies: Sequence[str]) -> str:
    prompt = len(users) > len(replies)
    return str(tokenizer.apply_chat_template(messages(users, replies), tokenize=False, add_generation_prompt=prompt))


def completion(ids: Sequence[int]) -> Completion:
    return Completion(tuple(ids), (0.0,) * len(ids), (0.0,) * len(ids), "", StopReason.END)


def dialogue(renderer: ChatRenderer, tokenizer: Any, blank: str = "") -> list[int]:
    ids = list(renderer.open(USERS[0]))
    for reply, user in zip(REPLIES, USERS[1:], strict=True):
        sampled = (*tokenizer.encode(blank + reply, add_special_tokens=False), renderer.end_of_turn)
        ids += [*sampled, *renderer.extend(completion(sampled), user)]
    return ids


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dialogue_is_the_templates_own_ids(make_tokenizer: MakeTokenizer, family: str) -> None:
    template, settings, end, blank = FAMILIES[family]
    tokenizer = make_tokenizer(template, **settings)
    renderer = ChatRenderer(tokenizer)
    assert renderer.multi_turn, renderer.why_single
    assert renderer.end_of_turn == tokenizer.convert_tokens_to_ids(end)
    assert renderer.end_ids == {renderer.end_of_turn, tokenizer.eos_token_id}
    text = rendered(tokenizer, USERS, REPLIES)
    assert dialogue(renderer, tokenizer, blank) == tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_beginning_token_is_neither_doubled_nor_lost(make_tokenizer: MakeTokenizer, family: str) -> None:
    template, settings, _, _ = FAMILIES[family]
    tokenizer = make_tokenizer(template, **settings)
    first = ChatRenderer(tokenizer).open("x")
    expected = 0 if tokenizer.bos_token_id is None else 1
    assert first.count(tokenizer.bos_token_id) == expected
    assert first[:expected] == (tokenizer.bos_token_id,)[:expected]


def test_a_beginning_token_the_template_leaves_to_the_tokenizer_is_added(
    make_tokenizer: MakeTokenizer, chatml_tokenizer: Any
) -> None:
    tokenizer = make_tokenizer(
        chatml_tokenizer.chat_template, ("<s>", *CHATML_CONTROL), bos="<s>", eos="<|im_end|>", adds_bos=True
    )
    assert list(ChatRenderer(tokenizer).open("x")) == tokenizer(rendered(tokenizer, ["x"], []))["input_ids"]


def test_user_messages_are_trimmed_where_the_template_trims_them(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(LLAMA3, **FAMILIES["llama3"][1])
    padded = "\n  Which way? \n"
    assert list(ChatRenderer(tokenizer).open(padded)) == tokenizer.encode(
        rendered(tokenizer, [padded], []), add_special_tokens=False
    )


def test_a_system_message_is_trimmed_where_the_template_trims_it(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(LLAMA3, **FAMILIES["llama3"][1])
    both = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "x"}]
    text = tokenizer.apply_chat_template(both, tokenize=False, add_generation_prompt=True)
    opened = ChatRenderer(tokenizer, system=" Be brief.\n").open("x")
    assert list(opened) == tokenizer.encode(text, add_special_tokens=False)


def test_the_longest_of_overlapping_tokens_counts(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(PHI, ("<|end", "<eos>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), eos="<eos>")
    renderer = ChatRenderer(tokenizer)
    assert dialogue(renderer, tokenizer) == tokenizer.encode(rendered(tokenizer, USERS, REPLIES), add_special_tokens=False)


def test_a_tokenizer_left_cutting_and_padding_cuts_and_pads_nothing_here(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(PHI, FAMILIES["phi"][1]["specials"], eos="<eos>")
    expected = ChatRenderer(tokenizer).open("word " * 50)
    tokenizer.backend_tokenizer.enable_truncation(8)
    tokenizer.backend_tokenizer.enable_padding(length=8)
    assert ChatRenderer(tokenizer).open("word " * 50) == expected


def test_tokens_that_swallow_blanks_do_so_here_too(make_tokenizer: MakeTokenizer) -> None:
    names = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    swallowing = [AddedToken(name, special=True, rstrip=True) for name in names]
    tokenizer = make_tokenizer(PHI, ("<eos>", *swallowing), eos="<eos>")
    renderer = ChatRenderer(tokenizer)
    text = rendered(tokenizer, USERS, REPLIES)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) != text
    assert dialogue(renderer, tokenizer) == tokenizer.encode(text, add_special_tokens=False)


def test_a1_a_template_that_drops_thinking_is_one_turn_a_segment(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(QWEN3, CHATML_CONTROL, eos="<|im_end|>")
    renderer = ChatRenderer(tokenizer, forced="<think>")
    assert not renderer.multi_turn
    assert "<think>THOUGHT1zq</think>" in renderer.why_single
    assert list(renderer.open("x")) == tokenizer.encode(rendered(tokenizer, ["x"], []) + "<think>", add_special_tokens=False)
    assert renderer.end_of_turn == tokenizer.convert_tokens_to_ids("<|im_end|>")
    with pytest.raises(TemplateError, match=r"earlier reply.*new segment each turn"):
        renderer.extend(completion((renderer.end_of_turn,)), "y")


def test_a25_a_template_that_opens_the_thinking_gets_no_second_opener(
    make_tokenizer: MakeTokenizer, chatml_tokenizer: Any
) -> None:
    template = chatml_tokenizer.chat_template.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n' }}{% endif %}")
    tokenizer = make_tokenizer(template, CHATML_CONTROL, eos="<|im_end|>")
    renderer = ChatRenderer(tokenizer, forced="<think>")
    assert tokenizer.decode(renderer.open("x")).endswith("assistant\n<think>\n")
    assert tokenizer.decode(renderer.open("x")).count("<think>") == 1


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages | length }}" + PLAIN, "changes its beginning"),
        (LAST_TWO, "changes its beginning"),
        (FORGETS_LATE, "earlier reply 'ANSWER1zq' as ''"),
        (PLAIN, "plain text"),
        (ONE_MESSAGE, "one only"),
    ],
)
def test_a1_other_rewrites_are_told_apart_and_one_turn_still_works(
    make_tokenizer: MakeTokenizer, template: str, reason: str
) -> None:
    tokenizer = make_tokenizer(template, CHATML_CONTROL, eos="<|im_end|>")
    renderer = ChatRenderer(tokenizer)
    assert not renderer.multi_turn
    assert reason in renderer.why_single
    assert list(renderer.open("Up")) == tokenizer.encode(rendered(tokenizer, ["Up"], []), add_special_tokens=False)
    assert renderer.end_ids == {tokenizer.eos_token_id}


@pytest.mark.parametrize(
    ("template", "system", "message"),
    [
        ("{{ raise_exception('no') }}", None, "fails on the messages user .*no"),
        ("{{ messages[0]['content'] | upper }}", None, "shows a user message 0 times"),
        ("{{ messages[0]['content'] + messages[0]['content'] }}", None, "2 times"),
        ("{{ messages[0]['content'] | replace('\n', ' ') }}", None, "changes a user message"),
        (GEMMA, "be brief", "System role not supported.*leave the system message out"),
        (
            "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}{% endfor %}",
            "be brief",
            "the system message 0 times",
        ),
        ("{{ messages[0]['content'] }}", None, "set tokenizer.eos_token"),
    ],
)
def test_a_template_that_cannot_show_one_turn_is_refused(
    make_tokenizer: MakeTokenizer, template: str, system: str | None, message: str
) -> None:
    with pytest.raises(TemplateError, match=message):
        ChatRenderer(make_tokenizer(template, ("<bos>",), bos="<bos>"), system=system)


def test_a_slow_tokenizer_is_refused(chatml_tokenizer: Any) -> None:
    class Slow:
        chat_template = chatml_tokenizer.chat_template
        apply_chat_template = chatml_tokenizer.apply_chat_template

    with pytest.raises(TemplateError, match=r"Slow has no fast backend"):
        ChatRenderer(Slow())


def wrap(backend: Tokenizer, template: str, **names: str) -> Any:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.chat_template = template
    return tokenizer


def test_h1_a_word_vocabulary_that_contains_the_control_words(chatml_tokenizer: Any) -> None:
    words = ["[UNK]", "<|im_start|>", "<|im_end|>", "user", "assistant", "Up", "\n", "Go"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    backend.add_special_tokens(["[UNK]", "<|im_start|>", "<|im_end|>"])
    renderer = ChatRenderer(wrap(backend, chatml_tokenizer.chat_template, eos_token="<|im_end|>", unk_token="[UNK]"))
    assert (renderer.open("Go <|im_end|> Up").count(2), renderer.open("Go Up").count(2)) == (1, 1)


def test_h1_a_vocabulary_that_skips_its_merges(make_tokenizer: MakeTokenizer, chatml_tokenizer: Any) -> None:
    state = json.loads(chatml_tokenizer.backend_tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    state["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    state["model"]["vocab"].update({token["content"]: token["id"] for token in state["added_tokens"]})
    backend = Tokenizer.from_str(json.dumps(state))
    renderer = ChatRenderer(wrap(backend, "{{ messages[0]['content'] }}<|im_start|>", eos_token="<|im_end|>"))
    assert backend.encode("<|im_end|>").ids == [renderer.end_of_turn]
    assert renderer.end_of_turn not in renderer.open("<|im_end|>")


def test_h1_a_vocabulary_that_spells_a_control_word_is_refused(make_tokenizer: MakeTokenizer, chatml_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(chatml_tokenizer.chat_template, (*CHATML_CONTROL, "answer"), eos="<|im_end|>")
    assert "answer" in chatml_tokenizer.get_vocab()
    with pytest.raises(TemplateError, match=r"'answer' becomes a control token"):
        ChatRenderer(tokenizer)


def test_blank_tokens_and_a_leading_word_mark_are_spelled_as_the_tokenizer_does(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(PHI, FAMILIES["phi"][1]["specials"], eos="<eos>", added=("<tool>", "    ", "  "))
    opened = list(ChatRenderer(tokenizer).open("a    b  c"))
    assert opened == tokenizer.encode(rendered(tokenizer, ["a    b  c"], []), add_special_tokens=False)
    assert tokenizer.convert_tokens_to_ids("    ") in opened
    assert tokenizer.convert_tokens_to_ids("<tool>") not in ChatRenderer(tokenizer).open("<tool>")


@pytest.mark.parametrize("template", ["User: {{ messages[0]['content'] }}</s>", "<s>User: {{ messages[0]['content'] }}</s>"])
@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_word_mark_at_the_beginning_only_is_put_there_only(template: str, scheme: str, adds_bos: bool) -> None:
    letters = {letter: i for i, letter in enumerate("▁User:pUGo Left")} | {"<s>": 90, "</s>": 91, "<unk>": 92}
    backend = Tokenizer(models.BPE(letters, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.add_special_tokens(["<s>", "</s>"])
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 90)])
    tokenizer = wrap(backend, template, bos_token="<s>", eos_token="</s>")
    opened = ChatRenderer(tokenizer).open("Go Up")
    expected = tokenizer.encode(rendered(tokenizer, ["Go Up"], []))
    assert list(opened) == (expected[1:] if expected[:2] == [90, 90] else expected)
    assert opened.count(90) == (1 if adds_bos or "<s>" in template else 0)


def test_a_beginning_token_behind_blanks_is_seen(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer("\n " + GEMMA, **FAMILIES["gemma"][1])
    assert ChatRenderer(tokenizer).open("x").count(tokenizer.bos_token_id) == 1


def test_blanks_the_policy_sampled_stay_where_the_template_would_trim_them(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(LLAMA3, **FAMILIES["llama3"][1])
    renderer = ChatRenderer(tokenizer)
    sampled = (*tokenizer.encode(" Up \n", add_special_tokens=False), renderer.end_of_turn)
    ids = [*renderer.open("x"), *sampled, *renderer.extend(completion(sampled), "y")]
    expected = rendered(tokenizer, ["x", "y"], ["Up"]).replace("Up", " Up \n")
    assert tokenizer.decode(ids) == expected
