"""What people and programs are shown, as typed values: command line, API and console show the same."""
