//! The built-in recipes, and the aliases that examples of other products use for them.

use std::collections::BTreeSet;

use sandling_protocol::Language;

use crate::desktop::Desktop;
use crate::name::TemplateName;
use crate::recipe::{NodeRelease, OciImage, PinnedArchive, Recipe, RecipeError, Warm};

const SUITE: &str = "trixie";

/// An alias, the recipe it stands for, and a note for the user.
const ALIASES: [(&str, &str, &str); 2] = [
    (
        "python-data",
        "code-interpreter",
        "`python-data` is Sandling's `code-interpreter`: Debian 13, Python with numpy, pandas, scipy, matplotlib, and Node",
    ),
    (
        "ubuntu-24.04",
        "base",
        "`ubuntu-24.04` is Sandling's `base`: Debian 13 with shell tools; there is no Ubuntu here",
    ),
];

const BUILT_IN: [fn() -> Recipe; 4] = [base, code_interpreter, agent, desktop];

/// Tools that agents use in a shell. `libnss-myhostname` makes the machine's own name resolvable.
const SHELL_TOOLS: &str = "
    attr bzip2 ca-certificates curl file git iproute2 jq less libnss-myhostname nano netbase openssh-client patch procps
    psmisc ripgrep sudo tree unzip vim-tiny xz-utils zip
";

/// What builds packages of C and C++, of pip and npm, too.
const COMPILERS: &str = "g++ gcc libc6-dev make";

const PYTHON: &str = "python-is-python3 python3 python3-pip python3-venv";

/// Tests, with everything that they need. PyPI has newer versions than Debian, and pip can replace its own packages, but not
/// Debian's.
const TESTS: &str = "iniconfig==2.3.1 packaging==26.3 pluggy==1.7.0 pygments==2.21.0 pytest==9.2.0";

const UV: &str = "uv==0.13.8";

/// Numbers, tables and plots, with everything that they need. matplotlib 3.11 removed arguments that much code still uses,
/// such as `labels` of `boxplot`.
const DATA: &str = "
    certifi==2026.10.18 charset-normalizer==3.5.2 contourpy==1.4.0 cycler==0.12.1 et-xmlfile==2.0.0 fonttools==4.68.0
    idna==3.20 kiwisolver==1.5.1 matplotlib==3.10.9 numpy==2.5.4 openpyxl==3.1.5 pandas==3.1.1 pillow==13.0.0
    pyparsing==3.3.3 python-dateutil==4.0.0 requests==2.34.2 scipy==1.18.1 tzdata==2026.6 urllib3==2.8.0
";

/// Coding agents. The pinned versions need no install script, and are smaller than the rest of the system.
const AGENTS: &str = "@anthropic-ai/claude-code@2.1.112 @openai/codex@0.104.0";

/// XFCE, because E2B's desktop client waits for its processes by name; without its recommended packages it is the
/// lightest session that this client accepts, and has a panel. xterm is there besides XFCE's terminal because it starts
/// faster under emulation.
const DESKTOP: &str = "
    chromium chromium-sandbox dbus-x11 fonts-dejavu-core libgtk-3-bin mousepad net-tools novnc scrot thunar websockify
    wmctrl x11-utils x11-xserver-utils x11vnc xclip xdg-utils xdotool xfce4-panel xfce4-session xfce4-terminal xfdesktop4
    xfwm4 xterm xvfb
";

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

/// A recipe, and a note for a user who asked for it by an alias.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub recipe: Recipe,
    pub alias_note: Option<&'static str>,
}

/// The built-in recipe with this name or alias.
pub fn resolve(name: &str) -> Result<Resolved, RecipeError> {
    if let Some((_, stands_for, note)) = ALIASES.iter().find(|(alias, ..)| *alias == name) {
        let recipe = builtin_recipe(stands_for).ok_or_else(|| unknown(name))?;
        return Ok(Resolved { recipe, alias_note: Some(note) });
    }
    let recipe = builtin_recipe(name).ok_or_else(|| unknown(name))?;
    Ok(Resolved { recipe, alias_note: None })
}

fn unknown(name: &str) -> RecipeError {
    RecipeError::Unknown { name: name.to_owned(), known: known_names() }
}

impl Recipe {
    /// The same recipe under a name that is not reserved, for another kernel or size.
    pub fn renamed(&self, name: &str) -> Result<Self, RecipeError> {
        let name: TemplateName = name.parse()?;
        if is_reserved(name.as_str()) {
            return Err(RecipeError::Reserved { name: name.into() });
        }
        Ok(Self { name, ..self.clone() })
    }
}

impl Recipe {
    /// The memory of sandboxes from OCI images.
    pub const OCI_MEMORY_MIB: u32 = 1024;

    /// A recipe for an OCI image. Its interpreters are those of `base`, as far as the image has them.
    pub fn of_oci(name: TemplateName, image: OciImage) -> Self {
        Self {
            name,
            description: image.reference.clone(),
            packages: BTreeSet::new(),
            pip: BTreeSet::new(),
            oci: Some(image),
            memory_mib: Self::OCI_MEMORY_MIB,
            pids: 1024,
            warm: vec![
                Warm { language: Language::Python, imports: words(&[PYTHON_IMPORTS]) },
                Warm { language: Language::Node, imports: words(&[NODE_IMPORTS]) },
            ],
            ..base()
        }
    }
}

fn builtin_recipe(name: &str) -> Option<Recipe> {
    builtin_recipes().into_iter().find(|recipe| recipe.name.as_str() == name)
}

/// All built-in recipes, the smallest first.
pub fn builtin_recipes() -> Vec<Recipe> {
    BUILT_IN.iter().map(|make| make()).collect()
}

fn is_reserved(name: &str) -> bool {
    known_names().iter().any(|known| known == name)
}

fn known_names() -> Vec<String> {
    let recipes = builtin_recipes().into_iter().map(|recipe| recipe.name.into());
    recipes.chain(ALIASES.iter().map(|(alias, ..)| (*alias).to_owned())).collect()
}

fn base() -> Recipe {
    Recipe {
        name: "base".parse().expect("a built-in name keeps the rule for names"),
        description: "Debian 13 with shell tools, Python, git, curl and a C compiler".to_owned(),
        suite: SUITE.to_owned(),
        packages: words(&[SHELL_TOOLS, COMPILERS, PYTHON]),
        npm: BTreeSet::new(),
        pip: words(&[TESTS]),
        node: None,
        oci: None,
        disk_mib: 4096,
        vcpus: 1,
        memory_mib: 512,
        pids: 512,
        warm: vec![Warm { language: Language::Python, imports: words(&[PYTHON_IMPORTS]) }],
        desktop: None,
    }
}

fn code_interpreter() -> Recipe {
    Recipe {
        name: "code-interpreter".parse().expect("a built-in name keeps the rule for names"),
        description: "base with numpy, pandas, scipy, matplotlib, Node and npm".to_owned(),
        pip: words(&[TESTS, UV, DATA]),
        node: Some(node()),
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
        npm: words(&[AGENTS]),
        pip: words(&[TESTS, UV]),
        node: Some(node()),
        memory_mib: 1024,
        pids: 1024,
        ..base()
    }
}

fn desktop() -> Recipe {
    Recipe {
        name: "desktop".parse().expect("a built-in name keeps the rule for names"),
        description: "base with a screen, XFCE, Chromium, and tools that click, type and take screenshots".to_owned(),
        packages: words(&[SHELL_TOOLS, COMPILERS, PYTHON, DESKTOP]),
        disk_mib: 6144,
        // Chromium needs most of it; the session alone needs a quarter.
        memory_mib: 2048,
        pids: 2048,
        // The size that E2B's client asks for by default.
        desktop: Some(Desktop { width: 1024, height: 768 }),
        ..base()
    }
}

/// The last series that translates all of TypeScript: Node 26 refuses enums.
fn node() -> NodeRelease {
    let pinned = |version: &str, sha256: &str| PinnedArchive { version: version.to_owned(), sha256: sha256.to_owned() };
    NodeRelease {
        node: pinned("24.21.0", "61ecf27ad70afee991b671c28561eb497028294a67d132f9bbaac9ad73f81d3b"),
        npm: pinned("12.2.0", "6666b48816b39b86c3febac7b51a4ee4de6c5ca589c382ad8004b6b113f86677"),
    }
}

fn words<C: FromIterator<String>>(lists: &[&str]) -> C {
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_valid_and_every_alias_stands_for_one() {
        for recipe in builtin_recipes() {
            recipe.check().unwrap();
        }
        for (alias, stands_for, note) in ALIASES {
            assert!(
                builtin_recipe(stands_for).is_some() && builtin_recipe(alias).is_none() && note.contains(stands_for)
            );
        }
    }

    #[test]
    fn an_alias_says_what_it_stands_for() {
        let resolved = resolve("ubuntu-24.04").unwrap();
        assert_eq!(resolved.recipe.name.as_str(), "base");
        assert!(resolved.alias_note.unwrap().contains("no Ubuntu"));
        assert_eq!(resolve("python-data").unwrap().recipe.name.as_str(), "code-interpreter");
        assert!(resolve("base").unwrap().alias_note.is_none());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = resolve("windows").unwrap_err().to_string();
        assert!(error.contains("`windows`") && error.contains("base") && error.contains("python-data"), "{error}");
    }

    #[test]
    fn a_renamed_recipe_may_not_take_a_reserved_name() {
        let base = resolve("base").unwrap().recipe;
        let mine = base.renamed("mine").unwrap();
        assert_eq!((mine.name.as_str(), &mine.packages), ("mine", &base.packages));
        for reserved in ["base", "code-interpreter", "python-data", "ubuntu-24.04"] {
            assert_eq!(base.renamed(reserved).unwrap_err(), RecipeError::Reserved { name: reserved.to_owned() });
        }
    }

    #[test]
    fn the_code_interpreter_and_the_agent_are_base_and_more() {
        let (base, code) = (base(), code_interpreter());
        // With the same packages of Debian, the tree of one is the beginning of the others.
        assert_eq!((&code.packages, &agent().packages), (&base.packages, &base.packages));
        assert!(code.pip.is_superset(&base.pip) && agent().pip.is_superset(&base.pip));
        assert!(code.warm[0].imports.iter().any(|import| import == "pandas"));
    }
}
