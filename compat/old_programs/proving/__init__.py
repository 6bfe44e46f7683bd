"""Records the trainings of TensorFlow 1 scripts, and replays them."""
