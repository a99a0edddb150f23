"""The loops: training, evaluation, warm-up, and the composition root that puts their parts together."""
