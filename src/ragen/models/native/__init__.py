"""Our own forward pass for decoder models of the Llama family, on the weights of the Hugging Face module itself."""

from ragen.models.native.attention import Block, Prefixes, attend, causal_blocks
from ragen.models.native.decoder import Decoder
from ragen.models.native.projection import Projection
from ragen.models.native.rows import Row, RowLayout

__all__ = ["Block", "Decoder", "Prefixes", "Projection", "Row", "RowLayout", "attend", "causal_blocks"]
