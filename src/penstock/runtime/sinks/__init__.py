"""Where results go: files, memory, the terminal, a Python function, or the workspace."""
