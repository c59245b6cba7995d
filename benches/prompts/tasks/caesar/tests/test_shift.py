import unittest

from shift import shift


class Shift(unittest.TestCase):
    def test_wraps(self):
        self.assertEqual(shift('xyz', 3), 'abc')

    def test_capitals(self):
        self.assertEqual(shift('Az', 1), 'Ba')

    def test_others(self):
        self.assertEqual(shift('a, b!', 1), 'b, c!')

    def test_back(self):
        self.assertEqual(shift('abc', -3), 'xyz')
