import unittest

from csvline import split


class Split(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(split('a,b,c'), ['a', 'b', 'c'])

    def test_quoted(self):
        self.assertEqual(split('a,"b,c",d'), ['a', 'b,c', 'd'])

    def test_doubled(self):
        self.assertEqual(split('"say ""hi""",x'), ['say "hi"', 'x'])

    def test_empty_fields(self):
        self.assertEqual(split(',a,'), ['', 'a', ''])
