"""Hand-written templates, slot lists and passages of the project's own prompt set, one module a task kind."""
