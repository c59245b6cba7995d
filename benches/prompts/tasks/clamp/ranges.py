def span(numbers):
    """Return the distance between the smallest and the largest number."""
    return max(numbers) - min(numbers)
