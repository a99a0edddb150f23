"""The command line: thin, one file a subcommand; everything heavy is imported when it is needed."""
