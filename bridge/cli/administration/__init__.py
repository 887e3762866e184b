"""Commands for a bridge that runs, and for what it leaves behind: dead letters and backups."""
