"""A failing case made smaller while it fails alike: delta debugging on the case itself."""
