//! Pulls an image into a folder. The conformance suite compares the result with what other tools pushed.
//!
//!     pull [--config DOCKER_CONFIG] [--mirror REGISTRY=MIRROR] REFERENCE FOLDER

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_oci::registry::{Client, DockerConfig, Endpoint, RegistryOptions, Role};
use sandling_oci::{Platform, Reference};

#[tokio::main]
async fn main() {
    if let Err(error) = pull().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn pull() -> Result<(), Box<dyn Error>> {
    let allow = |endpoint: &Endpoint, address: IpAddr| endpoint.role == Role::Registry && address.is_loopback();
    let mut options = RegistryOptions::new(Arc::new(allow));
    let mut words = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--config" => {
                let config = DockerConfig::load(Path::new(&arguments.next().ok_or("--config needs a file")?))?;
                options.credentials = Arc::new(move |registry| config.credentials(registry));
            }
            "--mirror" => {
                let pair = arguments.next().ok_or("--mirror needs REGISTRY=MIRROR")?;
                let (registry, mirror) = pair.split_once('=').ok_or("--mirror needs REGISTRY=MIRROR")?;
                options.mirrors.insert(registry.to_owned(), vec![mirror.to_owned()]);
            }
            _ => words.push(argument),
        }
    }
    let [reference, folder] = words.as_slice() else { return Err("give a reference and a folder".into()) };
    let (reference, folder): (Reference, PathBuf) = (reference.parse()?, folder.into());
    let platform = Platform { architecture: "amd64".to_owned(), os: "linux".to_owned(), variant: None };
    let client = Client::new(options)?;
    let resolved = client.resolve(&reference, &platform).await?;
    std::fs::create_dir_all(&folder)?;
    let layers = resolved.manifest.layers.iter().map(|layer| (layer.clone(), folder.join(layer.digest.hex())));
    client.fetch_blobs(&reference, &layers.collect::<Vec<_>>(), &|_, _| {}).await?;
    for layer in &resolved.manifest.layers {
        client.may_read(&reference, layer).await?;
    }
    std::fs::write(folder.join("manifest.json"), &resolved.manifest_bytes)?;
    std::fs::write(folder.join("config.json"), &resolved.config_bytes)?;
    println!("{}", resolved.digest);
    Ok(())
}
