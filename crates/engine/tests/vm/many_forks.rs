//! Many children of one parent: none repeats another's randomness, and none sees another's writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandling_engine::{EndReason, ForkSpec, Sandbox};
use sandling_protocol::{ContextSpec, Language};

use crate::contexts::cell;
use crate::harness::{engine, shell};

/// How many children there are in all; `scripts/soak.sh` asks for two hundred.
const CHILDREN_VARIABLE: &str = "SANDLING_TEST_FORKS";
const USUAL_CHILDREN: usize = 16;
/// How many live at once.
const BATCH: usize = 4;

/// A generator that the code made itself is a variable like any other, and goes on where its parent's stood: it may
/// have been given a seed, which must count.
const PYTHON: &str = "import os, random, uuid, numpy\nnumpy.random.rand()";
const DRAW_PYTHON: &str = "[os.urandom(8).hex(), random.random(), str(uuid.uuid4()), numpy.random.rand(), \
    numpy.random.default_rng().random()]";
const NODE: &str = "const crypto = require('crypto'); Math.random()";
const DRAW_NODE: &str = "[Math.random(), crypto.randomUUID(), crypto.randomBytes(8).toString('hex')].join(' ')";

async fn context(sandbox: &Arc<Sandbox>, id: &str, language: Language, code: &str) {
    let spec = ContextSpec { id: id.to_owned(), language, cwd: None, env: Default::default(), user: None };
    sandbox.create_context(spec).await.unwrap();
    assert_eq!(cell(sandbox, id, code).await.stderr, "");
}

/// What a child draws in interpreters that its parent had warmed, and in new ones, and what it sees of others' writes.
async fn drawn(child: &Arc<Sandbox>, name: &str) -> Vec<String> {
    let python = cell(child, "python", DRAW_PYTHON).await.value;
    let node = cell(child, "node", DRAW_NODE).await.value;
    let line = format!(
        "cat /root/written; echo {name} > /root/written; python3 -c 'import random; print(random.random())'; \
         cat /proc/sys/kernel/random/uuid; hostname"
    );
    let fresh = shell(child, &line).await.stdout;
    let (seen, fresh) = fresh.split_once('\n').unwrap();
    assert_eq!(seen, "the parent", "{name} sees another's write");
    let python = python.trim_matches(['[', ']']).split(", ");
    let node = node.trim_matches('\'').split(' ');
    python.chain(node).chain(fresh.lines()).map(str::to_owned).collect()
}

#[tokio::test]
async fn no_two_children_draw_the_same() {
    let wanted = std::env::var(CHILDREN_VARIABLE).ok().map(|text| text.parse().expect("a number of children"));
    let wanted = wanted.unwrap_or(USUAL_CHILDREN);
    let engine = engine().await;
    let parent = engine.sandbox_of("code-interpreter").await;
    context(&parent, "python", Language::Python, PYTHON).await;
    context(&parent, "node", Language::Node, NODE).await;
    shell(&parent, "echo the parent > /root/written").await;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut made = 0;
    while made < wanted {
        let spec = ForkSpec { children: BATCH.min(wanted - made), ..ForkSpec::default() };
        let forks = engine.engine.fork(&parent, spec).await.unwrap();
        let drawing = forks.iter().enumerate().map(|(at, fork)| {
            let (child, name) = (fork.sandbox.clone(), format!("child {}", made + at));
            tokio::spawn(async move {
                let values = drawn(&child, &name).await;
                child.end(EndReason::Requested).await.unwrap();
                (name, values)
            })
        });
        for drawing in drawing.collect::<Vec<_>>() {
            let (name, values) = drawing.await.unwrap();
            assert_eq!(values.len(), 11, "{values:?}");
            for value in values {
                if let Some(other) = seen.insert(value.clone(), name.clone()) {
                    panic!("{name} and {other} both drew {value}");
                }
            }
        }
        made += forks.len();
    }
    assert_eq!(shell(&parent, "cat /root/written").await.stdout, "the parent\n", "a child wrote to its parent");
    println!("{made} children drew {} values, all different", seen.len());
    engine.close().await;
}
