import unittest

from brackets import is_balanced


class Brackets(unittest.TestCase):
    def test_nested(self):
        self.assertTrue(is_balanced('f(a[1], {2: (3)})'))

    def test_crossed(self):
        self.assertFalse(is_balanced('([)]'))

    def test_never_closed(self):
        self.assertFalse(is_balanced('(('))

    def test_never_opened(self):
        self.assertFalse(is_balanced(')'))

    def test_empty(self):
        self.assertTrue(is_balanced(''))
