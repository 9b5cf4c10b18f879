"""What a user sees: the command line's commands, one module each, thin over the engine."""
