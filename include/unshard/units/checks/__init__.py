"""`unshard check`: finds problems before the start that would stop a task later."""
