import csv
import sys

with open(sys.argv[-1]) as file:
    print(sum(int(row["count"]) for row in csv.DictReader(file)))
