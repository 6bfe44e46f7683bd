"""The modules of the flights examples: data, models, training, processes and reports."""
