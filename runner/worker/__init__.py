"""The half that runs models: the only package that imports torch.

It imports the standard library and torch, and nothing else of ``runner``. So it runs under any interpreter that has
torch 2.6 or newer. It reports findings (facts with numbers); what they mean is decided elsewhere.
"""
