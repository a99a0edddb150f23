"""An OpenAI-compatible endpoint over the sampler: any client can talk to a trained agent."""
