//! Two clones of one template differ in everything that must differ, and their clocks are right.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandling_engine::{RunSpec, Sandbox};
use sandling_protocol::{ContextSpec, Language};

use crate::harness::{TestEngine, engine, python, run, shell};

const PYTHON: &str = "
import os, platform, random, uuid, secrets, ssl, tempfile
print(os.urandom(16).hex(), random.random(), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8), ssl.RAND_bytes(16).hex())
print(tempfile.mktemp(), platform.node())
";
const NUMPY: &str = "import numpy; print(numpy.random.rand(), numpy.random.default_rng().random())";
const NODE: &str = "const c = require('crypto');
console.log(Math.random(), c.randomUUID(), c.randomBytes(16).toString('hex'), c.generateKeyPairSync('x25519').publicKey.export({format:'jwk'}).x)";
const KERNEL: &str = "cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id /etc/machine-id; hostname";

async fn words(sandbox: &Arc<Sandbox>) -> Vec<String> {
    let mut text = python(sandbox, PYTHON).await.stdout;
    text += &python(sandbox, NUMPY).await.stdout;
    let node = run(sandbox, RunSpec::code(Language::Node, NODE)).await;
    assert_eq!(node.exit.code, 0, "{}", node.stderr);
    text += &node.stdout;
    text += &shell(sandbox, KERNEL).await.stdout;
    text.split_whitespace().map(str::to_owned).collect()
}

async fn both(engine: &TestEngine) -> (Arc<Sandbox>, Arc<Sandbox>) {
    (engine.sandbox_of("code-interpreter").await, engine.sandbox_of("code-interpreter").await)
}

#[tokio::test]
async fn no_random_value_or_name_is_the_same_in_two_clones() {
    let engine = engine().await;
    let (one, two) = both(&engine).await;
    let (mut first, second) = (words(&one).await, words(&two).await);
    assert_eq!((first.len(), second.len()), (18, 18), "{first:?}");
    first.retain(|word| second.contains(word));
    assert!(first.is_empty(), "the same in both: {first:?}");
    engine.close().await;
}

#[tokio::test]
async fn contexts_that_were_warm_in_the_template_draw_different_numbers() {
    let engine = engine().await;
    let (one, two) = both(&engine).await;
    let mut drawn = Vec::new();
    for sandbox in [&one, &two] {
        for (language, code) in [
            (Language::Python, "import random, numpy; (random.random(), numpy.random.rand())"),
            (Language::Node, "Math.random()"),
        ] {
            let id = format!("{language:?}");
            let spec = ContextSpec { id: id.clone(), language, cwd: None, env: Default::default(), user: None };
            sandbox.create_context(spec).await.unwrap();
            drawn.push(crate::contexts::cell(sandbox, &id, code).await.value);
        }
    }
    assert_ne!(drawn[0], drawn[2]);
    assert_ne!(drawn[1], drawn[3]);
    engine.close().await;
}

#[tokio::test]
async fn the_clock_is_right() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    // The guest's answer lies between the two readings of ours, give or take what is allowed.
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    // And it goes at our pace.
    for pause in [0, 3] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let before = now();
        let guest: f64 = python(&sandbox, "import time; print(time.time())").await.stdout.trim().parse().unwrap();
        let after = now();
        assert!(guest > before - 0.05 && guest < after + 0.05, "{before} {guest} {after}");
    }
    engine.close().await;
}
