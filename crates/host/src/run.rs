//! `steadfast host run` and `host check`: an application of components, from its app.toml.
//!
//! What a component prints goes to standard output or error, each line behind the component's name, or into files of its own. Failures are
//! events; a summary ends on standard error.
//!
//! Invariant: nothing is called before every component has been loaded and started; `check` ends there.
//!
//! Not covered: input for components, and several clients at once.
//!
//! The exit status is 0 when the run function returned ok or true and every call of the script what it must, else 1.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value as Json, json};
use steadfast_restart::host::{Listener, Report};
use steadfast_restart::{Edge, Handle, Host, Shape, Value};

use crate::app::{App, Call, Running, Ways};
use crate::cli::Told;
use crate::dumps::{self, Dumps};
use crate::events::Events;
use crate::output::Output;

/// Runs an application of components.
#[derive(Debug, Args)]
pub(crate) struct RunApp {
    /// Components, edges, and who calls first
    app: PathBuf,
    /// Writes failures and counters into this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Lets wild faults end the process, where the signal pad does not work
    #[arg(long)]
    no_pad: bool,
    /// Writes what components print into NAME.out and NAME.err of this folder, instead of standard output and error
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    dumps: dumps::Options,
}

/// Says whether an application would start: loads and starts every component, and calls nothing.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Components, edges, and who calls first
    app: PathBuf,
}

fn listener(events: &Arc<Events>, dumps: Option<&Arc<Dumps>>) -> Listener {
    let (events, dumps) = (events.clone(), dumps.cloned());
    Arc::new(move |report: &Report| {
        let dump = dumps.as_ref().and_then(|dumps| dumps.put(report));
        events.write(
            "component_reset",
            json!({
                "component": report.component, "function": report.function, "cause": report.cause.word(),
                "detail": report.detail, "epoch": report.epoch, "reset_ns": report.reset_ns, "spare": report.swapped,
                "dump": dump,
            }),
        );
    })
}

/// A result as JSON; an object as `$`, since its number means nothing outside.
fn plain(value: &Value) -> Json {
    let maybe = |value: &Option<Box<Value>>| value.as_ref().map_or(Json::Null, |v| plain(v));
    match value {
        Value::Bool(b) => (*b).into(),
        Value::U8(n) => (*n).into(),
        Value::U16(n) => (*n).into(),
        Value::U32(n) => (*n).into(),
        Value::U64(n) => (*n).into(),
        Value::S8(n) => (*n).into(),
        Value::S16(n) => (*n).into(),
        Value::S32(n) => (*n).into(),
        Value::S64(n) => (*n).into(),
        Value::F32(bits) => f64::from(f32::from_bits(*bits)).into(),
        Value::F64(bits) => f64::from_bits(*bits).into(),
        Value::Char(c) => c.to_string().into(),
        Value::String(text) | Value::Enum(text) => text.clone().into(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
        Value::List(items) | Value::Tuple(items) => items.iter().map(plain).collect(),
        Value::Record(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Variant(name, value) => json!({ name: maybe(value) }),
        Value::Option(value) => maybe(value),
        Value::Result(Ok(value)) => json!({ "ok": maybe(value) }),
        Value::Result(Err(value)) => json!({ "err": maybe(value) }),
        Value::Flags(names) => names.clone().into(),
        Value::Handle(_) => "$".into(),
    }
}

/// An argument of the script as a value of the parameter's type.
fn argument(given: &toml::Value, shape: &Shape, named: &BTreeMap<String, Handle>) -> Option<Value> {
    use toml::Value as Toml;
    Some(match (shape, given) {
        (Shape::Bool, Toml::Boolean(b)) => Value::Bool(*b),
        (Shape::S8, Toml::Integer(n)) => Value::S8(i8::try_from(*n).ok()?),
        (Shape::S16, Toml::Integer(n)) => Value::S16(i16::try_from(*n).ok()?),
        (Shape::S32, Toml::Integer(n)) => Value::S32(i32::try_from(*n).ok()?),
        (Shape::S64, Toml::Integer(n)) => Value::S64(*n),
        (_, Toml::Integer(n)) if shape.is_number() => shape.of_number(u64::try_from(*n).ok()?)?,
        (Shape::String, Toml::String(text)) => Value::String(text.clone()),
        (Shape::Enum(cases), Toml::String(text)) if cases.contains(text) => {
            Value::Enum(text.clone())
        }
        (Shape::List(_), Toml::String(text)) if shape.is_bytes() => {
            Value::Bytes(text.as_bytes().to_vec())
        }
        (Shape::List(inner), Toml::Array(items)) => Value::List(
            items
                .iter()
                .map(|item| argument(item, inner, named))
                .collect::<Option<_>>()?,
        ),
        (Shape::Option(inner), given) => {
            Value::Option(Some(Box::new(argument(given, inner, named)?)))
        }
        (Shape::Handle(_), Toml::String(text)) => {
            Value::Handle(*named.get(text.strip_prefix('$')?)?)
        }
        _ => return None,
    })
}

/// One line of the script. False where it returned something else than it must.
fn scripted(call: &Call, edge: &Edge, named: &mut BTreeMap<String, Handle>) -> Result<bool, Told> {
    let function = edge.function(&call.function)?;
    let params = &edge.model().functions[function].params;
    let mut args = Vec::with_capacity(params.len());
    for (given, param) in call.args.iter().zip(params) {
        let value = argument(given, &param.shape, named).ok_or_else(|| {
            let given = serde_json::to_value(given).unwrap_or_default();
            Told::setup(
                anyhow::anyhow!(
                    "argument {} of {} needs a value of its type, found {given}",
                    param.name,
                    call.function
                ),
                "a number, a boolean or a text; $NAME for the object of an earlier call with as = \"NAME\"",
            )
        })?;
        args.push(value);
    }
    for _ in 0..call.repeat {
        let result = edge.call(function, &args)?;
        if let (Some(name), Some(handle)) = (&call.name, result.as_ref().and_then(Value::handle)) {
            named.insert(name.clone(), handle);
        }
        let found = result.as_ref().map_or(Json::Null, plain);
        if call.repeat == 1 {
            println!("{} {}: {found}", call.to, call.function);
        }
        if let Some(expect) = &call.expect {
            let wanted = serde_json::to_value(expect).unwrap_or_default();
            if wanted != found {
                eprintln!(
                    "steadfast host: {} of {} must return {wanted}, found {found}",
                    call.function, call.to
                );
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn work(app: &App, running: &Running) -> Result<bool, Told> {
    let mut named = BTreeMap::new();
    for call in &app.call {
        if !scripted(call, &running.script[&call.to], &mut named)? {
            return Ok(false);
        }
    }
    let Some(run) = &app.run else {
        return Ok(true);
    };
    let result = running.all[&run.component].invoke(&run.function, &[])?;
    Ok(!matches!(
        result,
        Some(Value::Bool(false) | Value::Result(Err(_)))
    ))
}

impl RunApp {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let app = App::read(&self.app)?;
        let events = Arc::new(Events::new(self.events.as_ref())?);
        let output = Output::new(self.output.as_deref())?;
        let dumps = Dumps::open(&self.dumps)?.map(Arc::new);
        let mut host = Host::new(!self.no_pad)?;
        let heard = listener(&events, dumps.as_ref());
        let ways = Ways {
            listener: &heard,
            dump: dumps.is_some(),
            console: &|name| output.console(name),
        };
        let running = app.start(&mut host, &ways)?;
        let names: Vec<_> = running.all.keys().collect();
        let printed: BTreeMap<_, _> = names
            .iter()
            .map(|name| (name, output.named(name)))
            .collect();
        events.write(
            "host_start",
            json!({ "components": names, "output": printed }),
        );
        let done = work(&app, &running);
        for (name, edge) in &running.all {
            let stats = edge.stats()?;
            let resets: BTreeMap<_, _> = stats.resets.iter().map(|(c, n)| (c.word(), n)).collect();
            if stats.resets_total() > 0 {
                eprintln!(
                    "steadfast host: {name} failed {} times, {} objects came back",
                    stats.resets_total(),
                    stats.rebuilt
                );
            }
            events.write(
                "component_end",
                json!({ "component": name, "calls": stats.calls, "resets": resets, "rebuilt": stats.rebuilt,
                    "objects": stats.objects, "rests": stats.rests }),
            );
        }
        let good = matches!(done, Ok(true));
        let lost = dumps.as_ref().map(|dumps| {
            dumps.close();
            dumps.lost()
        });
        if let Some(lost @ 1..) = lost {
            eprintln!("steadfast host: dumps of {lost} failures were lost");
        }
        events.write("host_end", json!({ "ok": good, "dumps_lost": lost }));
        done?;
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl Check {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let app = App::read(&self.app)?;
        let mut host = Host::new(true)?;
        let quiet: Listener = Arc::new(|_| {});
        let ways = Ways {
            listener: &quiet,
            dump: false,
            console: &|_| Ok(Arc::new(|_, _: &str| {})),
        };
        let running = app.start(&mut host, &ways)?;
        for (name, edge) in &running.all {
            println!("{name}: {} functions, starts", edge.model().functions.len());
        }
        Ok(ExitCode::SUCCESS)
    }
}
