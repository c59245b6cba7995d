import unittest

from runs import decode, encode


class Runs(unittest.TestCase):
    def test_encode(self):
        self.assertEqual(encode('aaab'), '3a1b')

    def test_long_run(self):
        self.assertEqual(encode('x' * 12), '12x')

    def test_decode(self):
        self.assertEqual(decode('3a1b'), 'aaab')

    def test_decode_long(self):
        self.assertEqual(decode('12x2y'), 'x' * 12 + 'yy')

    def test_empty(self):
        self.assertEqual((encode(''), decode('')), ('', ''))
