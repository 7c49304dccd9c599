import requests

with open("version.txt", "w") as file:
    file.write(requests.__version__)
