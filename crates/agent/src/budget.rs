//! The budget of a task, and how much of it is used.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ended_by::EndedBy;
use crate::usage::Usage;

/// The budget of one task. An absent field has no limit.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Requests to the model.
    pub steps: u32,
    pub wall: Duration,
    /// Input and output tokens together.
    pub tokens: Option<u64>,
    /// In dollars. Needs prices.
    pub cost: Option<f64>,
    pub prices: Option<Prices>,
}

impl Budget {
    /// For the transcript. A limit of an engine that is off is null.
    pub(crate) fn limits(&self) -> Value {
        json!({ "steps": self.steps, "seconds": self.wall.as_secs(), "tokens": self.tokens, "cost": self.cost })
    }
}

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
}

impl Prices {
    fn of(self, usage: Usage) -> f64 {
        (usage.input as f64 * self.input + usage.output as f64 * self.output) / 1e6
    }
}

/// How much of a budget is used.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub steps: u32,
    pub usage: Usage,
    /// The usage of the last answer. The next request reads at least as much.
    last: Usage,
    /// The estimate for `last`. The amount by which the next request exceeds it was added since.
    estimated: u64,
    started: Instant,
}

impl Spent {
    pub fn new() -> Self {
        Self { steps: 0, usage: Usage::default(), last: Usage::default(), estimated: 0, started: Instant::now() }
    }

    /// Counts an answer. `estimate` is what its usage was estimated to be.
    pub fn add(&mut self, usage: Usage, estimate: Usage) {
        self.steps += 1;
        self.usage += usage;
        self.last = usage;
        self.estimated = estimate.total();
    }

    /// Counts an answer that arrived incomplete.
    pub fn lose(&mut self, estimate: Usage) {
        self.usage += estimate;
    }

    /// Sets totals that a command line reported itself.
    pub(crate) fn report(&mut self, steps: u32, usage: Usage) {
        (self.steps, self.usage) = (steps, usage);
    }

    pub fn wall(&self) -> Duration {
        self.started.elapsed()
    }

    /// The cost in dollars, if prices are known.
    pub fn cost(&self, budget: &Budget) -> Option<f64> {
        Some(budget.prices?.of(self.usage))
    }

    pub fn deadline(&self, budget: &Budget) -> Instant {
        self.started + budget.wall
    }

    /// The most tokens that the answer to a request of about `size` tokens may have: `usual`, or fewer if a budget is
    /// nearly used up. The request's own input is subtracted first. It is what the last request read and wrote, plus
    /// what was added since.
    pub fn next_answer(&self, budget: &Budget, usual: u64, size: u64) -> Result<u64, EndedBy> {
        if self.steps >= budget.steps {
            return Err(EndedBy::Steps);
        }
        if self.wall() >= budget.wall {
            return Err(EndedBy::Time);
        }
        let mut most = usual;
        let reads = self.last.total() + size.saturating_sub(self.estimated);
        if let Some(tokens) = budget.tokens {
            let left = tokens.saturating_sub(self.usage.total() + reads);
            if left == 0 {
                let needed = format!("about {} tokens", reads + 1);
                return Err(self.used_up(EndedBy::Tokens, &needed, &tokens.to_string()));
            }
            most = most.min(left);
        }
        if let (Some(cost), Some(prices)) = (budget.cost, budget.prices) {
            let left = cost - prices.of(self.usage) - prices.of(Usage { input: reads, output: 0 });
            let affordable = if prices.output > 0.0 { (left / prices.output * 1e6).floor() } else { f64::MAX };
            if left <= 0.0 || affordable < 1.0 {
                let needed = format!("about ${:.6}", prices.of(Usage { input: reads, output: 1 }));
                return Err(self.used_up(EndedBy::Money, &needed, &format!("${cost}")));
            }
            most = most.min(affordable as u64);
        }
        Ok(most)
    }

    /// If nothing was used yet, the budget is too small for even the first request.
    fn used_up(&self, ended: EndedBy, needed: &str, budget: &str) -> EndedBy {
        if self.usage.total() > 0 {
            return ended;
        }
        EndedBy::TooLittle(format!("the first request alone needs {needed}, and the budget is {budget}"))
    }
}

impl Default for Spent {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget { steps: 3, wall: Duration::from_secs(60), tokens: None, cost: None, prices: None }
    }

    #[test]
    fn steps_are_counted() {
        let (budget, mut spent) = (budget(), Spent::new());
        for _ in 0..3 {
            assert_eq!(spent.next_answer(&budget, 100, 1).unwrap(), 100);
            spent.add(Usage { input: 1, output: 1 }, Usage::default());
        }
        assert!(matches!(spent.next_answer(&budget, 100, 1), Err(EndedBy::Steps)));
    }

    #[test]
    fn an_answer_is_never_longer_than_what_is_left_after_reading() {
        let (budget, mut spent) = (Budget { tokens: Some(100), ..budget() }, Spent::new());
        assert_eq!(spent.next_answer(&budget, 1000, 25).unwrap(), 75);
        spent.add(Usage { input: 20, output: 10 }, Usage { input: 25, output: 15 });
        assert_eq!(spent.next_answer(&budget, 1000, 40).unwrap(), 40);
        assert_eq!(spent.next_answer(&budget, 1000, 55).unwrap(), 25, "15 more were added since");
        assert!(matches!(spent.next_answer(&budget, 1000, 80), Err(EndedBy::Tokens)));
        spent.lose(Usage { input: 30, output: 5 });
        assert_eq!(spent.next_answer(&budget, 1000, 40).unwrap(), 5);
    }

    #[test]
    fn a_budget_too_small_for_the_first_request_says_what_it_needs() {
        let spent = Spent::new();
        let tokens = Budget { tokens: Some(500), ..budget() };
        let why = spent.next_answer(&tokens, 1000, 900).unwrap_err().why();
        assert_eq!(why, "the first request alone needs about 901 tokens, and the budget is 500");
        let prices = Some(Prices { input: 1.0, output: 10.0 });
        let money = Budget { cost: Some(0.0001), prices, ..budget() };
        let why = spent.next_answer(&money, 1000, 900).unwrap_err().why();
        assert_eq!(why, "the first request alone needs about $0.000910, and the budget is $0.0001");
    }

    #[test]
    fn the_cost_budget_is_enforced() {
        let prices = Some(Prices { input: 1.0, output: 10.0 });
        let (budget, mut spent) = (Budget { cost: Some(0.001), prices, ..budget() }, Spent::new());
        assert_eq!(spent.next_answer(&budget, 1000, 0).unwrap(), 100);
        assert!((89..=90).contains(&spent.next_answer(&budget, 1000, 100).unwrap()));
        spent.add(Usage { input: 100, output: 50 }, Usage { input: 100, output: 50 });
        assert!((spent.cost(&budget).unwrap() - 0.0006).abs() < 1e-9);
        assert_eq!(spent.next_answer(&budget, 1000, 150).unwrap(), 25);
        assert!(matches!(spent.next_answer(&budget, 1000, 400), Err(EndedBy::Money)));
    }
}
