import unittest


class TestData(unittest.TestCase):
    def test_has_a_header(self) -> None:
        with open("data.csv") as file:
            self.assertEqual(file.readline(), "name,count\n")
