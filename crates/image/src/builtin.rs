//! The recipes that come with Sandling, and the names other products' examples use for them.

use std::collections::BTreeSet;

use sandling_protocol::Language;

use crate::recipe::{Recipe, Warm};

const SUITE: &str = "bookworm";

/// Alias, what it stands for, and what to tell the person.
pub(crate) const ALIASES: [(&str, &str, &str); 2] = [
    (
        "python-data",
        "code-interpreter",
        "`python-data` is Sandling's `code-interpreter`: Debian 12, Python with numpy, pandas, scipy, matplotlib, and Node",
    ),
    (
        "ubuntu-24.04",
        "base",
        "`ubuntu-24.04` is Sandling's `base`: Debian 12 with shell tools; there is no Ubuntu here",
    ),
];

const BUILT_IN: [fn() -> Recipe; 3] = [base, code_interpreter, agent];

/// What an agent reaches for in a shell. With `libnss-myhostname` a machine knows its own name, whatever it is given.
const SHELL_TOOLS: &str = "
    bzip2 ca-certificates curl file git iproute2 jq less libnss-myhostname nano netbase openssh-client patch procps
    psmisc ripgrep sudo tree unzip xz-utils zip
";

const PYTHON: &str = "python-is-python3 python3 python3-pip python3-venv";

const DATA: &str = "
    python3-matplotlib python3-numpy python3-openpyxl python3-pandas python3-pil python3-requests python3-scipy
";

const NODE: &str = "nodejs npm";

/// Command lines that do a task by themselves. Of each, a version that runs on Debian's Node, needs no script to be
/// installed, and is not larger than the rest of the system.
const AGENTS: &str = "@anthropic-ai/claude-code@2.1.112 @openai/codex@0.104.0";

const PYTHON_IMPORTS: &str = "
    abc argparse ast asyncio base64 bisect collections concurrent.futures contextlib copy csv dataclasses datetime
    decimal difflib enum fractions functools glob hashlib heapq html http.client inspect io itertools json logging
    math operator os pathlib pickle platform pprint queue random re secrets shutil socket sqlite3 ssl statistics
    string struct subprocess tempfile textwrap threading time typing urllib.request uuid xml.etree.ElementTree
    zipfile
";

const DATA_IMPORTS: &str = "
    numpy numpy.random numpy.linalg pandas scipy scipy.stats scipy.optimize scipy.integrate matplotlib
    matplotlib.pyplot matplotlib.backends.backend_agg PIL.Image requests
";

const NODE_IMPORTS: &str =
    "assert buffer child_process crypto events fs fs/promises http https os path stream url util";

pub(crate) fn recipe(name: &str) -> Option<Recipe> {
    builtin_recipes().into_iter().find(|recipe| recipe.name.as_str() == name)
}

/// All built-in recipes, the default one first.
pub fn builtin_recipes() -> Vec<Recipe> {
    BUILT_IN.iter().map(|make| make()).collect()
}

pub(crate) fn is_reserved(name: &str) -> bool {
    known_names().iter().any(|known| known == name)
}

pub(crate) fn known_names() -> Vec<String> {
    let recipes = builtin_recipes().into_iter().map(|recipe| recipe.name.into());
    recipes.chain(ALIASES.iter().map(|(alias, ..)| (*alias).to_owned())).collect()
}

fn base() -> Recipe {
    Recipe {
        name: "base".parse().expect("a built-in name keeps the rule for names"),
        description: "Debian 12 with shell tools, Python, git and curl".to_owned(),
        suite: SUITE.to_owned(),
        packages: words(&[SHELL_TOOLS, PYTHON]),
        npm: BTreeSet::new(),
        disk_mib: 4096,
        vcpus: 1,
        memory_mib: 512,
        pids: 512,
        warm: vec![Warm { language: Language::Python, imports: words(&[PYTHON_IMPORTS]) }],
    }
}

fn code_interpreter() -> Recipe {
    Recipe {
        name: "code-interpreter".parse().expect("a built-in name keeps the rule for names"),
        description: "base with numpy, pandas, scipy, matplotlib, Node and npm".to_owned(),
        packages: words(&[SHELL_TOOLS, PYTHON, DATA, NODE]),
        memory_mib: 1024,
        pids: 1024,
        warm: vec![
            Warm { language: Language::Python, imports: words(&[PYTHON_IMPORTS, DATA_IMPORTS]) },
            Warm { language: Language::Node, imports: words(&[NODE_IMPORTS]) },
        ],
        ..base()
    }
}

fn agent() -> Recipe {
    Recipe {
        name: "agent".parse().expect("a built-in name keeps the rule for names"),
        description: "base with Node, npm, and the command lines claude and codex".to_owned(),
        packages: words(&[SHELL_TOOLS, PYTHON, NODE]),
        npm: words(&[AGENTS]),
        memory_mib: 1024,
        pids: 1024,
        ..base()
    }
}

fn words<C: FromIterator<String>>(lists: &[&str]) -> C {
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_a_good_recipe_and_every_alias_stands_for_one() {
        for recipe in builtin_recipes() {
            recipe.check().unwrap();
        }
        for (alias, stands_for, note) in ALIASES {
            assert!(recipe(stands_for).is_some() && recipe(alias).is_none() && note.contains(stands_for));
        }
    }

    #[test]
    fn the_code_interpreter_has_all_of_base() {
        let code = code_interpreter();
        assert!(code.packages.is_superset(&base().packages));
        assert!(code.warm[0].imports.iter().any(|import| import == "pandas"));
    }
}
