"""From a failing variant to what is to blame."""
