import subprocess
import sys
import unittest

from words import top


class Top(unittest.TestCase):
    def test_the_most_frequent_come_first(self):
        self.assertEqual(top("a b b c c c", 2), [("c", 3), ("b", 2)])

    def test_equal_ones_are_in_alphabetical_order(self):
        self.assertEqual(top("pear fig apple fig pear", 3), [("fig", 2), ("pear", 2), ("apple", 1)])

    def test_case_and_punctuation_do_not_matter(self):
        self.assertEqual(top("Don't stop. DON'T!", 5), [("don't", 2), ("stop", 1)])

    def test_it_is_a_program(self):
        done = subprocess.run([sys.executable, "words.py"], input="x y y\n", capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "y 2\nx 1\n")
