import unittest

from stats import median


class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)

    def test_unchanged(self):
        numbers = [2, 1]; median(numbers); self.assertEqual(numbers, [2, 1])

    def test_empty(self):
        self.assertRaises(ValueError, median, [])
