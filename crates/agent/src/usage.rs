//! Token counts.

use std::ops::AddAssign;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
    }
}

impl Usage {
    pub fn total(self) -> u64 {
        self.input + self.output
    }

    /// Replaces counts that a server left out by estimates, because a budget must also hold for such servers.
    pub fn or(self, estimate: Usage) -> Self {
        let or = |said: u64, estimate: u64| if said == 0 { estimate } else { said };
        Self { input: or(self.input, estimate.input), output: or(self.output, estimate.output) }
    }
}
