//! A test that follows from WIT and sidecar file: random legal calls, and a crash at every call boundary.
//!
//! ```text
//!   draw a call ──► plain component ──► answer ─┐
//!        │                                      ├─► the same, or the shortest calls that differ
//!        └──► component that crashes ─► answer ─┘
//! ```
//!
//! Each sequence of calls is drawn against a component that never crashes; its answers are what is right. Then new components are made and
//! given the same calls: with a crash before each call, with one at the return of each, and with one crash at one boundary alone, for every
//! boundary. Where the component calls others, these crash as well. Spare, eager return and two bodies are drawn.
//!
//! Invariants
//!  1. A call at which the plain component fails by itself is taken out, and the plain component begins anew: it never recovers.
//!  2. The same seed draws the same calls.
//!
//! Not covered: calls of several clients at once.

mod draw;
mod play;

use std::collections::BTreeMap;
use std::error::Error;

use self::draw::Dice;
use self::play::{Act, Answer, Crash, Moment, Play, Step, name, show_answer, show_step};
use crate::host::{Edge, Host};
use crate::model::{Effect, Identity, Model, ModelError, Passing, Role, Samples, When};
use crate::value::Value;
use crate::words::Policy;

/// A component that has just started.
#[derive(Debug)]
pub struct Tried {
    /// Where it runs.
    pub host: Host,
    /// The edge to it.
    pub edge: Edge,
    /// Edges to what it uses.
    pub others: Vec<Edge>,
}

/// Why a component could not be made.
pub type MakeError = Box<dyn Error + Send + Sync>;

/// Makes a component and what it uses, with that policy.
pub type Make<'a> = dyn Fn(Policy) -> Result<Tried, MakeError> + 'a;

/// What is tried.
#[derive(Debug, Clone)]
pub struct Trial {
    pub samples: Samples,
    pub seed: u64,
    pub sequences: u32,
    /// Calls of each.
    pub calls: u32,
}

/// What was tried, and held.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub calls: u64,
    pub crashes: u64,
    /// By path: how often it was drawn, and how often it did what it was asked for.
    pub functions: BTreeMap<String, (u64, u64)>,
    /// Calls at which the plain component failed by itself, and why the last one did. They were not tried.
    pub failed: u64,
    pub failure: Option<String>,
}

/// An answer after a crash that is another one than without it.
#[derive(Debug, thiserror::Error)]
#[error(
    "after {crash} {step} must give {needed}, found {found}; sequence {sequence} of seed {seed}:\n{steps}"
)]
pub struct Difference {
    pub crash: String,
    pub step: String,
    pub needed: String,
    pub found: String,
    pub sequence: u32,
    pub seed: u64,
    /// The shortest calls that were found to differ, one a line.
    pub steps: String,
}

/// Why a trial ended.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error("the component does not start: {0}")]
    Make(MakeError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("{0}")]
    Differs(Box<Difference>),
    #[error(
        "without a crash {step} gave {one}, and then {other}: such a component has no right answer"
    )]
    Moody {
        step: String,
        one: String,
        other: String,
    },
    #[error(
        "no call of the interface could be made; its functions need objects that no function gives"
    )]
    Nothing,
}

impl TrialError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Make(_) => "an image and WIT of the same version, and whatever it imports by --uses".into(),
            Self::Model(error) => error.fix(),
            Self::Differs(_) => {
                "what these calls change must be told in the sidecar file, or kept by the component that it calls: docs/reference/host.md"
                    .into()
            }
            Self::Moody { .. } => "answers that follow from the calls alone: time and chance as arguments".into(),
            Self::Nothing => "a constructor, or a function that takes values alone".into(),
        }
    }
}

/// Objects that a drawn call may name.
struct Objects {
    id: u32,
    resource: usize,
    state: usize,
    parent: Option<u32>,
}

/// Draws so often before a sequence ends early.
const DRAWS: u32 = 2000;
/// More objects of a kind than that are rarely made.
const MANY: usize = 3;
/// More objects than that are lent by no list.
const LENT: usize = 4;

fn policy(more: Policy) -> Policy {
    Policy {
        resets_max: u32::MAX,
        ..more
    }
}

impl Trial {
    /// Tries it.
    ///
    /// # Errors
    /// When an answer after a crash is another one than without it.
    pub fn run(&self, make: &Make<'_>) -> Result<Held, TrialError> {
        let mut held = Held::default();
        for sequence in 0..self.sequences {
            let mut dice = Dice::new(self.seed, sequence.into());
            let (steps, model) = self.draw(make, &mut dice, &mut held)?;
            for crash in crashes(&steps) {
                let more = policy(Policy {
                    spare: dice.one_in(2),
                    eager: dice.one_in(4),
                    dual: dice.one_in(4),
                    compare_every: 1,
                    ..Policy::default()
                });
                let make = || make(more).map(Play::new).map_err(TrialError::Make);
                let Some(at) = differs(&steps, crash, &make, &mut held.crashes)? else {
                    continue;
                };
                let calm = Calm { make: &make };
                return Err(calm.told(steps, crash, at, &model, (sequence, self.seed))?);
            }
        }
        if held.calls == 0 {
            return Err(TrialError::Nothing);
        }
        Ok(held)
    }

    /// Calls with the answers of a component that never crashes.
    fn draw(
        &self,
        make: &Make<'_>,
        dice: &mut Dice,
        held: &mut Held,
    ) -> Result<(Vec<(Step, Answer)>, Model), TrialError> {
        let plain = policy(Policy {
            spare: false,
            redo_max: 0,
            ..Policy::default()
        });
        let fresh = || make(plain).map(Play::new).map_err(TrialError::Make);
        let mut play = fresh()?;
        let model = play.edge().model().clone();
        for function in model
            .functions
            .iter()
            .enumerate()
            .filter(|(at, _)| asked(&model, *at))
        {
            let (_, function) = function;
            held.functions.entry(function.path()).or_default();
        }
        let mut steps: Vec<(Step, Answer)> = Vec::new();
        let mut objects = Vec::new();
        let mut id = 0;
        while id < self.calls {
            let act = (0..DRAWS).find_map(|_| self.act(dice, &model, &objects, held));
            let Some(act) = act else { break };
            id += 1;
            let step = Step { id, act };
            let Some(answer) = play.step(&step, None) else {
                continue;
            };
            if let Answer::Failed(why) = answer {
                held.failed += 1;
                held.failure = Some(format!("{}: {why}", show_step(&step, &model)));
                // It would recover now, and what is right must not depend on that.
                play = fresh()?;
                for (step, _) in &steps {
                    play.step(step, None);
                }
                continue;
            }
            follow(&model, &mut objects, &step, &answer);
            held.calls += 1;
            if let Act::Call(function, _) = &step.act {
                let counts = held.functions.entry(model.functions[*function].path());
                let (calls, good) = counts.or_default();
                *calls += 1;
                let bad = matches!(
                    answer,
                    Answer::Gave(Some(Value::Result(Err(_)))) | Answer::Refused(_)
                );
                *good += u64::from(!bad);
            }
            steps.push((step, answer));
        }
        Ok((steps, model))
    }

    /// A legal call, or none where this draw came to none.
    fn act(&self, dice: &mut Dice, model: &Model, objects: &[Objects], held: &Held) -> Option<Act> {
        let leaves = |object: &&Objects| {
            let resource = &model.resources[object.resource];
            resource.children_end
                || resource.children_stay
                || !objects.iter().any(|other| other.parent == Some(object.id))
        };
        if dice.one_in(24) {
            let leaves: Vec<_> = objects.iter().filter(leaves).map(|o| o.id).collect();
            return dice.pick(&leaves).map(Act::Discard);
        }
        // The one of two that has done less so far: functions that mostly refuse get their turn as well.
        let good = |place: &usize| {
            let function = model.functions.get(*place);
            let counts = function.and_then(|function| held.functions.get(&function.path()));
            counts.map(|(_, good)| *good)
        };
        let all = model.functions.len();
        let one = dice.below(all);
        let other = if dice.one_in(2) { dice.below(all) } else { one };
        let place = [one, other].into_iter().min_by_key(good)?;
        let function = model.functions.get(place).filter(|_| asked(model, place))?;
        if let Role::Create { resource, .. } = function.role {
            let same = objects.iter().filter(|o| o.resource == resource).count();
            if same > MANY && !dice.one_in(8) {
                return None;
            }
        }
        let mut args = Vec::new();
        for (at, param) in function.params.iter().enumerate() {
            let of = match param.passing {
                Passing::Value => {
                    args.push(dice.argument(function, at, &self.samples)?);
                    continue;
                }
                Passing::Borrow(of) | Passing::Borrows(of) | Passing::Own(of) => of,
            };
            let fits = objects.iter().filter(|object| object.resource == of);
            let fits: Vec<_> = match param.passing {
                Passing::Own(_) => fits.filter(leaves).collect(),
                // What must succeed needs its state.
                _ => fits
                    .filter(|object| allowed(&function.effect, object))
                    .collect(),
            };
            if matches!(param.passing, Passing::Borrows(_)) {
                args.push(lent(dice, &fits));
                continue;
            }
            // Often the one that was made last: what leads far is seldom met by chance.
            let last = fits.last().filter(|_| dice.one_in(2)).copied();
            let object = last.map_or_else(|| dice.pick(&fits), Some)?;
            args.push(name(object.id));
        }
        Some(Act::Call(place, args))
    }
}

/// A list that lends some of them, the same one twice now and then.
fn lent(dice: &mut Dice, fits: &[&Objects]) -> Value {
    let length = dice.below(LENT + 1);
    let items = (0..length).filter_map(|_| dice.pick(fits));
    Value::List(items.map(|object| name(object.id)).collect())
}

/// Whether clients call it. What makes an object of its identity is for the host, and no drawn identity is one.
fn asked(model: &Model, function: usize) -> bool {
    let again = |identity: Identity| identity.again == function;
    !model
        .resources
        .iter()
        .any(|r| r.identity.is_some_and(again))
}

/// Whether a call that cannot be refused is one of that state.
fn allowed(effect: &Effect, object: &Objects) -> bool {
    match effect {
        Effect::State {
            from,
            when: When::Always,
            ..
        } => from.is_empty() || from.contains(&object.state),
        _ => true,
    }
}

/// What a step leaves of the objects.
fn follow(model: &Model, objects: &mut Vec<Objects>, step: &Step, answer: &Answer) {
    let (function, args) = match &step.act {
        Act::Discard(id) => return end(model, objects, *id),
        Act::Call(function, args) => (&model.functions[*function], args),
    };
    let Answer::Gave(value) = answer else { return };
    let named = |place: usize| args.get(place).and_then(Value::handle).map(|h| h.index);
    match function.role {
        Role::Create { resource, parent } => {
            if value.as_ref().is_some_and(|value| value.handle().is_some()) {
                objects.push(Objects {
                    id: step.id,
                    resource,
                    state: 0,
                    parent: parent.and_then(named),
                });
            }
        }
        Role::Terminal { parameter } => {
            if let Some(id) = named(parameter) {
                let ended = objects.iter().find(|o| o.id == id);
                let parent = ended.and_then(|ended| ended.parent);
                end(model, objects, id);
                if let Some(resource) = function.gives
                    && value.as_ref().is_some_and(|value| value.handle().is_some())
                {
                    objects.push(Objects {
                        id: step.id,
                        resource,
                        state: 0,
                        parent,
                    });
                }
            }
        }
        Role::Method { .. } => {
            if let Effect::State { to, when, .. } = &function.effect
                && when.holds(value.as_ref())
                && let Some(object) = objects.iter_mut().find(|o| Some(o.id) == named(0))
            {
                object.state = *to;
            }
            if let Effect::Move { parent, when } = &function.effect
                && when.holds(value.as_ref())
                && let Some(object) = objects.iter_mut().find(|o| Some(o.id) == named(0))
            {
                object.parent = named(*parent);
            }
        }
        Role::Free => {}
    }
}

fn end(model: &Model, objects: &mut Vec<Objects>, id: u32) {
    let ends = objects.iter().find(|o| o.id == id);
    let ends = ends.is_some_and(|o| model.resources[o.resource].children_end);
    objects.retain(|o| o.id != id);
    if ends {
        let children: Vec<_> = objects.iter().filter(|o| o.parent == Some(id)).collect();
        let children: Vec<_> = children.iter().map(|o| o.id).collect();
        children
            .iter()
            .for_each(|child| end(model, objects, *child));
    }
}

/// Everywhere at once, and at each boundary alone.
fn crashes(steps: &[(Step, Answer)]) -> Vec<Crash> {
    let mut all = Vec::new();
    for moment in [Moment::Before, Moment::Within] {
        for others in [false, true] {
            let only = [None].into_iter();
            let each = steps.iter().map(|(step, _)| Some(step.id));
            all.extend(only.chain(each.filter(|_| others)).map(|only| Crash {
                moment,
                all: others,
                only,
            }));
        }
    }
    all
}

/// The first step whose answer is another one with a crash, and what it is.
fn differs(
    steps: &[(Step, Answer)],
    crash: Crash,
    make: &dyn Fn() -> Result<Play, TrialError>,
    made: &mut u64,
) -> Result<Option<(usize, Answer)>, TrialError> {
    let mut play = make()?;
    for (place, (step, needed)) in steps.iter().enumerate() {
        let found = play.step(step, Some(crash));
        let found = found.unwrap_or_else(|| Answer::Refused("no object".into()));
        if found != *needed {
            return Ok(Some((place, found)));
        }
    }
    *made += play.crashes;
    Ok(None)
}

/// What says which answers are right, once a difference was found.
struct Calm<'a> {
    make: &'a dyn Fn() -> Result<Play, TrialError>,
}

impl Calm<'_> {
    /// The answers without a crash; none where a step lacks an object, or the component fails by itself.
    fn answers(&self, steps: &[Step]) -> Result<Option<Vec<Answer>>, TrialError> {
        let mut play = (self.make)()?;
        let answer = |step: &Step| match play.step(step, None) {
            None | Some(Answer::Failed(_)) => None,
            answer => answer,
        };
        Ok(steps.iter().map(answer).collect())
    }

    /// Leaves steps away as long as the answers differ, and says what differs.
    fn told(
        &self,
        steps: Vec<(Step, Answer)>,
        crash: Crash,
        (mut at, mut found): (usize, Answer),
        model: &Model,
        (sequence, seed): (u32, u64),
    ) -> Result<TrialError, TrialError> {
        let plain: Vec<_> = steps.iter().map(|(step, _)| step.clone()).collect();
        let mut best = steps;
        if let Some(again) = self.answers(&plain)?
            && let Some(place) = (0..again.len()).find(|place| again[*place] != best[*place].1)
        {
            return Ok(TrialError::Moody {
                step: show_step(&plain[place], model),
                one: show_answer(&best[place].1),
                other: show_answer(&again[place]),
            });
        }
        best.truncate(at + 1);
        let mut place = at;
        while place > 0 {
            place -= 1;
            if crash.only == Some(best[place].0.id) {
                continue;
            }
            let mut fewer: Vec<_> = best.iter().map(|(step, _)| step.clone()).collect();
            fewer.remove(place);
            let Some(answers) = self.answers(&fewer)? else {
                continue;
            };
            let fewer: Vec<_> = fewer.into_iter().zip(answers).collect();
            if let Some((now, other)) = differs(&fewer, crash, self.make, &mut 0)? {
                best = fewer;
                best.truncate(now + 1);
                (at, found) = (now, other);
                place = place.min(at);
            }
        }
        let lines = best.iter().map(|(step, answer)| {
            format!("    {} -> {}", show_step(step, model), show_answer(answer))
        });
        let whom = if crash.all {
            " of it and of what it uses"
        } else {
            ""
        };
        let moment = match crash.moment {
            Moment::Before => "before",
            Moment::Within => "at the return of",
        };
        let which = crash
            .only
            .map_or_else(|| "each call".into(), |only| format!("#{only}"));
        Ok(TrialError::Differs(Box::new(Difference {
            crash: format!("a crash{whom} {moment} {which}"),
            step: show_step(&best[at].0, model),
            needed: show_answer(&best[at].1),
            found: show_answer(&found),
            sequence,
            seed,
            steps: lines.collect::<Vec<_>>().join("\n"),
        })))
    }
}
