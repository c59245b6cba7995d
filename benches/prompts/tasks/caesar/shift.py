def shift(text, key):
    """Shift every letter by key places."""
    return "".join(chr(ord(c) + key) for c in text.lower())
