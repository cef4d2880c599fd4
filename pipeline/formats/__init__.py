"""The file shapes that an import reads; ``registry.FORMATS`` lists them."""
