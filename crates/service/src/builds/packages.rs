//! A template with packages from Debian, npm and PyPI: steps on top of a built-in template.
//!
//! The steps run in a machine, like those of a Dockerfile. Its gateway lets it reach the registries of these packages and
//! nothing else, so a package cannot name another address for what it needs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use sandling_image::{Recipe, RecipeError, is_debian_package, is_npm_package};
use sandling_network::policy::{Entry, Mode, Policy, Ports, Preset, Target};
use sandling_wire::WORKSPACE;

use super::base::TemplateSource;
use super::from_dockerfile::DockerfileError;
use super::registry::{Build, RegisterError};
use super::requirements::{self, RequirementError};
use super::start::{BuildSpec, Builds, CacheUse, Explain, OnFailure, SaveAs};
use super::steps::{Action, FileSource, Plan, PlanDefaults, RunMount};
use crate::workspaces::WorkspaceName;

/// All names of one kind are arguments of one program.
const MOST_PACKAGES: usize = 500;
const LONGEST_NAME: usize = 200;
const LONGEST_DESCRIPTION: usize = 500;
const HOST_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const AUTHORITIES_ID: &str = "sandling-authorities";
const AUTHORITIES: &str = "/run/sandling-build/authorities.pem";
const REQUIREMENTS: &str = "/run/sandling-build/requirements.txt";

/// Without `Pattern-Only`, apt takes an unknown name with a dot as a regular expression. Some packages, such as Java's, do
/// not install without the directory of manual pages, which the built-in templates lack.
const APT: &str = "export DEBIAN_FRONTEND=noninteractive
mkdir -p /usr/share/man/man1 &&
apt-get --quiet update --error-on=any &&
apt-get --quiet --yes -o APT::Cmd::Pattern-Only=true -o Dpkg::Use-Pty=0 install --no-install-recommends \"$@\" &&
apt-get clean && rm -rf /var/lib/apt/lists/*";

/// Neither scripts of packages run nor git, for packages that are elsewhere. If TLS is inspected, the variable is set.
const NPM: &str = "authorities=/run/sandling-build/authorities.pem
[ -n \"$NODE_EXTRA_CA_CERTS\" ] || ! [ -e $authorities ] || export NODE_EXTRA_CA_CERTS=$authorities
npm install --global --prefix=/usr/local --cache=/var/tmp/npm --ignore-scripts --omit=dev --git=/bin/false \
    --no-audit --no-fund --no-update-notifier --loglevel=error -- \"$@\"
status=$?
rm -rf /var/tmp/npm
exit $status";

/// Installs for every user, which Debian's pip refuses to do without being told. If TLS is inspected, the variable is set.
const PIP: &str = "authorities=/run/sandling-build/authorities.pem
[ -n \"$PIP_CERT\" ] || ! [ -e $authorities ] || export PIP_CERT=$authorities
exec python3 -m pip install --no-input --no-cache-dir --progress-bar=off --disable-pip-version-check \
    --root-user-action=ignore --break-system-packages \"$@\"";

/// What a template has beside those of a built-in one.
#[derive(Debug, Clone, Default)]
pub struct Packages {
    /// Names of Debian packages.
    pub debian: Vec<String>,
    /// `name` or `name@version`. Their install scripts do not run.
    pub npm: Vec<String>,
    /// `name`, optionally with versions.
    pub pip: Vec<String>,
    /// The text of a requirements file.
    pub requirements: Option<String>,
}

/// A template to build from packages.
#[derive(Default)]
pub struct PackageBuild {
    pub name: String,
    /// A built-in template.
    pub from: String,
    pub packages: Packages,
    pub replace: bool,
    pub cache: CacheUse,
    pub on_failure: OnFailure,
    /// Warm commands.
    pub warm: Vec<String>,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    pub disk_mib: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    #[error("a build adds {MOST_PACKAGES} packages of each kind at most; put more into a requirements file")]
    TooMany,
}

impl Builds {
    /// Starts a build, or queues it behind another one. A template that the host could not carry is refused before anything
    /// is made.
    pub fn start_packages(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        wanted: PackageBuild,
        explain: Explain,
    ) -> Result<Arc<Build>, DockerfileError> {
        self.check_name(workspace, &wanted.name, wanted.replace)?;
        let base = sandling_image::resolve(&wanted.from).map_err(PackageError::from)?;
        let mut plan = Plan { warm: wanted.warm, ..wanted.packages.plan(&base.recipe)? };
        if plan.actions.is_empty() && !plan.warm.is_empty() {
            plan.actions.push(Action::Workdir(WORKSPACE.to_owned()));
        }
        let mut sized = base.recipe.clone();
        sized.vcpus = wanted.vcpus.unwrap_or(sized.vcpus);
        sized.memory_mib = wanted.memory_mib.unwrap_or(sized.memory_mib);
        sized.disk_mib = wanted.disk_mib.unwrap_or(sized.disk_mib);
        sized.check().map_err(PackageError::from)?;
        let fits = self.engine.check_size(sized.vcpus, sized.memory_mib, sized.disk_mib);
        fits.map_err(RegisterError::from)?;
        let source = TemplateSource::Template(base.recipe.name.to_string());
        let save_as = SaveAs::Template { name: wanted.name.clone(), replace: wanted.replace };
        let spec = BuildSpec {
            vcpus: wanted.vcpus,
            memory_mib: wanted.memory_mib,
            disk_mib: wanted.disk_mib,
            cache: wanted.cache,
            secrets: host_authorities().map(|bundle| (AUTHORITIES_ID.to_owned(), bundle)).into_iter().collect(),
            on_failure: wanted.on_failure,
            network: Some(wanted.packages.policy(&self.engine.config().network.builds, &base.recipe)),
            description: Some(wanted.packages.describe(&base.recipe)),
            packages: base.recipe.packages.iter().chain(&wanted.packages.debian).cloned().collect(),
            ..BuildSpec::of_steps(source, base.alias_note.map(str::to_owned), plan, save_as)
        };
        let build = self.registry.register(workspace.as_str(), &wanted.name)?;
        self.start(build.clone(), spec, explain)?;
        Ok(build)
    }
}

/// The certificates that this host trusts, because its registries may be mirrors. Steps see them while they run.
fn host_authorities() -> Option<Vec<u8>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    std::fs::read(named.unwrap_or_else(|| HOST_AUTHORITIES.into())).ok()
}

impl Packages {
    pub fn is_empty(&self) -> bool {
        self.debian.is_empty() && self.npm.is_empty() && self.pip.is_empty() && self.requirements.is_none()
    }

    fn installs_python(&self) -> bool {
        !self.pip.is_empty() || self.requirements.is_some()
    }

    fn check(&self) -> Result<(), PackageError> {
        for list in [&self.debian, &self.npm, &self.pip] {
            if list.len() > MOST_PACKAGES {
                return Err(PackageError::TooMany);
            }
        }
        let short = |name: &str| name.len() <= LONGEST_NAME;
        if let Some(package) = self.debian.iter().find(|name| !(short(name) && is_debian_package(name))) {
            return Err(RecipeError::BadPackage { package: package.clone() }.into());
        }
        if let Some(package) = self.npm.iter().find(|name| !(short(name) && is_npm_package(name))) {
            return Err(RecipeError::BadNpm { package: package.clone() }.into());
        }
        Ok(self.pip.iter().try_for_each(|package| requirements::check_package(package))?)
    }

    /// The Debian packages to install, with those that install and run what comes from npm.
    fn debian_on(&self, base: &Recipe) -> BTreeSet<&str> {
        let lacks_npm = !self.npm.is_empty() && base.node.is_none();
        let tools: &[&str] = if lacks_npm { &["nodejs", "npm"] } else { &[] };
        self.debian.iter().map(String::as_str).chain(tools.iter().copied()).collect()
    }

    /// One step for each kind of packages.
    fn plan(&self, base: &Recipe) -> Result<Plan, PackageError> {
        self.check()?;
        let required = self.requirements.as_deref().map(requirements::parse).transpose()?.unwrap_or_default();
        let mut actions = Vec::new();
        let debian = self.debian_on(base);
        if !debian.is_empty() {
            let names: Vec<_> = debian.into_iter().collect();
            actions.push(step(APT, &names, format!("apt-get install {}", names.join(" ")), Vec::new()));
        }
        if !self.npm.is_empty() {
            let names: Vec<_> = self.npm.iter().map(String::as_str).collect();
            let text = format!("npm install --global --ignore-scripts {}", names.join(" "));
            actions.push(step(NPM, &names, text, vec![lent_authorities()]));
        }
        if !self.pip.is_empty() || !required.is_empty() {
            let (mut arguments, mut mounts, mut shown) = (Vec::new(), vec![lent_authorities()], Vec::new());
            if !required.is_empty() {
                arguments.extend(["-r", REQUIREMENTS]);
                shown.extend(["-r", "requirements.txt"]);
                let from = FileSource::Text(vec![("requirements.txt".to_owned(), required)]);
                mounts.push(RunMount::Bind { from, target: REQUIREMENTS.to_owned(), read_only: true });
            }
            arguments.extend(self.pip.iter().map(String::as_str));
            shown.extend(self.pip.iter().map(String::as_str));
            actions.push(step(PIP, &arguments, format!("pip install {}", shown.join(" ")), mounts));
        }
        if !actions.is_empty() {
            actions.push(Action::Workdir(WORKSPACE.to_owned()));
        }
        Ok(Plan { actions, defaults: PlanDefaults { user: "root", workdir: Some("/") }, ..Plan::default() })
    }

    /// What the build reaches: of the operator's presets, those of its registries.
    fn policy(&self, operators: &Policy, base: &Recipe) -> Policy {
        let presets = [
            (Preset::Debian, !self.debian_on(base).is_empty()),
            (Preset::Npm, !self.npm.is_empty()),
            (Preset::Pypi, self.installs_python()),
        ];
        let needed = presets.into_iter().filter(|(_, needed)| *needed).map(|(preset, _)| Target::Preset(preset));
        let mut policy = operators.clone();
        match policy.mode {
            Mode::Deny => {}
            Mode::Allow => {
                let needed: Vec<_> = needed.collect();
                policy
                    .allow
                    .retain(|entry| !matches!(entry.target, Target::Preset(_)) || needed.contains(&entry.target));
            }
            Mode::Open | Mode::Learn => {
                policy.mode = Mode::Allow;
                policy.allow = needed.map(|target| Entry { target, ports: Ports::Usual }).collect();
            }
        }
        policy
    }

    fn describe(&self, base: &Recipe) -> String {
        let kinds = [(&self.debian, ""), (&self.npm, " from npm"), (&self.pip, " from PyPI")];
        let listed = kinds.iter().filter(|(names, _)| !names.is_empty());
        let mut parts: Vec<_> = listed.map(|(names, origin)| format!("{}{origin}", names.join(", "))).collect();
        parts.extend(self.requirements.is_some().then(|| "a requirements file".to_owned()));
        if parts.is_empty() {
            return base.description.clone();
        }
        let said = format!("{} + {}", base.name, parts.join(" + "));
        said.chars().take(LONGEST_DESCRIPTION).collect()
    }
}

/// The host's certificates, which are in the machine while a step runs. They are no part of its key.
fn lent_authorities() -> RunMount {
    RunMount::Secret {
        id: AUTHORITIES_ID.to_owned(),
        target: Some(AUTHORITIES.to_owned()),
        variable: None,
        mode: 0o444,
        uid: 0,
        gid: 0,
        required: false,
    }
}

fn step(script: &str, arguments: &[&str], text: String, mounts: Vec<RunMount>) -> Action {
    let argv = ["sh", "-c", script, "sh"].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
    Action::Run { argv, user: Some("root".to_owned()), text, mounts, network: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    fn base(name: &str) -> Recipe {
        sandling_image::resolve(name).unwrap().recipe
    }

    fn all() -> Packages {
        Packages {
            debian: words(&["jq", "tree"]),
            npm: words(&["cowsay@1.6.0"]),
            pip: words(&["six==1.16.0"]),
            requirements: Some("# ours\nidna\n".to_owned()),
        }
    }

    fn texts(plan: &Plan) -> Vec<&str> {
        plan.actions
            .iter()
            .filter_map(|action| if let Action::Run { text, .. } = action { Some(text.as_str()) } else { None })
            .collect()
    }

    #[test]
    fn every_kind_of_packages_is_a_step() {
        let plan = all().plan(&base("code-interpreter")).unwrap();
        let npm = "npm install --global --ignore-scripts cowsay@1.6.0";
        assert_eq!(texts(&plan), ["apt-get install jq tree", npm, "pip install -r requirements.txt six==1.16.0"]);
        let Action::Run { argv, mounts, user, .. } = &plan.actions[2] else { panic!() };
        assert!(argv.ends_with(&words(&[PIP, "sh", "-r", REQUIREMENTS, "six==1.16.0"])), "{argv:?}");
        assert_eq!((mounts.len(), user.as_deref()), (2, Some("root")));
        assert!(matches!(&mounts[1], RunMount::Bind { from: FileSource::Text(files), .. } if files[0].1 == "idna\n"));
        assert!(NPM.contains(AUTHORITIES) && PIP.contains(AUTHORITIES));
        plan.check().unwrap();
        // `base` has no npm.
        assert_eq!(texts(&all().plan(&base("base")).unwrap())[0], "apt-get install jq nodejs npm tree");
        assert!(Packages::default().plan(&base("base")).unwrap().actions.is_empty());
    }

    #[test]
    fn a_hostile_name_is_refused_before_anything_is_made() {
        let refused = |packages: Packages| packages.plan(&base("base")).unwrap_err().to_string();
        for bad in ["-oDebug=1", "a;id", "$(id)", "foo=1", "./x.deb", "https://x", "foo-"] {
            let said = refused(Packages { debian: words(&["jq", bad]), ..Packages::default() });
            assert!(said.contains(&format!("`{bad}` cannot be a Debian package")), "{said}");
        }
        for bad in
            ["--global", "git+ssh://x", "user/repo", "a@file:x", "a@npm:b", "x.tgz", "a@x.tar.gz", "a;id", "../x"]
        {
            let said = refused(Packages { npm: words(&[bad]), ..Packages::default() });
            assert!(said.contains(&format!("`{bad}` cannot be a package of npm")), "{said}");
        }
        for bad in ["--index-url=http://x", "six @ http://x", "./six", "six;$(id)"] {
            let said = refused(Packages { pip: words(&[bad]), ..Packages::default() });
            assert!(said.contains(&format!("`{bad}` cannot be a package of PyPI")), "{said}");
        }
        let file = Packages { requirements: Some("six\n--index-url http://x\n".to_owned()), ..Packages::default() };
        assert!(refused(file).contains("line 2 of the requirements: the option `--index-url`"));
        let many = Packages { debian: vec!["jq".to_owned(); MOST_PACKAGES + 1], ..Packages::default() };
        assert!(refused(many).contains("500 packages"));
        assert!(
            refused(Packages { debian: vec!["x".repeat(LONGEST_NAME + 1)], ..Packages::default() }).contains("Debian")
        );
    }

    #[test]
    fn a_build_reaches_the_registries_of_its_packages_only() {
        let (code, python) = (base("code-interpreter"), Packages { pip: words(&["six"]), ..Packages::default() });
        let policy = |text: &[&str]| Policy::allow(text.iter().map(|entry| entry.parse::<Entry>().unwrap()));
        let operators = policy(&["pypi", "npm", "debian", "github", "mirror.example"]);
        assert_eq!(python.policy(&operators, &code), policy(&["pypi", "mirror.example"]));
        let npm = Packages { npm: words(&["cowsay"]), ..Packages::default() };
        assert_eq!(npm.policy(&operators, &code), policy(&["npm", "mirror.example"]));
        assert_eq!(npm.policy(&operators, &base("base")), policy(&["npm", "debian", "mirror.example"]));
        assert_eq!(python.policy(&Policy::of(Mode::Open), &code), policy(&["pypi"]));
        assert_eq!(python.policy(&Policy::of(Mode::Deny), &code).mode, Mode::Deny);
        assert_eq!(python.policy(&policy(&["npm"]), &code).allow, []);
    }

    #[test]
    fn a_template_says_what_was_added() {
        let code = base("code-interpreter");
        let said = "code-interpreter + jq, tree + cowsay@1.6.0 from npm + six==1.16.0 from PyPI + a requirements file";
        assert_eq!(all().describe(&code), said);
        assert_eq!(Packages::default().describe(&code), code.description);
    }
}
