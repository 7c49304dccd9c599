//! What a coding agent does in a day: a small project, and forty commands on it.

/// Makes the project. It is the same in every place, so all of them work on the same files.
pub const SETUP: &str = r#"set -e; rm -rf day; mkdir -p day; cd day; git init -q .; git config user.name a; git config user.email a@b
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
git add -A; git commit -qm first"#;

/// Each can run any number of times, and works in the project's directory.
pub const COMMANDS: [&str; 40] = [
    "echo hi",
    "pwd; ls -la",
    "ls -la /usr/bin | wc -l",
    "cat src/app/core.py",
    "head -5 tests/test_core.py",
    "wc -l src/app/*.py tests/*.py",
    "find . -name '*.py' -not -path './.git/*'",
    "grep -rn needle tree | wc -l",
    "grep -rl 'file 42,' tree",
    "find tree -type f | xargs wc -l | tail -1",
    "find tree -name 'f1*.txt' | sort | head",
    "sed -i 's/found = {}/found = dict()/; s/found = dict()/found = {}/' src/app/core.py",
    "awk '{ n += NF } END { print n }' tree/d1/*.txt",
    "cp -r tree copied; du -s copied; rm -rf copied",
    "mkdir -p new/deep; touch new/deep/file; mv new/deep/file new/; rm -r new",
    "diff -r tree/d1 tree/d2 | wc -l",
    "git status --short",
    "git log --oneline",
    "git diff",
    "echo change >> notes.txt; git add -A; git commit -qm change",
    "git show --stat",
    "git checkout -q -B work; git checkout -q -",
    "git grep -n words",
    "git clone -q . cloned; rm -rf cloned",
    "python3 -c 'print(1)'",
    "python3 -c 'import json, re, subprocess, pathlib; print(json.dumps([1]))'",
    "PYTHONPATH=src python3 -m unittest discover -s tests",
    "PYTHONPATH=src python3 -m pytest -q tests",
    "python3 -m compileall -q -f src",
    "python3 -c 'print(sum(i * i for i in range(1000000)))'",
    "pip --version",
    "python3 -m pip install -q --no-index --no-deps --force-reinstall --break-system-packages --target /tmp/day-target --upgrade day_wheel-1.0-py3-none-any.whl",
    "python3 -c \"import sqlite3; d = sqlite3.connect(':memory:'); d.execute('create table t (a)'); d.executemany('insert into t values (?)', [(i,) for i in range(1000)]); print(d.execute('select sum(a) from t').fetchone())\"",
    "tar czf /tmp/day.tgz tree; tar tzf /tmp/day.tgz | wc -l",
    "node -e 'console.log(1)'",
    "cd node; node -e 'console.log(JSON.stringify(require(\"fs\").readdirSync(\"lib\")))'",
    "cd node; npm run --silent hello",
    "cd node; npm install --silent --offline --no-audit --no-fund --no-save ./dep",
    "cd c; gcc -O2 -o hello hello.c; ./hello",
    "cd c; make -s clean; make -s; ./hello",
];
