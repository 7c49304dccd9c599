//! What an image's configuration says about processes, as Sandling's defaults.

use std::collections::BTreeMap;

use sandling_engine::ProcessDefaults;
use sandling_oci::Config;

/// The environment, user and directory that Docker would give to the image's program. Malformed variables are left out.
pub fn process_defaults(config: &Config) -> ProcessDefaults {
    let variables = config.env.iter().flatten().filter_map(|entry| entry.split_once('='));
    let good = variables.filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
    let env: BTreeMap<_, _> = good.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let workdir = given(&config.working_dir).map(|path| if path.starts_with('/') { path } else { format!("/{path}") });
    ProcessDefaults { env, user: given(&config.user), workdir }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_user_and_directory_come_from_the_image() {
        let config: Config = serde_json::from_str(
            r#"{"Env": ["PATH=/opt/bin:/bin", "EMPTY=", "BAD", "=x", "A=b=c"], "User": "app:staff", "WorkingDir": "srv"}"#,
        )
        .unwrap();
        let defaults = process_defaults(&config);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(defaults.env, [pair("A", "b=c"), pair("EMPTY", ""), pair("PATH", "/opt/bin:/bin")].into());
        assert_eq!((defaults.user.as_deref(), defaults.workdir.as_deref()), (Some("app:staff"), Some("/srv")));
    }

    #[test]
    fn an_empty_configuration_sets_nothing() {
        let config: Config = serde_json::from_str(r#"{"User": "", "WorkingDir": "", "Env": null}"#).unwrap();
        assert_eq!(process_defaults(&config), ProcessDefaults::default());
    }
}
