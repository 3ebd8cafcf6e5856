"""From results to the paper's tables, figures and claims. Reads json, csv and yaml; needs no torch."""
