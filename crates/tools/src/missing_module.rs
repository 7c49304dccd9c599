//! Python modules that the sandbox lacks, and where they are.

/// The template that has the modules below, which `base` lacks.
const CODE_INTERPRETER: &str = "code-interpreter";
const IN_CODE_INTERPRETER: [&str; 10] =
    ["numpy", "pandas", "scipy", "matplotlib", "PIL", "requests", "openpyxl", "dateutil", "pytz", "mpl_toolkits"];
/// Popular modules whose packages have another name on PyPI.
const PACKAGES: [(&str, &str); 7] = [
    ("PIL", "pillow"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("mpl_toolkits", "matplotlib"),
    ("sklearn", "scikit-learn"),
    ("yaml", "pyyaml"),
];
const MESSAGE: &str = "No module named '";

/// A module that a Python program could not import.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingModule<'a> {
    pub name: &'a str,
    /// A built-in template that has it.
    pub template: Option<&'static str>,
}

impl<'a> MissingModule<'a> {
    /// The module that the last error of a program names.
    pub fn in_stderr(stderr: &'a str) -> Option<Self> {
        let (_, rest) = stderr.rsplit_once(MESSAGE)?;
        let name = rest.split('\'').next()?.split('.').next()?;
        let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        let template = IN_CODE_INTERPRETER.contains(&name).then_some(CODE_INTERPRETER);
        is_name.then_some(Self { name, template })
    }

    /// The name under which PyPI would have it.
    pub fn package(&self) -> &'a str {
        PACKAGES.iter().find(|(module, _)| *module == self.name).map_or(self.name, |(_, package)| package)
    }

    /// Where a model, or its user, finds the module.
    pub(crate) fn hint(&self) -> String {
        let (name, package) = (self.name, self.package());
        match self.template {
            Some(template) => format!("the module {name} is in the template {template}; use --template {template}"),
            None => format!(
                "the module {name} is in no built-in template; `pip install {package}` works if the sandbox may reach pypi"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stderr(name: &str) -> String {
        format!("Traceback …\nModuleNotFoundError: No module named '{name}'\n")
    }

    #[test]
    fn the_template_of_a_missing_module_is_named() {
        let hint = |name: &str| MissingModule::in_stderr(&stderr(name)).map(|module| module.hint());
        assert!(hint("pandas").unwrap().contains("code-interpreter"));
        assert!(hint("matplotlib.pyplot").unwrap().contains("the module matplotlib is in the template"));
        assert!(hint("httpx").unwrap().contains("pip install httpx"));
        assert!(hint("sklearn.svm").unwrap().contains("pip install scikit-learn"));
        assert_eq!(hint("a b"), None);
        assert_eq!(MissingModule::in_stderr("ValueError: 1"), None);
    }
}
