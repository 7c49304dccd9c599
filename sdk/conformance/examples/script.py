import sys

print("arguments:", sys.argv[1:])
