//! Python modules that the sandbox lacks, and where they are.

/// Modules of the template `code-interpreter` that `base` lacks.
const IN_CODE_INTERPRETER: [&str; 10] =
    ["numpy", "pandas", "scipy", "matplotlib", "PIL", "requests", "openpyxl", "dateutil", "pytz", "mpl_toolkits"];
const MESSAGE: &str = "No module named '";

/// The module that the last error of a Python program says is missing.
fn missing_module(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.rsplit_once(MESSAGE)?;
    let module = rest.split('\'').next()?.split('.').next()?;
    let is_name = !module.is_empty() && module.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    is_name.then_some(module)
}

/// Where to find the module that an error says is missing.
pub fn module_hint(stderr: &str) -> Option<String> {
    let module = missing_module(stderr)?;
    Some(if IN_CODE_INTERPRETER.contains(&module) {
        format!("the module {module} is in the template code-interpreter; use --template code-interpreter")
    } else {
        format!("the module {module} is in no built-in template; pip can install it if the sandbox may reach pypi")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_of_a_missing_module_is_named() {
        let hint = |name: &str| module_hint(&format!("Traceback …\nModuleNotFoundError: No module named '{name}'\n"));
        assert!(hint("pandas").unwrap().contains("code-interpreter"));
        assert!(hint("matplotlib.pyplot").unwrap().contains("the module matplotlib is in the template"));
        assert!(hint("httpx").unwrap().contains("pip can install it"));
        assert_eq!(hint("a b"), None);
        assert_eq!(module_hint("ValueError: 1"), None);
    }
}
