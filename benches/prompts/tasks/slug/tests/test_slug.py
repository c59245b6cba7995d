import unittest

from slug import slugify


class Slug(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slugify('Hello World'), 'hello-world')

    def test_runs(self):
        self.assertEqual(slugify('a -- b'), 'a-b')

    def test_ends(self):
        self.assertEqual(slugify('  What?! '), 'what')

    def test_nothing_left(self):
        self.assertEqual(slugify('!!!'), '')
