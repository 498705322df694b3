"""The command line: a package for each group of commands. Begin with `main`, which names every command."""
