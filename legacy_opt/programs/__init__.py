"""Update rules as data: traced from TensorFlow operations, and read by kernels and records."""
