"""The `keras-dp` command. Each module without an underscore is one subcommand."""
