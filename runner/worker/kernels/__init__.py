"""A case's Triton kernels: launched in guarded memory, or interpreted."""
