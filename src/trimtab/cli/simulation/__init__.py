"""The commands that simulate: `trimtab sim` and what it prints. Begin with `commands`."""
