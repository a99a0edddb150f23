"""The name of every logged metric and what it means: the table of ``docs/metrics.md`` is made from this."""

from collections.abc import Mapping
from types import MappingProxyType

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "rollout/success": "share of episodes whose task was solved (the task's own criterion)",
        "rollout/return_mean": "mean total return of an episode: rewards and penalties",
        "rollout/return_max": "largest total return of the batch",
        "rollout/task_return_mean": "mean task return of an episode: rewards without penalties",
        "rollout/return_std": "in-group standard deviation of the total return (Bessel's correction), mean over groups",
        "rollout/return_std_min": "smallest in-group standard deviation of the total return",
        "rollout/flat_groups": "share of groups whose members all have the same total return",
        "rollout/valid_format": "share of turns with the right format and at least one valid action",
        "rollout/truncated_turns": "number of turns cut by the token budget of the reply (valid or not)",
        "rollout/effective_actions": "share of executed actions that changed the state",
        "rollout/turns": "mean number of turns an episode",
        "rollout/actions": "mean number of executed actions an episode",
        "rollout/response_tokens": "mean number of sampled tokens a turn",
        "rollout/think_words": "mean number of words before </think> a turn; replies without the tag are left out",
        "rollout/sampled_tokens": "number of sampled tokens of the batch",
        "rollout/entropy": "mean entropy (nats) of the sampling distribution over all sampled tokens",
        "rollout/distinct_2": "different word pairs / all word pairs in the reasoning of the batch (1 = nothing repeats)",
        "rollout/self_similarity": "mean cosine of the word counts of two replies' reasoning, over all pairs",
        "rollout/errors": "episodes lost to an error of the environment: counted, never trained on",
        "filter/kept_groups": "number of groups that train in this step",
        "filter/kept_fraction": "groups that train / groups collected",
        "filter/flat_groups": "share of groups that are flat in the returns the filter ranks by",
        "update/loss": "policy loss with entropy bonus, KL and value terms, mean over optimiser steps",
        "update/policy_loss": "policy loss alone, mean over optimiser steps",
        "update/clip_low": "share of tokens (weighted as in the loss) whose gradient the lower clip removed",
        "update/clip_high": "share of tokens (weighted as in the loss) whose gradient the upper clip removed; with cispo: "
        "whose ratio it capped",
        "update/clip_dual": "share of tokens (weighted as in the loss) whose gradient the dual clip removed",
        "update/tis_factor": "mean of min(π_old / π_sampler, loss.tis_cap) over trained tokens",
        "update/tis_capped": "share of trained tokens at which loss.tis_cap binds",
        "update/preference_accuracy": "share of pairs (kto: of labelled trajectories) that the policy, measured by the "
        "reference, ranks as their returns do",
        "update/preference_margin": "mean of β(h_better − h_worse), h = Σ log π − log π_ref (kto: ±β(h − z))",
        "update/sft_loss": "mean −log π (nats a token, weighted as loss.sft_weighting says) of the demonstrations mixed in",
        "update/kl": "estimated KL divergence (nats a token) from the reference policy; only with a KL term",
        "update/mismatch_mean": "mean |learner − sampler| log-probability over sampled tokens, before the update",
        "update/mismatch_max": "largest |learner − sampler| log-probability over sampled tokens, before the update",
        "update/entropy": "mean entropy (nats) of the learner's distribution over trained tokens",
        "update/grad_norm": "gradient norm before clipping, mean over optimiser steps",
        "update/explained_variance": "1 − Var(target − V) / Var(target) of the critic over sampled tokens",
        "update/value_loss": "value loss (before its coefficient), mean over optimiser steps",
        "update/optimizer_steps": "optimiser steps taken in this training step",
        "update/skipped": "1 where no optimiser step was taken (every group flat, or non-finite numbers), else 0",
        "update/non_finite": "optimiser steps left out because loss or gradient was not finite",
        "update/learning_rate": "actor learning rate of the last optimiser step",
        "time/rollout_s": "seconds spent collecting episodes",
        "time/update_s": "seconds spent in the update",
        "time/step_s": "seconds of the whole training step",
        "time/tokens_per_s": "sampled tokens / seconds spent collecting",
        "memory/rss_gb": "resident memory of the process at the end of the step, GB (10⁹ bytes)",
    }
)
