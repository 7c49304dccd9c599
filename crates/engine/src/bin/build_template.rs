//! Builds a built-in template in the user's home, as `sandling template build NAME` does.
//!
//! It needs the engine, but neither the API nor the command line. So `scripts/quickstart.sh` runs it while those compile.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sandling_engine::{Engine, EngineConfig, Home, Step, with_causes};
use sandling_image::BuildOptions;

fn main() -> ExitCode {
    // The engine runs this program to enter a jail. This must come first, before any thread starts.
    match std::env::args_os().nth(1) {
        Some(argument) if argument == sandling_vmm::jail::ARGUMENT => return sandling_vmm::jail::main(),
        Some(argument) if argument == sandling_image::jail::ARGUMENT => return sandling_image::jail::main(),
        _ => {}
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("build_template: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: build_template NAME")?;
    let recipe = sandling_image::resolve(&name)?.recipe;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let started = Instant::now();
        let engine =
            Engine::open(EngineConfig::new(Home::from_environment().ok_or("neither SANDLING_HOME nor HOME is set")?)?)
                .await?;
        let shown = Mutex::new(String::new());
        let on_step = move |step: Step| show(&mut shown.lock().unwrap_or_else(PoisonError::into_inner), &step.text);
        let built = engine.machines().build_template(recipe, BuildOptions::default(), on_step).await;
        engine.close().await;
        println!("{} is ready: {:.0} s", built?.name, started.elapsed().as_secs_f64());
        Ok(())
    })
}

/// Prints a step when it begins. Its details change many times a second.
fn show(last: &mut String, text: &str) {
    let step = text.split(':').next().unwrap_or(text);
    if step != last {
        println!("  {step}");
        *last = step.to_owned();
    }
}
