"""A case's Triton kernels: launched between red zones, or interpreted."""
