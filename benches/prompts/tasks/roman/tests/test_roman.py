import unittest

from roman import to_roman


class Roman(unittest.TestCase):
    def test_small(self):
        self.assertEqual([to_roman(n) for n in (1, 4, 9)], ['I', 'IV', 'IX'])

    def test_large(self):
        self.assertEqual(to_roman(1994), 'MCMXCIV')

    def test_largest(self):
        self.assertEqual(to_roman(3999), 'MMMCMXCIX')

    def test_out_of_range(self):
        self.assertRaises(ValueError, to_roman, 0)
