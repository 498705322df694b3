"""The commands of active data: `trimtab active`. Begin with `commands`."""
