"""How large a setting can be: far above what a run uses, and below what eats the machine or overflows float32."""

COEF = 1e6  # a factor, weight or threshold: products of a few of them stay finite in float32 (3.4e38)
COLDEST, HOTTEST = 0.01, 100.0  # temperatures: logits are divided by them in float32
NO_CLIP = 1e9  # a bound that nothing reaches, where there is no other way to leave it out

COUNT = 1_000_000  # what is made, played or kept in memory at once, one by one
SIDE = 65_536  # one of two counts that multiply; their product is at most COUNT
RANK = 4_096  # of an adapter: no more than a model's hidden size
PASSES = 10_000  # over the same data
TOKENS = 100_000_000  # of a reply, an episode or a forward pass: a limit, which allocates nothing by itself
STEPS = 1_000_000_000  # of a run, and what is counted in them
SEED = 2**63 - 1  # what a 64-bit number holds
