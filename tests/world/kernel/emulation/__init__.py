"""What the kernels of the filter are tested with: their phases in PyTorch, and a CPU that plays the GPU."""
