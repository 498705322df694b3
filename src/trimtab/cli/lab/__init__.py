"""The commands of experiments: `trimtab lab` and `trimtab figures`."""
