"""The commands that tell what records hold: `trimtab sessions` and `trimtab story`."""
