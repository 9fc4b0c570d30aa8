"""The runner fleet: which machine a job asks for, which jobs want one, and the books. Nothing is launched yet."""
