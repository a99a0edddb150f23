"""The forward pass of a Llama-type decoder over flat tokens, on the parameters of a Hugging Face module.

One function serves sampler and learner; they differ only in where attention finds its keys. Compared with the module's own
forward pass: no padding, stacked projections, weights cast once instead of once a pass, attention that decodes many rows
with few products, and a backward pass that keeps 14 kB a token and layer of SmolLM2-135M (bfloat16) where autograd keeps 31.

Taken for any module that has the family's parts and no other, and only after its outputs have been compared with the
module's own (`Decoder.find`): Llama, SmolLM2, Mistral, Qwen2 and Qwen3 pass; others run through transformers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ragen.models.native.ops import embedded, rms_norm, rotate
from ragen.models.native.projection import Projection
from ragen.models.native.rows import Row, RowLayout

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]

TOLERANCE = 1e-4
PROBE = (9, 5, 14)  # lengths of the rows the proof compares
PROBE_PREFIX = (4, 3, 6)  # and of the prefixes they look at apart
FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")  # angles that do not depend on the length of the text
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: nn.Module
    qkv: Projection
    head_norms: tuple[nn.Module, nn.Module] | None  # of queries and keys (Qwen3)
    out: Projection
    mlp_norm: nn.Module
    gate_up: Projection
    down: Projection


class Decoder:
    """A causal LM's layers as a function of flat token ids; make one with `Decoder.find`."""

    def __init__(self, model: Any) -> None:
        base = model.base_model
        config = model.config.get_text_config()
        attention = base.layers[0].self_attn
        self.width: int = attention.head_dim
        self.heads: int = config.num_attention_heads
        self.shared: int = config.num_key_value_heads
        self.scale: float = attention.scaling
        self.head = Projection([model.get_output_embeddings()])
        self._embedding, self._norm, self._angles = base.embed_tokens, base.norm, base.rotary_emb
        self._layers = [_layer(layer) for layer in base.layers]
        self._dtype = torch.float32

    @classmethod
    @torch.no_grad()
    def find(cls, model: Any) -> "Decoder | None":
        """A decoder for ``model``, if its parts are the family's and its outputs equal the model's own in float32."""
        if not _is_family(model):
            return None
        decoder = cls(model)
        decoder.prepare(torch.float32)
        device = next(model.parameters()).device
        vocabulary = model.config.get_text_config().vocab_size
        rows = [(torch.arange(n, device=device) * 7919 + 13 * n) % vocabulary for n in PROBE]
        starts = torch.tensor([0, *PROBE]).cumsum(0)
        spans = []
        for start, length, prefix in zip(starts.tolist(), PROBE, PROBE_PREFIX, strict=False):
            keys = torch.arange(start, start + length)
            spans += [Row(keys[:prefix], prefix), Row(keys, length - prefix, prefix)]
        positions = torch.cat([torch.arange(n, device=device) for n in PROBE])
        try:
            got = decoder.hidden(torch.cat(rows), positions, decoder.over(decoder.layout(spans, device)))
            hidden = torch.cat([model.base_model(input_ids=row[None]).last_hidden_state[0] for row in rows])
            logits = torch.cat([model(input_ids=row[None]).logits[0] for row in rows])
            return decoder if _close(got, hidden) and _close(decoder.head(got), logits) else None
        except (RuntimeError, AttributeError, TypeError, ValueError, IndexError):  # parts with other interfaces
            return None

    def prepare(self, dtype: torch.dtype, *, pack: bool = False) -> None:
        """Compute in ``dtype`` from now on, with the weights as they are; ``pack`` for sampling (no gradients then)."""
        self._dtype = dtype
        for projection in self._projections():
            projection.prepare(dtype, pack=pack)
        if pack:
            self.head.prepare(dtype, pack=True)

    def drop(self) -> None:
        """Free the cast weights."""
        for projection in (*self._projections(), self.head):
            projection.drop()

    def layout(self, rows: Sequence[Row], device: torch.device, tokens: int | None = None) -> RowLayout:
        """These rows of ``tokens`` flat tokens (by default those the rows hold), for `over`, in the prepared type."""
        return RowLayout(rows, (self.heads, self.shared), self._dtype, device, tokens)

    def over(self, layout: RowLayout) -> Attend:
        """Attention among the flat tokens themselves."""
        return lambda _, queries, keys, values: layout.attend(queries, keys, values, self.scale)

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The last hidden states (N, H) float32, after the final norm, of N tokens at their positions.

        ``attend(layer, queries (N, heads, d), keys, values (N, kv heads, d))`` returns (N, heads, d); keys are rotated.
        """
        dtype = self._dtype
        stream = embedded(ids, self._embedding.weight, self._embedding.padding_idx)
        cos, sin = self._rotation(positions)
        for index, layer in enumerate(self._layers):
            states = layer.qkv.of_norm(stream, layer.attention_norm, dtype).view(len(ids), -1, self.width)
            if layer.head_norms is not None:
                states = self._head_normed(states, layer.head_norms)
            states = rotate(states, cos, sin, self.heads + self.shared)
            queries, keys, values = states.split([self.heads, self.shared, self.shared], dim=1)
            stream = stream + layer.out(attend(index, queries, keys, values).flatten(1))
            stream = stream + layer.down.of_swiglu(layer.gate_up.of_norm(stream, layer.mlp_norm, dtype))
        return _normed(self._norm, stream, torch.float32)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What `rotate` takes: (N, 1, d), float32."""
        like = torch.empty(0, dtype=torch.float32, device=positions.device)
        cos, sin = (table[0, :, None] for table in self._angles(like, positions[None]))
        sign = torch.ones(self.width, device=positions.device)
        sign[: self.width // 2] = -1.0
        return cos, sin * sign

    def _head_normed(self, states: Tensor, norms: tuple[nn.Module, nn.Module]) -> Tensor:
        queries, keys, values = states.split([self.heads, self.shared, self.shared], dim=1)
        normed = [_normed(norm, part, self._dtype) for norm, part in zip(norms, (queries, keys), strict=True)]
        return torch.cat([*normed, values], dim=1)

    def _projections(self) -> list[Projection]:
        return [p for layer in self._layers for p in (layer.qkv, layer.out, layer.gate_up, layer.down)]


def _layer(module: Any) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
    return _Layer(
        module.input_layernorm,
        Projection([attention.q_proj, attention.k_proj, attention.v_proj]),
        norms,
        Projection([attention.o_proj]),
        module.post_attention_layernorm,
        Projection([mlp.gate_proj, mlp.up_proj]),
        Projection([mlp.down_proj]),
    )


def _normed(norm: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    return rms_norm(x, norm.weight, norm.variance_epsilon, dtype)


def _is_family(model: Any) -> bool:
    """Whether the module consists of exactly the parts a Llama-type decoder has, none of them hooked or patched.

    Adapters make other parts of them, so a model with LoRA is none.
    """
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or "forward" in vars(m) for m in model.modules()):
        return False
    base, head = getattr(model, "base_model", None), model.get_output_embeddings()
    if base is None or type(head) is not nn.Linear or not len(getattr(base, "layers", ())):
        return False
    if {name for name, _ in base.named_children()} != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        return False
    rotation = getattr(base.rotary_emb, "rope_type", None)
    return type(base.embed_tokens) is nn.Embedding and rotation in FIXED_ROTATIONS and all(map(_is_layer, base.layers))


def _is_layer(layer: nn.Module) -> bool:
    parts = dict(layer.named_children())
    if set(parts) != LAYER_PARTS:
        return False
    attention, mlp = dict(parts["self_attn"].named_children()), dict(parts["mlp"].named_children())
    extra = set(attention) - ATTENTION_PARTS
    linear = [part for name, part in (*attention.items(), *mlp.items()) if name.endswith("_proj")]
    return (
        extra in (set(), {"q_norm", "k_norm"})
        and set(mlp) == MLP_PARTS
        and len(linear) == len(ATTENTION_PARTS) + len(MLP_PARTS) - 1
        and all(type(part) is nn.Linear for part in linear)
        and getattr(parts["self_attn"], "sliding_window", None) is None
    )


def _close(got: Tensor, wanted: Tensor) -> bool:
    """Equal to 1e-4 of the largest wanted value (NaN anywhere is unequal)."""
    if got.shape != wanted.shape:
        return False
    return bool((got - wanted).abs().max() <= TOLERANCE * max(1.0, float(wanted.abs().max())))
