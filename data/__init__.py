"""What the other rooms pass around and keep: traces, prompts, indices, cost profiles; numpy and pyarrow only."""
