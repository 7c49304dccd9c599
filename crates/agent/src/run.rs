//! The agent loop.

use std::time::Duration;

use sandling_tools::{Action, BadCall, DesktopTools, Observation, ToolSpec};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::budget::Spent;
use crate::computer;
use crate::ended_by::EndedBy;
use crate::events::Event;
use crate::job::{Job, Outcome};
use crate::model::{Api, Backoff, COMPUTER, Call, Model, ModelError, Question, Reply, Turn};

const SYSTEM: &str = "You solve a task with a disposable computer: a virtual machine of your own, with the working \
    directory /workspace. Use the tools to look around, run code and commands, and change files there. You are root; \
    nothing in it is precious, and there may be no network. Check what you did by running it. When the task is done, \
    answer in a few sentences, without calling a tool.";
const DESKTOP_SYSTEM: &str = " The computer has a desktop, which belongs to the user `user`: look at its screen, use its \
    mouse and keyboard, and start programs on it with `launch`. Programs may need some seconds to open a window.";
/// The longest answer, unless a budget allows less.
const ANSWER_TOKENS: u64 = 8192;
/// After this many equal calls with equal results, the model gets a hint, and later the task ends.
const HINT_AFTER: u32 = 3;
const END_AFTER: u32 = 6;
const MOST_EMPTY: u32 = 3;
/// How many images the model keeps, because each request contains all of them.
const KEPT_IMAGES: usize = 10;
/// How long the screen has to change after an action.
const SETTLE: Duration = Duration::from_secs(1);

/// A model that works on a task in a sandbox.
pub struct Agent<'a> {
    pub model: &'a Model,
    pub job: Job<'a>,
}

/// What the model is told about the sandbox, and the tools that it gets.
struct Kit {
    system: String,
    tools: Vec<ToolSpec>,
    computer: Option<Value>,
}

/// Counts equal calls with equal results in a row.
#[derive(Default)]
struct Repeats {
    last: Option<(String, Result<Value, String>, Observation)>,
    times: u32,
}

impl Repeats {
    fn count(&mut self, call: &Call, observation: &Observation) -> u32 {
        let this = (call.name.clone(), call.arguments.clone(), observation.clone());
        self.times = if self.last.as_ref() == Some(&this) { self.times + 1 } else { 1 };
        self.last = Some(this);
        self.times
    }
}

impl Agent<'_> {
    pub async fn run(&self, task: &str) -> Outcome {
        let mut spent = Spent::new();
        let mut answer = String::new();
        let about = json!({ "task": task, "model": self.model.endpoint().model, "sandbox": self.job.toolbox.sandbox(),
                "budget": self.job.budget.limits() });
        self.job.transcript.write("start", about);
        let ended = self.work(task, &mut spent, &mut answer).await;
        let cost = spent.cost(&self.job.budget);
        self.job.transcript.write(
            "end",
            json!({ "why": ended.why(), "steps": spent.steps, "seconds": spent.wall().as_secs_f64(), "cost": cost,
                "input_tokens": spent.usage.input, "output_tokens": spent.usage.output, "answer": answer }),
        );
        Outcome { answer, ended, spent }
    }

    async fn work(&self, task: &str, spent: &mut Spent, answer: &mut String) -> EndedBy {
        let kit = match self.kit(spent.deadline(&self.job.budget)).await {
            Ok(kit) => kit,
            Err(ended) => return ended,
        };
        let mut turns = vec![Turn::User(task.to_owned())];
        let (mut repeats, mut empty) = (Repeats::default(), 0);
        loop {
            let reply = match self.ask(&kit, &turns, spent).await {
                Ok(reply) => reply,
                Err(ended) => return ended,
            };
            if !reply.text.trim().is_empty() {
                answer.clone_from(&reply.text);
            }
            let is_empty = reply.text.trim().is_empty() && reply.calls.is_empty();
            if is_empty {
                empty += 1;
                if empty == MOST_EMPTY {
                    return EndedBy::Empty;
                }
                turns.push(Turn::User("You said nothing. Call a tool, or answer if the task is done.".to_owned()));
                continue;
            }
            turns.push(Turn::Model(reply.raw));
            if reply.calls.is_empty() {
                if !reply.is_cut {
                    return EndedBy::Answer;
                }
                turns.push(Turn::User("Your answer was cut off at the limit of its length. Go on.".to_owned()));
                continue;
            }
            match self.carry_out(reply.calls, spent.deadline(&self.job.budget), &mut repeats).await {
                Ok(answers) => turns.push(Turn::Answers(answers)),
                Err(ended) => return ended,
            }
            // Each computer call of the Responses API needs its screenshot; that API drops old ones itself.
            if self.api() != Api::Responses {
                forget_images(&mut turns);
            }
        }
    }

    fn api(&self) -> Api {
        self.model.endpoint().api
    }

    /// Looks at the sandbox before the first request costs something.
    async fn kit(&self, deadline: Instant) -> Result<Kit, EndedBy> {
        let (desktop, endpoint) = (self.job.toolbox.settings().desktop, self.model.endpoint());
        let tools = computer::tools(endpoint.api, desktop);
        if desktop == DesktopTools::Hidden {
            return Ok(Kit { system: SYSTEM.to_owned(), tools, computer: None });
        }
        let looked = tokio::time::timeout_at(deadline, self.job.toolbox.screen_size());
        let screen = self.unless_stopped(looked).await?.map_err(|_| EndedBy::Time)?;
        let screen = screen.map_err(|error| EndedBy::Sandbox(error.to_string()))?;
        let computer = computer::definition(endpoint.api, &endpoint.model, screen);
        Ok(Kit { system: format!("{SYSTEM}{DESKTOP_SYSTEM}"), tools, computer })
    }

    async fn ask(&self, kit: &Kit, turns: &[Turn], spent: &mut Spent) -> Result<Reply, EndedBy> {
        let (deadline, mut backoff) = (spent.deadline(&self.job.budget), Backoff::default());
        let mut question = self.question(kit, turns, spent)?;
        (self.job.watch)(Event::Step { number: spent.steps + 1 });
        loop {
            let error = match self.ask_once(&question, spent).await? {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let why = error.to_string();
            let after = backoff.after(error, deadline)?;
            self.job.transcript.write("retry", json!({ "why": why, "after_seconds": after.as_secs_f64() }));
            (self.job.watch)(Event::Retry { why: &why, after });
            self.unless_stopped(tokio::time::sleep(after)).await?;
            // A failed request may have cost something, too.
            question = self.question(kit, turns, spent)?;
        }
    }

    /// The next request, if the budget allows one.
    fn question<'q>(&self, kit: &'q Kit, turns: &'q [Turn], spent: &Spent) -> Result<Question<'q>, EndedBy> {
        let (tools, computer) = (&*kit.tools, kit.computer.as_ref());
        let question = Question { system: &kit.system, turns, tools, computer, max_tokens: ANSWER_TOKENS };
        let max_tokens = spent.next_answer(&self.job.budget, ANSWER_TOKENS, question.size())?;
        Ok(Question { max_tokens, ..question })
    }

    /// Sends the request once. What it used is counted, even if it fails.
    async fn ask_once(&self, question: &Question<'_>, spent: &mut Spent) -> Result<Result<Reply, ModelError>, EndedBy> {
        let (deadline, mut heard) = (spent.deadline(&self.job.budget), 0);
        let asked = self.unless_stopped(self.model.ask(question, deadline, &mut heard, self.job.watch)).await;
        match &asked {
            Ok(Ok(reply)) => {
                spent.add(reply.usage, question.estimate(reply));
                self.tell_reply(reply, spent.steps);
            }
            Ok(Err(error)) if !error.was_read() => {}
            Ok(Err(_)) | Err(_) => spent.lose(question.with_answer(heard)),
        }
        asked
    }

    fn tell_reply(&self, reply: &Reply, step: u32) {
        (self.job.watch)(Event::Replied { usage: reply.usage });
        self.job.transcript.write(
            "reply",
            json!({ "step": step, "text": reply.text, "calls": reply.calls.len(),
                "input_tokens": reply.usage.input, "output_tokens": reply.usage.output }),
        );
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, EndedBy> {
        tokio::select! {
            done = work => Ok(done),
            () = self.job.stop.cancelled() => Err(EndedBy::Stopped),
        }
    }

    async fn carry_out(
        &self,
        calls: Vec<Call>,
        deadline: Instant,
        repeats: &mut Repeats,
    ) -> Result<Vec<(Call, Observation)>, EndedBy> {
        let mut answers = Vec::new();
        for call in calls {
            let mut observation = self.call(&call, deadline).await?;
            let times = repeats.count(&call, &observation);
            if times >= END_AFTER {
                return Err(EndedBy::Repeats);
            }
            if times >= HINT_AFTER {
                observation.text += &format!("\n[This is the same call with the same result, {times} times in a row.]");
            }
            answers.push((call, observation));
        }
        Ok(answers)
    }

    async fn call(&self, call: &Call, deadline: Instant) -> Result<Observation, EndedBy> {
        let shown = call.arguments.clone().unwrap_or_default();
        (self.job.watch)(Event::Called { name: &call.name, arguments: &shown });
        self.job.transcript.write("call", json!({ "id": call.id, "name": call.name, "arguments": shown }));
        let started = Instant::now();
        let observation = match &call.arguments {
            Ok(arguments) if self.is_computer(call) => self.use_computer(arguments.clone(), deadline).await?,
            Ok(arguments) => self.job.call(&call.name, arguments.clone(), deadline).await?,
            Err(why) => Observation::error(why),
        };
        (self.job.watch)(Event::Observed(&observation));
        self.job.transcript.write(
            "result",
            json!({ "id": call.id, "text": observation.text, "images": observation.images.len(),
                "exit_code": observation.exit_code, "is_error": observation.is_error,
                "seconds": started.elapsed().as_secs_f64() }),
        );
        Ok(observation)
    }

    fn is_computer(&self, call: &Call) -> bool {
        call.name == COMPUTER && self.job.toolbox.settings().desktop == DesktopTools::Offered && self.api() != Api::Chat
    }

    /// Carries out a call of the computer tool. The model sees the screen afterwards.
    async fn use_computer(&self, call: Value, deadline: Instant) -> Result<Observation, EndedBy> {
        let mut seen = Observation::text("done");
        match computer::actions(self.api(), call) {
            Err(BadCall(why)) => seen = Observation::error(why),
            Ok(actions) => {
                for action in actions.into_iter().filter(|action| *action != Action::Screenshot) {
                    seen = self.job.act(&action, deadline).await?;
                    if seen.is_error {
                        break;
                    }
                    self.job.act(&Action::Wait(SETTLE), deadline).await?;
                }
            }
        }
        let screen = self.job.act(&Action::Screenshot, deadline).await?;
        if screen.is_error {
            return Err(EndedBy::Sandbox(screen.text));
        }
        Ok(Observation { images: screen.images, ..seen })
    }
}

/// Forgets all images but the last ones.
fn forget_images(turns: &mut [Turn]) {
    let mut kept = 0;
    let answers = turns.iter_mut().rev().filter_map(|turn| match turn {
        Turn::Answers(answers) => Some(answers),
        Turn::User(_) | Turn::Model(_) => None,
    });
    for (_, seen) in answers.flat_map(|answers| answers.iter_mut().rev()).filter(|(_, seen)| !seen.images.is_empty()) {
        kept += seen.images.len();
        if kept > KEPT_IMAGES {
            seen.images.clear();
            seen.text += "\n[The image is no longer shown.]";
        }
    }
}

#[cfg(test)]
mod tests {
    use sandling_tools::Image;

    use super::*;

    #[test]
    fn only_the_same_call_with_the_same_result_is_a_repetition() {
        let call =
            |code: &str| Call { id: "1".into(), name: "run_code".into(), arguments: Ok(json!({ "code": code })) };
        let mut repeats = Repeats::default();
        let result = Observation::text("x");
        assert_eq!(repeats.count(&call("a"), &result), 1);
        assert_eq!(repeats.count(&call("a"), &result), 2);
        assert_eq!(repeats.count(&call("a"), &Observation::text("y")), 1);
        assert_eq!(repeats.count(&call("b"), &result), 1);
    }

    #[test]
    fn only_the_last_images_are_sent_again() {
        let image = Image { mime: "image/png".into(), data: "AAAA".into() };
        let seen = Observation { images: vec![image], ..Observation::text("done") };
        let call = Call { id: "1".into(), name: COMPUTER.into(), arguments: Ok(json!({})) };
        let mut turns = vec![Turn::Answers(vec![(call, seen)]); KEPT_IMAGES + 2];
        forget_images(&mut turns);
        forget_images(&mut turns);
        let shown: Vec<bool> = turns
            .iter()
            .map(|turn| matches!(turn, Turn::Answers(answers) if !answers[0].1.images.is_empty()))
            .collect();
        assert_eq!(shown, [vec![false; 2], vec![true; KEPT_IMAGES]].concat());
        let Turn::Answers(first) = &turns[0] else { panic!("{turns:?}") };
        assert_eq!(first[0].1.text, "done\n[The image is no longer shown.]");
    }
}
