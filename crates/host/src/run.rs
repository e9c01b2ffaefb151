//! `steadfast host run` and `host check`: an application of components, from its app.toml.
//!
//! What a component prints goes to standard output or error, each line behind the component's name, or into files of its own. Failures are
//! events; a summary ends on standard error.
//!
//! Invariant: nothing is called before every component has been loaded and started; `check` ends there.
//!
//! With tasks or connections it runs until a signal ends it; `--control`, `--http` and the service manager tell how it does meanwhile.
//!
//! Not covered: input for components other than connections.
//!
//! The exit status is 0 when the run function returned ok or true and every call of the script what it must, and no job of a task failed,
//! else 1.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use steadfast_contract::monitor;
use steadfast_restart::host::{Kept, Listener, Report};
use steadfast_restart::{Host, Value};
use steadfast_sys::manager::Manager;
use steadfast_sys::signals;

use crate::app::{App, Running, Ways};
use crate::board::Board;
use crate::control::{self, Question};
use crate::dumps::{self, Dumps};
use crate::events::Events;
use crate::guard;
use crate::keep::{self, Keep, Keeping, Named};
use crate::listen;
use crate::machine;
use crate::output::Output;
use crate::script;
use crate::tasks::{self, AllCounts, Tasks};
use crate::told::Told;
use crate::upgrade::Upgrader;

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
    /// Goes on with all objects after the host was killed: who holds them meanwhile [default: nobody]
    #[arg(long, value_name = "WHO")]
    keep: Option<Keep>,
    #[command(flatten)]
    dumps: dumps::Options,
    /// Answers `host top` at this socket
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Serves /metrics, /healthz and /readyz here
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
    /// Nothing moves for so long while a call is under way: not healthy, and the watchdog is not fed
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    hung_after: u64,
    /// Ends tasks and connections after so long; without it, at SIGTERM or SIGINT
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// Says whether an application would start: loads and starts every component, and calls nothing. Without one, what this machine allows.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Components, edges, and who calls first
    app: Option<PathBuf>,
}

fn listener(events: &Arc<Events>, dumps: Option<&Arc<Dumps>>, board: &Arc<Board>) -> Listener {
    let (events, dumps, board) = (events.clone(), dumps.cloned(), board.clone());
    Arc::new(move |report: &Report| {
        board.hear(report);
        let dump = dumps.as_ref().and_then(|dumps| dumps.put(report));
        events.write(
            "component_reset",
            json!({
                "component": report.component, "function": report.function, "cause": report.cause.word(),
                "detail": report.detail, "epoch": report.epoch, "reset_ns": report.reset_ns, "spare": report.swapped,
                "process": report.renewed,
                "dump": dump,
            }),
        );
    })
}

/// Objects that the script has named, here or in the process before. None where it did not end as it must.
fn named(
    app: &App,
    running: &Running,
    mut keeping: Option<Keeping>,
    done: Option<Named>,
) -> Result<Option<Named>, Told> {
    if done.is_some() {
        return Ok(done);
    }
    let mut named = Named::new();
    for call in &app.call {
        if !script::scripted(call, &running.script[&call.to], &mut named)? {
            return Ok(None);
        }
    }
    if let Some(keeping) = &mut keeping {
        keeping.scripted(&named);
    }
    Ok(Some(named))
}

/// Tasks and connections, with the run function beside them. False where something did not end as it must.
fn work(
    app: &App,
    running: &Running,
    named: &Named,
    (tasks, events): (&AllCounts, &Arc<Events>),
    limit: Option<Duration>,
) -> Result<bool, Told> {
    let begun = Tasks::start(app, running, named, tasks, events)?;
    listen::start(&app.listen, &running.all)?;
    let result = match &app.run {
        Some(run) => running.all[&run.component].invoke(&run.function, &[]),
        None if !app.serves() => Ok(None),
        None => {
            await_end(limit);
            Ok(None)
        }
    };
    let good = begun.end();
    let failed = matches!(result?, Some(Value::Bool(false) | Value::Result(Err(_))));
    Ok(good && !failed)
}

/// What ends an application that serves.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// Waits for one of these signals, or so long.
fn await_end(limit: Option<Duration>) {
    let begin = Instant::now();
    let mut left = limit.unwrap_or(Duration::MAX);
    while !left.is_zero() && signals::within(&ENDING, left).is_none() {
        // Another signal came, or the time is over.
        left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begin.elapsed()));
    }
}

impl RunApp {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let app = App::read(&self.app)?;
        if self.keep == Some(Keep::Own) && !keep::is_guarded() {
            return guard::run(&app);
        }
        let keeping = self.keep.map(|keep| Keeping::open(keep, &app));
        let mut keeping = keeping.transpose()?;
        let events = Arc::new(Events::new(self.events.as_ref(), self.keep.is_some())?);
        let output = Output::new(self.output.as_deref())?;
        let dumps = Dumps::open(&self.dumps)?.map(Arc::new);
        if app.serves() && app.run.is_none() {
            // Before there is a second thread.
            signals::block(&ENDING);
        }
        let hung_after = Duration::from_secs(self.hung_after);
        let board = Arc::new(Board::new(hung_after, dumps.clone()));
        let upgrader = Arc::<OnceLock<Upgrader>>::default();
        let _socket = self.serve(&board, &upgrader)?;
        let mut host = Host::new(!self.no_pad)?;
        let heard = listener(&events, dumps.as_ref(), &board);
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
        let restored = keeping
            .as_mut()
            .and_then(|keeping| keeping.begin(&host, &events));
        let tasks = tasks::counts(&app);
        board.begin(&running.all, &tasks);
        let Upgrader { app, .. } = upgrader.get_or_init(|| Upgrader {
            app,
            host,
            output,
            events: events.clone(),
            dump: dumps.is_some(),
        });
        let limit = self.seconds.map(Duration::from_secs);
        let done = match named(app, &running, keeping, restored) {
            Ok(Some(named)) => work(app, &running, &named, (&tasks, &events), limit),
            Ok(None) => Ok(false),
            Err(told) => Err(told),
        };
        report(&running, &tasks, &events)?;
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

    /// Answers whoever asks how the application does, from now on.
    fn serve(
        &self,
        board: &Arc<Board>,
        upgrader: &Arc<OnceLock<Upgrader>>,
    ) -> Result<Option<control::Socket>, Told> {
        let told = |error: std::io::Error| {
            let address = self.http.as_deref().unwrap_or_default();
            let what =
                anyhow::Error::new(error).context(format!("{address} cannot be listened at"));
            Told::setup(what, "--http ADDRESS:PORT, one that is free")
        };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(run).map(drop).map_err(told)
        };
        if let Some(address) = &self.http {
            let listener = TcpListener::bind(address).map_err(told)?;
            let board = board.clone();
            spawn(
                "host-http",
                Box::new(move || monitor::serve(&listener, |path| board.reply(path))),
            )?;
        }
        let watching = board.clone();
        spawn(
            "host-board",
            Box::new(move || watching.watch(Manager::from_environment())),
        )?;
        let answer = {
            let (board, upgrader) = (board.clone(), upgrader.clone());
            move |question| match question {
                Question::Status => Ok(board.status()),
                Question::Upgrade { component, image } => match upgrader.get() {
                    Some(upgrader) => upgrader.upgrade(&component, &image),
                    None => Err(Told::setup(
                        anyhow::anyhow!("the application has to be serving, it is starting"),
                        "try again",
                    )),
                },
            }
        };
        let socket = self.control.as_deref();
        socket.map(|path| control::serve(path, answer)).transpose()
    }
}

/// What each component and task came to.
fn report(running: &Running, tasks: &AllCounts, events: &Events) -> Result<(), Told> {
    for (name, edge) in &running.all {
        let stats = edge.stats()?;
        if stats.kept == Kept::TooLarge {
            eprintln!(
                "steadfast host: {name} had more objects than --keep holds: a kill would have lost all of them"
            );
        }
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
                "objects": stats.objects, "rests": stats.rests, "kept": stats.kept.word() }),
        );
    }
    for (name, counts) in tasks {
        let told = counts.json(name);
        if told["missed"] != 0 || told["failed"] != 0 {
            eprintln!(
                "steadfast host: task {name} missed {} deadlines, {} of its {} jobs failed",
                told["missed"], told["failed"], told["jobs"]
            );
        }
        events.write("task_end", told);
    }
    Ok(())
}

impl Check {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let Some(app) = &self.app else {
            return Ok(machine::check());
        };
        let app = App::read(app)?;
        let mut host = Host::new(true)?;
        let quiet: Listener = Arc::new(|_| {});
        let ways = Ways {
            listener: &quiet,
            dump: false,
            console: &|_| Ok(Arc::new(|_, _: &str| {})),
        };
        let running = app.start(&mut host, &ways)?;
        for (name, edge) in &running.all {
            let place = match app.has_process(name) {
                true => "a process of its own",
                false => "the host's process",
            };
            let functions = edge.model().functions.len();
            println!("{name}: {functions} functions, starts in {place}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
