//! One attack and what came of it.

use serde::Serialize;

/// Whether a defense held. Later values are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Held,
    NotTried,
    DidNotHold,
}

impl Verdict {
    pub fn text(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotTried => "not tried",
            Self::DidNotHold => "did not hold",
        }
    }
}

/// One thing that was tried, and what happened.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    pub tried: String,
    pub happened: String,
    pub verdict: Verdict,
}

/// The attempts of one attack.
#[derive(Debug, Default)]
pub struct Trial {
    attempts: Vec<Attempt>,
    /// Why the attack ended before all attempts were made.
    cut_short: Option<String>,
}

impl Trial {
    /// Records an attempt against a defense that held, or did not.
    pub fn record(&mut self, held: bool, tried: impl Into<String>, happened: impl Into<String>) {
        let verdict = if held { Verdict::Held } else { Verdict::DidNotHold };
        self.add(verdict, tried, happened);
    }

    /// Records an attempt that this host, or this version, makes impossible.
    pub fn skip(&mut self, tried: impl Into<String>, why: impl Into<String>) {
        self.add(Verdict::NotTried, tried, why);
    }

    fn add(&mut self, verdict: Verdict, tried: impl Into<String>, happened: impl Into<String>) {
        self.attempts.push(Attempt { tried: tried.into(), happened: happened.into(), verdict });
    }

    /// Notes that the other attempts could not be made. Without them the defense cannot be said to hold.
    pub fn cut_short(&mut self, why: impl Into<String>) {
        self.cut_short = Some(why.into());
    }

    pub fn verdict(&self) -> Verdict {
        let any = |verdict| self.attempts.iter().any(|attempt| attempt.verdict == verdict);
        match (any(Verdict::DidNotHold), &self.cut_short, any(Verdict::Held)) {
            (true, ..) => Verdict::DidNotHold,
            (false, None, true) => Verdict::Held,
            _ => Verdict::NotTried,
        }
    }

    /// The attempts and one sentence: the first failure, why nothing was tried, or how many attempts were made.
    pub fn into_evidence(self) -> (Vec<Attempt>, String) {
        let verdict = self.verdict();
        let decisive = self.attempts.iter().find(|attempt| attempt.verdict == verdict);
        let summary = match (verdict, &self.cut_short, decisive) {
            (Verdict::DidNotHold, _, Some(first)) => format!("{}: {}", first.tried, first.happened),
            (Verdict::NotTried, Some(why), _) => why.clone(),
            (Verdict::NotTried, None, Some(first)) => first.happened.clone(),
            (Verdict::NotTried, None, None) => "there was nothing to try".to_owned(),
            (_, _, first) => match self.attempts.iter().filter(|attempt| attempt.verdict == Verdict::Held).count() {
                1 => first.map(|only| format!("{}: {}", only.tried, only.happened)).unwrap_or_default(),
                count => format!("{count} attempts"),
            },
        };
        (self.attempts, summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_outweighs_everything_else() {
        let mut trial = Trial::default();
        trial.record(true, "a", "refused");
        trial.record(false, "b", "worked");
        trial.skip("c", "no such device");
        trial.cut_short("no time");
        assert_eq!(trial.verdict(), Verdict::DidNotHold);
        assert_eq!(trial.into_evidence().1, "b: worked");
    }

    #[test]
    fn a_defense_holds_only_if_all_attempts_were_made() {
        let mut trial = Trial::default();
        assert_eq!(trial.verdict(), Verdict::NotTried);
        trial.skip("a", "this kernel has none");
        assert_eq!(trial.verdict(), Verdict::NotTried);
        trial.record(true, "b", "refused");
        assert_eq!(trial.verdict(), Verdict::Held);
        trial.cut_short("no time");
        assert_eq!(trial.verdict(), Verdict::NotTried);
        assert_eq!(trial.into_evidence().1, "no time");
    }
}
