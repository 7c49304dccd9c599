# Makes the project of a coding agent's day in the directory `day`.
set -e
rm -rf day
mkdir day
cd day
git init -q .
git config user.name a
git config user.email a@b
mkdir -p src/app tests tree wheel/day_wheel wheel/day_wheel-1.0.dist-info node/lib c
for n in $(seq 300); do
  mkdir -p tree/d$((n % 20)); echo "line $n of a file, with a needle in every seventh: $((n % 7))" > tree/d$((n % 20))/f$n.txt
  for m in 1 2 3 4 5 6 7 8 9; do echo "more text, line $m of file $n, that nobody looks for"; done >> tree/d$((n % 20))/f$n.txt
done
cat > src/app/core.py <<'X'
import json, re

def words(text):
    return re.findall(r"\w+", text)

def count(text):
    found = {}
    for word in words(text):
        found[word] = found.get(word, 0) + 1
    return found
X
touch src/app/__init__.py
cat > tests/test_core.py <<'X'
import unittest
from app.core import count, words

class Core(unittest.TestCase):
    def test_words(self):
        self.assertEqual(words("a b"), ["a", "b"])

    def test_count(self):
        self.assertEqual(count("a b a"), {"a": 2, "b": 1})
X
echo 'x = 1' > wheel/day_wheel/__init__.py
printf 'Metadata-Version: 2.1\nName: day-wheel\nVersion: 1.0\n' > wheel/day_wheel-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: day\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > wheel/day_wheel-1.0.dist-info/WHEEL
printf 'day_wheel/__init__.py,,\nday_wheel-1.0.dist-info/METADATA,,\nday_wheel-1.0.dist-info/WHEEL,,\nday_wheel-1.0.dist-info/RECORD,,\n' > wheel/day_wheel-1.0.dist-info/RECORD
(cd wheel && python3 -m zipfile -c ../day_wheel-1.0-py3-none-any.whl day_wheel day_wheel-1.0.dist-info)
echo '{"name": "day", "version": "1.0.0", "scripts": {"hello": "node lib/hello.js"}}' > node/package.json
mkdir -p node/dep; echo '{"name": "dep", "version": "1.0.0"}' > node/dep/package.json; echo 'module.exports = 1' > node/dep/index.js
echo 'console.log("hello")' > node/lib/hello.js
printf '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n' > c/hello.c
printf 'hello: hello.c\n\tcc -O2 -o hello hello.c\nclean:\n\trm -f hello\n' > c/Makefile
git add -A; git commit -qm first
