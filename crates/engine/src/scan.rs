//! Advice about code before it runs: patterns that a careful reviewer would question.
//!
//! It matches text and does not understand code, so it is easy to evade. Nothing is refused because of it: the virtual
//! machine is the boundary. Findings are shown and logged.

use std::sync::LazyLock;

use regex::Regex;
use sandling_protocol::Language;
use serde::{Deserialize, Serialize};

/// Further findings are dropped.
const MAX_FINDINGS: usize = 50;
/// A run of base64-like characters this long is rarely written by hand.
const LONG_LITERAL: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    HostFiles,
    Network,
    Processes,
    Obfuscation,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub risk: Risk,
    /// Counted from 1.
    pub line: usize,
    /// A description for people.
    pub what: String,
}

struct Shape {
    languages: &'static [Language],
    risk: Risk,
    what: &'static str,
    pattern: Regex,
}

/// Reports risky patterns in `code`, line by line.
pub fn scan(language: Language, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for shape in SHAPES.iter().filter(|shape| shape.languages.contains(&language)) {
            if shape.pattern.is_match(line) {
                findings.push(Finding { risk: shape.risk, line: number + 1, what: shape.what.to_owned() });
            }
        }
        if findings.len() >= MAX_FINDINGS {
            findings.truncate(MAX_FINDINGS);
            break;
        }
    }
    findings
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    use Language::{Bash, Node, Python};
    let long_literal = format!("[A-Za-z0-9+/=]{{{LONG_LITERAL},}}");
    let shape = |languages, risk, what, pattern: &str| Shape {
        languages,
        risk,
        what,
        pattern: Regex::new(pattern).expect("the patterns are constants, and a test compiles them"),
    };
    const ALL: &[Language] = &[Python, Node, Bash];
    vec![
        shape(
            ALL,
            Risk::HostFiles,
            "a file that holds accounts or keys",
            r"/etc/(passwd|shadow|sudoers)|\.ssh/|\.aws/|\.netrc|\.kube/|id_(rsa|ed25519)",
        ),
        shape(
            ALL,
            Risk::HostFiles,
            "the kernel's view of processes or memory",
            r"/proc/(\d+|self|1)/(environ|mem|maps|root)|/dev/(mem|kmem|sd[a-z]|vd[a-z])",
        ),
        shape(
            &[Bash],
            Risk::HostFiles,
            "removes a whole tree from the root or home",
            r"\brm\s+-[a-zA-Z]*[rf][a-zA-Z]*\s+(-\S+\s+)*(/|~|\$HOME)(\s|\*|$)",
        ),
        shape(&[Python], Risk::HostFiles, "removes a whole tree", r"\bshutil\.rmtree\s*\("),
        shape(
            ALL,
            Risk::Network,
            "a cloud metadata address",
            r"169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200",
        ),
        shape(
            &[Python],
            Risk::Network,
            "opens network connections",
            r"\b(import|from)\s+(socket|requests|httpx|aiohttp|urllib|http\.client|ftplib|smtplib|paramiko|telnetlib)\b|\burllib\.request\b",
        ),
        shape(
            &[Node],
            Risk::Network,
            "opens network connections",
            r#"\bfetch\s*\(|require\(\s*['"](node:)?(net|http|https|http2|dgram|tls|dns)['"]|from\s+['"](node:)?(net|http|https|http2|dgram|tls|dns)['"]"#,
        ),
        shape(
            &[Bash],
            Risk::Network,
            "opens network connections",
            r"(^|[\s;|&(])(curl|wget|nc|ncat|ssh|scp|rsync|telnet|dig|nslookup)\s|/dev/(tcp|udp)/",
        ),
        shape(
            &[Python],
            Risk::Processes,
            "starts other programs",
            r"\b(import|from)\s+(subprocess|pty|multiprocessing)\b|\bos\.(system|popen|exec[lv]\w*|spawn\w+|fork|posix_spawn)\s*\(",
        ),
        shape(
            &[Node],
            Risk::Processes,
            "starts other programs",
            r#"['"](node:)?(child_process|cluster|worker_threads)['"]"#,
        ),
        shape(&[Bash], Risk::Processes, "a fork bomb", r":\s*\(\s*\)\s*\{.*\|.*&\s*\}\s*;"),
        shape(&[Bash], Risk::Processes, "kills every process it can", r"\bkill\s+(-\S+\s+)*-1\b|\bkillall5\b"),
        shape(
            &[Python],
            Risk::Obfuscation,
            "runs code that it makes up",
            r"\b(exec|eval|compile)\s*\(|\b__import__\s*\(|\bmarshal\.loads\b|\bpickle\.loads\b",
        ),
        shape(
            &[Node],
            Risk::Obfuscation,
            "runs code that it makes up",
            r"\beval\s*\(|\bnew\s+Function\s*\(|\bvm\.run\w+\s*\(",
        ),
        shape(
            &[Bash],
            Risk::Obfuscation,
            "runs code that it makes up",
            r"\beval\s|base64\s+(-d|--decode)|\|\s*(ba|z|da)?sh\b",
        ),
        shape(ALL, Risk::Obfuscation, "a long encoded literal", &long_literal),
        shape(ALL, Risk::Obfuscation, "text written as escape codes", r"(\\x[0-9a-fA-F]{2}){12,}"),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    fn risks(language: Language, code: &str) -> Vec<Risk> {
        scan(language, code).into_iter().map(|finding| finding.risk).collect()
    }

    #[test]
    fn ordinary_code_gets_no_advice() {
        assert!(scan(Language::Python, "import math\nprint(sum(range(101)))\n").is_empty());
        assert!(scan(Language::Bash, "ls -la\ngrep -r needle .\n").is_empty());
        assert!(scan(Language::Node, "console.log([1,2].map(x => x * 2))").is_empty());
    }

    #[test]
    fn each_risk_is_found_on_its_line() {
        let code = "x = 1\nprint(open('/etc/shadow').read())\nimport subprocess\nimport socket\nexec(x)";
        let found: Vec<_> = scan(Language::Python, code).into_iter().map(|f| (f.line, f.risk)).collect();
        let expected = [(2, Risk::HostFiles), (3, Risk::Processes), (4, Risk::Network), (5, Risk::Obfuscation)];
        assert_eq!(found, expected);
    }

    #[test]
    fn other_languages_have_their_own_shapes() {
        assert_eq!(risks(Language::Bash, "curl https://example.org | sh"), [Risk::Network, Risk::Obfuscation]);
        assert_eq!(risks(Language::Node, "require('child_process').execSync('id')"), [Risk::Processes]);
        assert_eq!(risks(Language::Bash, ":(){ :|:& };:"), [Risk::Processes]);
    }

    #[test]
    fn the_report_is_bounded() {
        let code = "eval(x)\n".repeat(10_000);
        assert_eq!(scan(Language::Python, &code).len(), MAX_FINDINGS);
    }
}
