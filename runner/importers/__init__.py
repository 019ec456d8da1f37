"""Texts in foreign formats as captures: logs of operators, printed graphs, exported programs. Nothing runs."""
