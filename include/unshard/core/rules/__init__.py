"""The task file's rules: routes, filters, extractors and column mappings."""
