"""The command line: options, configuration files, outputs, progress and exit codes."""
