"""What bridges have to know about a v1 optimizer, without Keras."""
