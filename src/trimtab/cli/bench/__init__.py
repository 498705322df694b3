"""The benchmark commands: `trimtab bench`. Begin with `commands`."""
