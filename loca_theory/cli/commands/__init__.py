"""One module per command, imported when the command is used; and the tables that they print."""
