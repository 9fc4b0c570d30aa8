"""The pages: each asks for plain data, the same that the API answers, and shows it by a template."""
