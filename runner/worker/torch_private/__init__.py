"""The insides of torch, by topic: names of torch that are not public stand here."""
