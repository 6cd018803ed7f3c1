"""Speed and memory, always beside the raw limit of the same moment: machines are noisy, ratios are not."""
