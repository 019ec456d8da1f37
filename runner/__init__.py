"""runner: does a torch.compile backend compute what eager PyTorch computes?"""

__version__ = "0.1.0"
