"""higgs-audio v2."""
