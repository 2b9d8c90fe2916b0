"""The seven servers, each one idea further than the one it grows from. `lineage.toml` is the family tree."""
