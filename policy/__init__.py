"""Everything that decides which guesses to grow, admit and verify; numpy arrays in, numpy arrays out."""
