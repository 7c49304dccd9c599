import six

print(six.__version__)
