import unittest

from flatten import flatten


class Flatten(unittest.TestCase):
    def test_nested(self):
        self.assertEqual(flatten([1, [2, [3, (4,)]], 5]), [1, 2, 3, 4, 5])

    def test_strings(self):
        self.assertEqual(flatten(['ab', ['cd']]), ['ab', 'cd'])

    def test_empty(self):
        self.assertEqual(flatten([[], [[]]]), [])
